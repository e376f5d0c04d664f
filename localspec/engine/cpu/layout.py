"""The tables that the compiled functions read: int64 fields of the model, its linears and layers, a job, the threads.

Offsets are in bytes, eight to a field. Python writes these tables.
"""

from __future__ import annotations

from typing import Final

MAX_ROWS: Final = 128  # of one pass; longer prompts are read in pieces of so many
TILE_QUERIES: Final = 64  # of one attention task, unless one row's query group is larger
THREAD_TASKS: Final = 4  # attention tasks for each thread, where there are rows enough; eight were slower
CHUNK: Final = 128  # positions whose scores are held at once
SEGMENT: Final = 1024  # positions of one attention task
STATE_FLOATS: Final = 16  # beside a segment's sums: their greatest score and total weight


def partial_bytes(num_heads: int, wide: int, context: int) -> int:
    """Bytes of attention's partial sums [segments, MAX_ROWS, heads, head + state], float32. `wide`: padded head."""
    return -(-context // SEGMENT) * MAX_ROWS * num_heads * (wide + 2 * STATE_FLOATS) * 4


# A linear
WEIGHT: Final = 0
BIAS: Final = 8
BLOCKS: Final = 16
GROUPS: Final = 24
BITS: Final = 32
MORE: Final = 40  # blocks of the linear behind this one in its table, which are this one's last outputs
LINEAR_BYTES: Final = 48

# A layer
ATTENTION_NORM: Final = 0
Q_NORM: Final = 8
K_NORM: Final = 16
MLP_NORM: Final = 24
KEYS: Final = 32  # bytes from the start of a sequence's cache
VALUES: Final = 40
WINDOW: Final = 48  # 0: none
QK: Final = 56  # and V behind it
V: Final = QK + LINEAR_BYTES
OUTPUT: Final = V + LINEAR_BYTES
GATE_UP: Final = OUTPUT + LINEAR_BYTES
DOWN: Final = GATE_UP + LINEAR_BYTES
LAYER_BYTES: Final = DOWN + LINEAR_BYTES

# A model
LAYERS: Final = 0
HIDDEN: Final = 8  # padded to whole groups
NUM_HEADS: Final = 16
NUM_KV_HEADS: Final = 24
HEAD_DIM: Final = 32
HEAD_PADDED: Final = 40  # to whole vectors
CONTEXT: Final = 48  # padded to whole chunks
COS: Final = 56
SIN: Final = 64
CONSTANTS: Final = 72  # float32: norm epsilon, 1 / hidden, 1 / head_dim, 1 / sqrt(head_dim)
FINAL_NORM: Final = 80
EMBEDDING: Final = 88
HEAD: Final = EMBEDDING + LINEAR_BYTES
# its scratch buffers
STREAM: Final = HEAD + LINEAR_BYTES  # float32 [MAX_ROWS, hidden]
NARROW: Final = STREAM + 8  # quantised rows of hidden or attention width
WIDE: Final = NARROW + 32  # quantised rows of the feed-forward's width
MIXED: Final = WIDE + 32  # float32 [MAX_ROWS, qkv width], then attention's output
MIXED_STRIDE: Final = MIXED + 8  # bytes of its row
QUERIES: Final = MIXED_STRIDE + 8
PARTIAL: Final = QUERIES + 8
OWN: Final = PARTIAL + 8  # each thread's own buffer
OWN_BYTES: Final = OWN + 8
MODEL_BYTES: Final = OWN_BYTES + 8

# Quantised rows, within a model
Q_BYTES: Final = 0
Q_SCALES: Final = 8
Q_CORRECTIONS: Final = 16
Q_GROUPS: Final = 24

# A span: consecutive rows of one sequence
FIRST: Final = 0
COUNT: Final = 8
POSITION: Final = 16
CACHE: Final = 24  # the address of its keys and values
SPAN_BYTES: Final = 32

# A job
MODEL: Final = 0
ROWS: Final = 8
DONE: Final = 16  # the first rows, whose states after layer EXIT are handed in
EXIT: Final = 24
LAST: Final = 32
SPANS: Final = 40
NUM_SPANS: Final = 48
LATE_SPANS: Final = 56  # of the rows behind the DONE ones, counted from there
NUM_LATE_SPANS: Final = 64
READ: Final = 72  # the rows that are read at the head
NUM_READ: Final = 80
IDS: Final = 88
STATES: Final = 96  # handed in
STATES_OUT: Final = 104  # 0: not wanted
LOGITS: Final = 112
READ_AT: Final = 120  # the linear that is the head
JOB_BYTES: Final = 128

# Threads: each on a cache line of its own
NEXT: Final = 0
ARRIVED: Final = 64
GENERATION: Final = 128
GO: Final = 192
THREADS: Final = 256
NAP: Final = 264  # address of the system's own call
NAP_TIME: Final = 272  # what it is given
FINISHED: Final = 280  # the last job that the leader has finished
STATE: Final = 320  # of thread i at STATE + 64 i
ACTIVE: Final = 0
PARKED: Final = 1
STOP: Final = -1  # a job's ROWS that ends a worker
