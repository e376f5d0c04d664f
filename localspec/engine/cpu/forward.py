"""The transformer as compiled functions: every thread runs the same pass, claims tasks, and waits where a phase ends.

Each task computes its result alone and in one order, so neither the number of threads nor the number of rows changes a
bit of any row. Written with the primitives of `lang`; addresses are int64. The architecture is decoder.py's.
"""

from __future__ import annotations

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.attention import attention_phase, cache_phase, merge_phase
from localspec.engine.cpu.lang import breathe, compiled, exchange, int_at, look, tell
from localspec.engine.cpu.linears import added_phase, gate_phase, linear_phase
from localspec.engine.cpu.rows import copy_row, norm_phase, read_phase, start_phase

SPINS_TO_PARK = 40_000  # about a millisecond


@compiled
def run_layer(sync: int, model: int, layer: int, x: int, rows: int, spans: int, end: int, own: int) -> None:
    """Runs one layer on rows [rows, hidden] at `x`, which the spans from `spans` to `end` place."""
    hidden = int_at(model + at.HIDDEN)
    narrow, mixed = model + at.NARROW, int_at(model + at.MIXED)
    norm_phase(sync, model, int_at(layer + at.ATTENTION_NORM), x, rows)
    linear_phase(sync, layer + at.QK, narrow, rows, mixed, int_at(model + at.MIXED_STRIDE), own)
    cache_phase(sync, model, layer, rows, spans)
    attention_phase(sync, model, layer, spans, end, own)
    merge_phase(sync, model, layer, rows, spans)
    added_phase(sync, layer + at.OUTPUT, narrow, rows, x, hidden * 4, own)
    norm_phase(sync, model, int_at(layer + at.MLP_NORM), x, rows)
    gate_phase(sync, layer + at.GATE_UP, narrow, rows, model + at.WIDE, own)
    added_phase(sync, layer + at.DOWN, model + at.WIDE, rows, x, hidden * 4, own)


@compiled
def run_layers(
    sync: int, model: int, first: int, last: int, x: int, rows: int, spans: int, count: int, own: int
) -> None:
    if rows > 0:
        for index in range(first, last):
            layer = int_at(model + at.LAYERS) + index * at.LAYER_BYTES
            run_layer(sync, model, layer, x, rows, spans, spans + count * at.SPAN_BYTES, own)


@compiled
def head_phase(sync: int, model: int, head: int, x: int, read: int, rows: int, logits: int, own: int) -> None:
    """Reads the rows of the list at `read`."""
    read_phase(sync, model, int_at(model + at.FINAL_NORM), x, read, rows)
    stride = (int_at(head + at.BLOCKS) + int_at(head + at.MORE)) * 128
    linear_phase(sync, head, model + at.NARROW, rows, logits, stride, own)


@compiled
def forward(sync: int, job: int, thread: int) -> None:
    """Runs one pass; every thread calls it. Rows without exit states go through the layers below the exit, all rows
    through the others.

    The job is read before the first barrier: past the last one, the leader may already write the next job.
    """
    model = int_at(job + at.MODEL)
    x, hidden = int_at(model + at.STREAM), int_at(model + at.HIDDEN)
    own = int_at(model + at.OWN) + thread * int_at(model + at.OWN_BYTES)
    rows, done, leave, last = int_at(job + at.ROWS), int_at(job + at.DONE), int_at(job + at.EXIT), int_at(job + at.LAST)
    spans, count = int_at(job + at.SPANS), int_at(job + at.NUM_SPANS)
    late_spans, late_count = int_at(job + at.LATE_SPANS), int_at(job + at.NUM_LATE_SPANS)
    read, num_read = int_at(job + at.READ), int_at(job + at.NUM_READ)
    states, logits, head = int_at(job + at.STATES_OUT), int_at(job + at.LOGITS), int_at(job + at.READ_AT)
    start_phase(sync, job, model, x)
    run_layers(sync, model, 0, leave, x + done * hidden * 4, rows - done, late_spans, late_count, own)
    run_layers(sync, model, leave, last, x, rows, spans, count, own)
    if states != 0 and thread == 0:
        copy_row(x, states, rows * hidden // 16)
    if num_read > 0:
        head_phase(sync, model, head, x, read, num_read, logits, own)


@compiled
def serve(sync: int, job: int, thread: int, seen: int) -> int:
    """Runs every new job; returns the last one's number when none has come for a while."""
    while True:
        spins = 0
        while look(sync + at.GO) == seen:
            breathe(0)
            spins += 1
            if spins > SPINS_TO_PARK:
                exchange(sync + at.STATE + 64 * thread, at.PARKED)
                if look(sync + at.GO) == seen:
                    return seen
                if exchange(sync + at.STATE + 64 * thread, at.ACTIVE) == at.ACTIVE:
                    return seen  # the leader saw this worker parked, and wakes it
        seen = look(sync + at.GO)
        if int_at(job + at.ROWS) == at.STOP:
            return seen
        forward(sync, job, thread)


@compiled
def summon(sync: int) -> int:
    """Announces a new job; returns the workers that must be woken, one bit each."""
    parked = 0
    tell(sync + at.GO, int_at(sync + at.GO) + 1)
    for thread in range(1, int_at(sync + at.THREADS)):
        if exchange(sync + at.STATE + 64 * thread, at.ACTIVE) == at.PARKED:
            parked |= 1 << thread
    return parked


@compiled
def enter(what: int, sync: int, job: int, thread: int, seen: int) -> int:
    """The entry point: `what` 0 runs a job, 1 serves jobs until parked or stopped, 2 summons the workers."""
    if what == 0:
        forward(sync, job, thread)
        tell(sync + at.FINISHED, int_at(sync + at.GO))
        return 0
    return serve(sync, job, thread, seen) if what == 1 else summon(sync)
