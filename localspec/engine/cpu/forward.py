"""The transformer as compiled functions: every thread runs the same pass, claims tasks, and waits where a phase ends.

Whatever a task computes it computes alone and in one order, so neither the number of threads nor the number of rows
changes a bit of any row. Written in the words of `lang`; addresses are int64. The architecture is decoder.py's.
"""

from __future__ import annotations

import math

import numpy as np

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.formats import GROUP, OUTPUTS, RECORD_BYTES, SCALE_BYTES
from localspec.engine.cpu.kernels import MOST_QUERIES
from localspec.engine.cpu.lang import (
    ISA,
    Vector,
    breathe,
    byte_at,
    claim,
    compiled,
    exchange,
    exp16,
    float_at,
    fma16,
    greater16,
    greatest16,
    inner,
    int_at,
    load16,
    look,
    put_float,
    put_half,
    put_int32,
    relax,
    seen16,
    size16,
    splat16,
    store16,
    store_bytes16,
    store_halves16,
    tell,
    total16,
    word_at,
)

F32 = np.float32
STEP = ISA.rows
SPINS_TO_YIELD = 2000
SPINS_TO_PARK = 40_000  # about a millisecond
LEAST_TASK_BYTES, MOST_TASK_BYTES = 8192, 131072  # of weights: small tasks spend their time on being claimed
TASKS_PER_THREAD = 8  # so that a thread that comes late leaves the others waiting for an eighth at most
RECORD8, RECORD4 = RECORD_BYTES["int8"], RECORD_BYTES["int4"]
HIDDEN_SCORE = F32(-1e30)

int8, int4 = inner("int8", 10), inner("int4", 10)
scores, mix_1, mix_4 = inner("scores", 7), inner("mix_1", 8), inner("mix_4", 8)


# --- threads


@compiled
def barrier(sync: int) -> None:
    """Wait until every thread is here; the tasks of the next phase count from 0."""
    threads = int_at(sync + at.THREADS)
    if threads == 1:
        tell(sync + at.NEXT, 0)
        return
    generation = look(sync + at.GENERATION)
    if claim(sync + at.ARRIVED) == threads - 1:
        tell(sync + at.ARRIVED, 0)
        tell(sync + at.NEXT, 0)
        tell(sync + at.GENERATION, generation + 1)
        return
    spins = 0
    while look(sync + at.GENERATION) == generation:
        breathe(0)
        spins += 1
        if spins % SPINS_TO_YIELD == 0:
            relax(int_at(sync + at.YIELD))


# --- linears


@compiled
def record_bytes(linear: int) -> int:
    return RECORD8 if int_at(linear + at.BITS) == 8 else RECORD4


@compiled
def block_times_rows(linear: int, block: int, quantised: int, rows: int, out: int) -> None:
    """[rows, 32] float32 of one block, with its bias, at `out`."""
    bits, groups = int_at(linear + at.BITS), int_at(linear + at.GROUPS)
    weight = int_at(linear + at.WEIGHT) + block * groups * record_bytes(linear)
    x, scales = int_at(quantised + at.Q_BYTES), int_at(quantised + at.Q_SCALES)
    corrections, row_groups = int_at(quantised + at.Q_CORRECTIONS), int_at(quantised + at.Q_GROUPS)
    x_stride, s_stride = row_groups * GROUP, row_groups * 4
    for row in range(0, rows, STEP):
        some, place = min(STEP, rows - row), out + row * 128
        x_row, scales_row, corrections_row = x + row * x_stride, scales + row * s_stride, corrections + row * s_stride
        # Bytes are read 6 to 8 % faster for two rows than for one; the row too many is an old one, and not looked at.
        if bits == 8:
            int8(some + some % 2, weight, groups, x_row, scales_row, corrections_row, x_stride, s_stride, place, 128)
        else:
            int4(some, weight, groups, x_row, scales_row, corrections_row, x_stride, s_stride, place, 128)
    bias = int_at(linear + at.BIAS)
    if bias != 0:
        first, second = load16(bias + block * 128), load16(bias + block * 128 + 64)
        for row in range(rows):
            place = out + row * 128
            store16(place, load16(place) + first)
            store16(place + 64, load16(place + 64) + second)


@compiled
def blocks_per_task(sync: int, linear: int, multiple: int) -> int:
    """Blocks of one task, a multiple of `multiple`: some tasks for every thread, none too large or too small."""
    bytes_ = int_at(linear + at.GROUPS) * record_bytes(linear) * multiple
    share = int_at(linear + at.BLOCKS) // (multiple * TASKS_PER_THREAD * int_at(sync + at.THREADS))
    return multiple * max(1, LEAST_TASK_BYTES // bytes_, min(share, MOST_TASK_BYTES // bytes_))


@compiled
def linear_phase(sync: int, linear: int, quantised: int, rows: int, out: int, stride: int, own: int) -> None:
    """[rows, outputs] at `out`."""
    blocks, some = int_at(linear + at.BLOCKS), blocks_per_task(sync, linear, 1)
    task = claim(sync + at.NEXT)
    while task * some < blocks:
        for block in range(task * some, min(blocks, task * some + some)):
            block_times_rows(linear, block, quantised, rows, own)
            for row in range(rows):
                place, new = out + row * stride + block * 128, own + row * 128
                store16(place, load16(new))
                store16(place + 64, load16(new + 64))
        task = claim(sync + at.NEXT)
    barrier(sync)


@compiled
def added_phase(sync: int, linear: int, quantised: int, rows: int, x: int, stride: int, own: int) -> None:
    """Adds [rows, outputs] to the residual stream at `x`."""
    blocks, some = int_at(linear + at.BLOCKS), blocks_per_task(sync, linear, 1)
    task = claim(sync + at.NEXT)
    while task * some < blocks:
        for block in range(task * some, min(blocks, task * some + some)):
            block_times_rows(linear, block, quantised, rows, own)
            for row in range(rows):
                place, new = x + row * stride + block * 128, own + row * 128
                store16(place, load16(place) + load16(new))
                store16(place + 64, load16(place + 64) + load16(new + 64))
        task = claim(sync + at.NEXT)
    barrier(sync)


@compiled
def gated(pair: int) -> Vector:
    """silu(gate) · up of sixteen channels whose gate and up stand side by side."""
    gate, up = load16(pair), load16(pair + 64)
    return gate / (splat16(F32(1)) + exp16(splat16(F32(0)) - gate)) * up


@compiled
def gate_phase(sync: int, linear: int, quantised: int, rows: int, gated_rows: int, own: int) -> None:
    """The gated channels, quantised at once: four blocks make one group."""
    blocks, some = int_at(linear + at.BLOCKS), blocks_per_task(sync, linear, 4)
    task = claim(sync + at.NEXT)
    while task * some < blocks:
        for first in range(task * some, min(blocks, task * some + some), 4):
            for i in range(4):
                block_times_rows(linear, first + i, quantised, rows, own + i * at.MAX_ROWS * 128)
            for row in range(rows):
                pair = own + row * 128
                step = at.MAX_ROWS * 128
                quantise(
                    gated_rows,
                    row,
                    first // 4,
                    gated(pair),
                    gated(pair + step),
                    gated(pair + 2 * step),
                    gated(pair + 3 * step),
                )
        task = claim(sync + at.NEXT)
    barrier(sync)


# --- rows


@compiled
def quantise(quantised: int, row: int, group: int, a: Vector, b: Vector, c: Vector, d: Vector) -> None:
    """64 floats to bytes, their scale and the correction that unsigned weights need. Not a number stays none."""
    groups = int_at(quantised + at.Q_GROUPS)
    place = row * groups + group
    top = greatest16(greater16(greater16(size16(a), size16(b)), greater16(size16(c), size16(d))))
    inverse = splat16(F32(127) / top if top > F32(0) else F32(0))
    out = int_at(quantised + at.Q_BYTES) + place * GROUP
    total = store_bytes16(out, a * inverse) + store_bytes16(out + 16, b * inverse)
    total += store_bytes16(out + 32, c * inverse) + store_bytes16(out + 48, d * inverse)
    put_float(int_at(quantised + at.Q_SCALES) + place * 4, top / F32(127))
    put_int32(int_at(quantised + at.Q_CORRECTIONS) + place * 4, -128 * total)


@compiled
def quantise_row(quantised: int, row: int, x: int, groups: int) -> None:
    for group in range(groups):
        place = x + group * 256
        quantise(quantised, row, group, load16(place), load16(place + 64), load16(place + 128), load16(place + 192))


@compiled
def inverse_rms(x: int, vectors: int, inverse_size: float, epsilon: float) -> F32:
    """One over the root of the mean square."""
    total = splat16(F32(0))
    for i in range(vectors):
        value = load16(x + 64 * i)
        total = fma16(value, value, total)
    return F32(1) / F32(math.sqrt(total16(total) * inverse_size + epsilon))


@compiled
def norm_row(model: int, quantised: int, row: int, x: int, weight: int) -> None:
    hidden, constants = int_at(model + at.HIDDEN), int_at(model + at.CONSTANTS)
    scale = splat16(inverse_rms(x, hidden // 16, float_at(constants + 4), float_at(constants)))
    for group in range(hidden // GROUP):
        place, factor = x + group * 256, weight + group * 256
        a, b = load16(place) * scale * load16(factor), load16(place + 64) * scale * load16(factor + 64)
        c, d = load16(place + 128) * scale * load16(factor + 128), load16(place + 192) * scale * load16(factor + 192)
        quantise(quantised, row, group, a, b, c, d)


@compiled
def norm_phase(sync: int, model: int, weight: int, x: int, rows: int) -> None:
    hidden = int_at(model + at.HIDDEN)
    row = claim(sync + at.NEXT)
    while row < rows:
        norm_row(model, model + at.NARROW, row, x + row * hidden * 4, weight)
        row = claim(sync + at.NEXT)
    barrier(sync)


@compiled
def embed_row(model: int, token: int, x: int) -> None:
    """One output of the embedding's blocks, as float32."""
    linear = model + at.EMBEDDING
    groups, place = int_at(linear + at.GROUPS), token % OUTPUTS
    record = int_at(linear + at.WEIGHT) + token // OUTPUTS * groups * RECORD8
    first = SCALE_BYTES + place // 16 * 64 + place % 16 * 4
    for group in range(groups):
        scale = word_at(record + 2 * place)
        for i in range(GROUP):
            code = byte_at(record + first + i // 4 * 128 + i % 4)
            put_float(x + (group * GROUP + i) * 4, F32(code - 128) * scale)
        record += RECORD8


@compiled
def copy_row(source: int, target: int, vectors: int) -> None:
    for i in range(vectors):
        store16(target + 64 * i, load16(source + 64 * i))


@compiled
def start_phase(sync: int, job: int, model: int, x: int) -> None:
    """Rows handed in are copied to the front of the stream, the others embedded."""
    hidden, rows, done = int_at(model + at.HIDDEN), int_at(job + at.ROWS), int_at(job + at.DONE)
    row = claim(sync + at.NEXT)
    while row < rows:
        place = x + row * hidden * 4
        if row < done:
            copy_row(int_at(job + at.STATES) + row * hidden * 4, place, hidden // 16)
        else:
            embed_row(model, int_at(int_at(job + at.IDS) + row * 8), place)
        row = claim(sync + at.NEXT)
    barrier(sync)


# --- attention


@compiled
def rotate(x: int, cos: int, sin: int, size: int) -> None:
    """Rotary embedding in place; the sine carries the sign."""
    half = size // 2
    if half % 16 == 0:
        for i in range(0, half * 4, 64):
            low, high = load16(x + i), load16(x + half * 4 + i)
            store16(x + i, fma16(low, load16(cos + i), high * load16(sin + i)))
            store16(x + half * 4 + i, fma16(high, load16(cos + half * 4 + i), low * load16(sin + half * 4 + i)))
    else:
        for i in range(0, half * 4, 4):
            first, second = float_at(x + i), float_at(x + half * 4 + i)
            put_float(x + i, first * float_at(cos + i) + second * float_at(sin + i))
            other = half * 4 + i
            put_float(x + other, second * float_at(cos + other) + first * float_at(sin + other))


@compiled
def turn(model: int, x: int, norm: int, position: int) -> None:
    """A head's norm, if it has one, and its rotation, in place."""
    size, wide, constants = int_at(model + at.HEAD_DIM), int_at(model + at.HEAD_PADDED), int_at(model + at.CONSTANTS)
    if norm != 0:
        scale = splat16(inverse_rms(x, wide // 16, float_at(constants + 8), float_at(constants)))
        for i in range(0, wide * 4, 64):
            store16(x + i, load16(x + i) * scale * load16(norm + i))
    rotate(x, int_at(model + at.COS) + position * size * 4, int_at(model + at.SIN) + position * size * 4, size)


@compiled
def place_row(model: int, layer: int, row: int, position: int, head: int) -> None:
    """One row's queries of a group turned and scaled; its key and value into the cache."""
    wide, heads, kv_heads = (
        int_at(model + at.HEAD_PADDED),
        int_at(model + at.NUM_HEADS),
        int_at(model + at.NUM_KV_HEADS),
    )
    group, context = heads // kv_heads, int_at(model + at.CONTEXT)
    mixed = int_at(model + at.MIXED) + row * int_at(model + at.MIXED_STRIDE)
    scale = splat16(float_at(int_at(model + at.CONSTANTS) + 12))
    queries = int_at(model + at.QUERIES) + (head * at.MAX_ROWS + row) * group * wide * 4
    for i in range(group):
        query = mixed + (head * group + i) * wide * 4
        turn(model, query, int_at(layer + at.Q_NORM), position)
        for j in range(0, wide * 4, 64):
            store16(queries + i * wide * 4 + j, load16(query + j) * scale)
    key, value = mixed + (heads + head) * wide * 4, mixed + (heads + kv_heads + head) * wide * 4
    turn(model, key, int_at(layer + at.K_NORM), position)
    keys = int_at(layer + at.KEYS) + (head * context + position // 16 * 16) * wide * 2 + position % 16 * 2
    for i in range(wide):
        put_half(keys + 32 * i, float_at(key + 4 * i))
    values = int_at(layer + at.VALUES) + (head * context + position) * wide * 2
    for i in range(0, wide, 16):
        store_halves16(values + 2 * i, load16(value + 4 * i))


@compiled
def place_phase(sync: int, model: int, layer: int, rows: int, position: int) -> None:
    kv_heads = int_at(model + at.NUM_KV_HEADS)
    task = claim(sync + at.NEXT)
    while task < rows * kv_heads:
        row = task // kv_heads
        place_row(model, layer, row, position + row, task % kv_heads)
        task = claim(sync + at.NEXT)
    barrier(sync)


@compiled
def score_blocks(keys: int, queries: int, count: int, wide: int, out: int) -> None:
    """[count, 32] scores against two blocks; a query's scores of a chunk stand CHUNK floats apart."""
    for done in range(0, count, MOST_QUERIES):
        some, stride = min(MOST_QUERIES, count - done), at.CHUNK * 4
        scores(some, keys, queries + done * wide * 4, wide * 4, wide, out + done * stride, stride)


@compiled
def weigh(scores: int, blocks: int, first: int, last: int, start: int, state: int, sums: int, wide: int) -> None:
    """One query's scores of a chunk to weights e^(score - greatest so far); what it has summed is scaled to match."""
    best = splat16(HIDDEN_SCORE)
    if first > start or last < start + 16 * blocks - 1:
        for i in range(blocks):
            score, place = load16(scores + 64 * i), start + 16 * i
            store16(scores + 64 * i, seen16(score, splat16(HIDDEN_SCORE), first - place, last - place))
    for i in range(blocks):
        best = greater16(best, load16(scores + 64 * i))
    before = load16(state)
    after = greater16(before, splat16(greatest16(best)))
    scale, total = exp16(before - after), splat16(F32(0))
    for i in range(blocks):
        weight = exp16(load16(scores + 64 * i) - after)
        store16(scores + 64 * i, weight)
        total = total + weight
    store16(state, after)
    store16(state + 64, fma16(load16(state + 64), scale, splat16(total16(total))))
    for i in range(0, wide * 4, 64):
        store16(sums + i, load16(sums + i) * scale)


@compiled
def mix_chunk(values: int, weights: int, positions: int, count: int, sums: int, stride: int, wide: int) -> None:
    """Adds the chunk's values by the queries' weights."""
    for done in range(0, count, MOST_QUERIES):
        some, weight, total = min(MOST_QUERIES, count - done), weights + done * at.CHUNK * 4, sums + done * stride
        channel = 0
        while channel < wide:
            value, out = values + channel * 2, total + channel * 4
            if wide - channel >= 64:
                mix_4(some, value, wide * 2, weight, at.CHUNK * 4, positions, out, stride)
                channel += 64
            else:
                mix_1(some, value, wide * 2, weight, at.CHUNK * 4, positions, out, stride)
                channel += 16


@compiled
def attend(model: int, layer: int, head: int, segment: int, first_row: int, rows: int, position: int, own: int) -> None:
    """A segment's share of what `rows` rows of one key head attend to: sums, greatest score and total weight."""
    wide, context = int_at(model + at.HEAD_PADDED), int_at(model + at.CONTEXT)
    kv_heads = int_at(model + at.NUM_KV_HEADS)
    group, window = int_at(model + at.NUM_HEADS) // kv_heads, int_at(layer + at.WINDOW)
    stride, count = (wide + 2 * at.STATE_FLOATS) * 4, rows * group
    queries = int_at(model + at.QUERIES) + (head * at.MAX_ROWS + first_row) * group * wide * 4
    partial = int_at(model + at.PARTIAL) + ((segment * kv_heads + head) * at.MAX_ROWS + first_row) * group * stride
    for n in range(count):
        for i in range(0, wide * 4, 64):
            store16(partial + n * stride + i, splat16(F32(0)))
        store16(partial + n * stride + wide * 4, splat16(HIDDEN_SCORE))
        store16(partial + n * stride + wide * 4 + 64, splat16(F32(0)))
    end = min((segment + 1) * at.SEGMENT, position + first_row + rows)
    start = segment * at.SEGMENT
    if window != 0:
        start = max(start, (position + first_row - window + 1) // at.CHUNK * at.CHUNK)
    while start < end:
        blocks = (min(at.CHUNK, end - start) + 31) // 32 * 2
        keys = int_at(layer + at.KEYS) + (head * context + start) * wide * 2
        for i in range(0, blocks, 2):
            score_blocks(keys + i * wide * 32, queries, count, wide, own + i * 64)
        for n in range(count):
            last = position + first_row + n // group
            first = max(0, last - window + 1) if window != 0 else 0
            sums = partial + n * stride
            weigh(own + n * at.CHUNK * 4, blocks, first, last, start, sums + wide * 4, sums, wide)
        values = int_at(layer + at.VALUES) + (head * context + start) * wide * 2
        # Only what is written: past it may lie a failed draft's NaN, and 0 · NaN is NaN.
        mix_chunk(values, own, min(at.CHUNK, end - start), count, partial, stride, wide)
        start += at.CHUNK


@compiled
def tile_rows(model: int) -> int:
    return max(1, at.TILE_QUERIES * int_at(model + at.NUM_KV_HEADS) // int_at(model + at.NUM_HEADS))


@compiled
def first_segment(window: int, position: int) -> int:
    return max(0, position - window + 1) // at.SEGMENT if window != 0 else 0


@compiled
def attention_phase(sync: int, model: int, layer: int, rows: int, position: int, own: int) -> None:
    kv_heads, some = int_at(model + at.NUM_KV_HEADS), tile_rows(model)
    tiles = (rows + some - 1) // some
    begin = first_segment(int_at(layer + at.WINDOW), position)
    segments = (position + rows - 1) // at.SEGMENT + 1 - begin
    task = claim(sync + at.NEXT)
    while task < kv_heads * tiles * segments:
        head, rest = task % kv_heads, task // kv_heads
        first = rest % tiles * some
        attend(model, layer, head, begin + rest // tiles, first, min(some, rows - first), position, own)
        task = claim(sync + at.NEXT)
    barrier(sync)


@compiled
def merge_head(partial: int, step: int, segments: int, wide: int, out: int) -> None:
    """One query's segments, weighed against each other: [head_dim] at `out`."""
    best = splat16(HIDDEN_SCORE)
    for i in range(segments):
        best = greater16(best, load16(partial + i * step + wide * 4))
    total = splat16(F32(0))
    for i in range(0, wide * 4, 64):
        store16(out + i, splat16(F32(0)))
    for i in range(segments):
        share = partial + i * step
        scale = exp16(load16(share + wide * 4) - best)
        total = fma16(load16(share + wide * 4 + 64), scale, total)
        for j in range(0, wide * 4, 64):
            store16(out + j, fma16(load16(share + j), scale, load16(out + j)))
    for i in range(0, wide * 4, 64):
        store16(out + i, load16(out + i) / total)


@compiled
def merge_row(model: int, layer: int, row: int, position: int, first_position: int) -> None:
    """A row's attention, over all heads and segments, quantised for the output projection."""
    wide, heads, kv_heads = (
        int_at(model + at.HEAD_PADDED),
        int_at(model + at.NUM_HEADS),
        int_at(model + at.NUM_KV_HEADS),
    )
    group, groups = heads // kv_heads, int_at(layer + at.OUTPUT + at.GROUPS)
    stride = (wide + 2 * at.STATE_FLOATS) * 4
    out = int_at(model + at.MIXED) + row * int_at(model + at.MIXED_STRIDE)
    begin = first_segment(int_at(layer + at.WINDOW), first_position)
    segments = position // at.SEGMENT + 1 - begin
    for head in range(heads):
        place = ((begin * kv_heads + head // group) * at.MAX_ROWS + row) * group + head % group
        partial = int_at(model + at.PARTIAL) + place * stride
        merge_head(partial, kv_heads * at.MAX_ROWS * group * stride, segments, wide, out + head * wide * 4)
    for i in range(heads * wide * 4, groups * GROUP * 4, 64):
        store16(out + i, splat16(F32(0)))
    quantise_row(model + at.NARROW, row, out, groups)


@compiled
def merge_phase(sync: int, model: int, layer: int, rows: int, position: int) -> None:
    row = claim(sync + at.NEXT)
    while row < rows:
        merge_row(model, layer, row, position + row, position)
        row = claim(sync + at.NEXT)
    barrier(sync)


# --- the whole


@compiled
def run_layer(sync: int, model: int, layer: int, x: int, rows: int, position: int, own: int) -> None:
    hidden = int_at(model + at.HIDDEN)
    narrow, mixed = model + at.NARROW, int_at(model + at.MIXED)
    norm_phase(sync, model, int_at(layer + at.ATTENTION_NORM), x, rows)
    linear_phase(sync, layer + at.QKV, narrow, rows, mixed, int_at(model + at.MIXED_STRIDE), own)
    place_phase(sync, model, layer, rows, position)
    attention_phase(sync, model, layer, rows, position, own)
    merge_phase(sync, model, layer, rows, position)
    added_phase(sync, layer + at.OUTPUT, narrow, rows, x, hidden * 4, own)
    norm_phase(sync, model, int_at(layer + at.MLP_NORM), x, rows)
    gate_phase(sync, layer + at.GATE_UP, narrow, rows, model + at.WIDE, own)
    added_phase(sync, layer + at.DOWN, model + at.WIDE, rows, x, hidden * 4, own)


@compiled
def run_layers(sync: int, model: int, first: int, last: int, x: int, rows: int, position: int, own: int) -> None:
    if rows > 0:
        for index in range(first, last):
            layer = int_at(model + at.LAYERS) + index * at.LAYER_BYTES
            run_layer(sync, model, layer, x, rows, position, own)


@compiled
def head_phase(sync: int, model: int, x: int, rows: int, logits: int, own: int) -> None:
    norm_phase(sync, model, int_at(model + at.FINAL_NORM), x, rows)
    stride = int_at(model + at.HEAD + at.BLOCKS) * 128
    linear_phase(sync, model + at.HEAD, model + at.NARROW, rows, logits, stride, own)


@compiled
def forward(sync: int, job: int, thread: int) -> None:
    """One pass, run by every thread alike: rows through the layers below the exit, all of them through the others."""
    model = int_at(job + at.MODEL)
    x, hidden = int_at(model + at.STREAM), int_at(model + at.HIDDEN)
    own = int_at(model + at.OWN) + thread * int_at(model + at.OWN_BYTES)
    rows, done, leave = int_at(job + at.ROWS), int_at(job + at.DONE), int_at(job + at.EXIT)
    position, first = int_at(job + at.POSITION), int_at(job + at.HEAD_FROM)
    start_phase(sync, job, model, x)
    run_layers(sync, model, 0, leave, x + done * hidden * 4, rows - done, position + done, own)
    run_layers(sync, model, leave, int_at(job + at.LAST), x, rows, position, own)
    states = int_at(job + at.STATES_OUT)
    if states != 0 and thread == 0:
        copy_row(x, states, rows * hidden // 16)
    if first < rows:
        head_phase(sync, model, x + first * hidden * 4, rows - first, int_at(job + at.LOGITS), own)


@compiled
def serve(sync: int, job: int, thread: int, seen: int) -> int:
    """A worker: every new job is run; returns the last one's number when none has come for a while."""
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
    """A new job is there: the workers that must be woken, one bit each."""
    parked = 0
    tell(sync + at.GO, int_at(sync + at.GO) + 1)
    for thread in range(1, int_at(sync + at.THREADS)):
        if exchange(sync + at.STATE + 64 * thread, at.ACTIVE) == at.PARKED:
            parked |= 1 << thread
    return parked


@compiled
def enter(what: int, sync: int, job: int, thread: int, seen: int) -> int:
    """The one door: 0 runs a job, 1 serves until told otherwise, 2 summons the workers."""
    if what == 0:
        forward(sync, job, thread)
        tell(sync + at.FINISHED, int_at(sync + at.GO))
        return 0
    return serve(sync, job, thread, seen) if what == 1 else summon(sync)
