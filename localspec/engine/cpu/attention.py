"""Attention of the compiled forward: rotary embedding, the KV cache, and softmax over segments, batch-invariant.

A task is one key head, some rows and one segment; segments are merged afterwards. Masked scores have a weight of
exactly 0, so a row has the same bits whatever other rows are computed with it. Online softmax: arXiv 1805.02867.
"""

from __future__ import annotations

import numpy as np

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.barrier import barrier
from localspec.engine.cpu.formats import GROUP
from localspec.engine.cpu.kernels import MOST_QUERIES
from localspec.engine.cpu.lang import (
    claim,
    compiled,
    exp16,
    float_at,
    fma16,
    greater16,
    greatest16,
    inner,
    int_at,
    load16,
    put_float,
    put_half,
    seen16,
    splat16,
    store16,
    store_halves16,
    total16,
)
from localspec.engine.cpu.rows import inverse_rms, quantise_row

F32 = np.float32
HIDDEN_SCORE = F32(-1e30)

scores, mix_1, mix_4 = inner("scores", 7), inner("mix_1", 8), inner("mix_4", 8)


@compiled
def rotate(x: int, cos: int, sin: int, size: int) -> None:
    """Applies the rotary embedding in place; the sine carries the sign."""
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
def norm_and_rotate(model: int, x: int, norm: int, position: int) -> None:
    """Applies a head's norm, if it has one, and the rotary embedding, in place."""
    size, wide, constants = int_at(model + at.HEAD_DIM), int_at(model + at.HEAD_PADDED), int_at(model + at.CONSTANTS)
    if norm != 0:
        scale = splat16(inverse_rms(x, wide // 16, float_at(constants + 8), float_at(constants)))
        for i in range(0, wide * 4, 64):
            store16(x + i, load16(x + i) * scale * load16(norm + i))
    rotate(x, int_at(model + at.COS) + position * size * 4, int_at(model + at.SIN) + position * size * 4, size)


@compiled
def span_of(spans: int, row: int) -> int:
    """The span that a row is in."""
    while row < int_at(spans + at.FIRST) or row >= int_at(spans + at.FIRST) + int_at(spans + at.COUNT):
        spans += at.SPAN_BYTES
    return spans


@compiled
def position_of(span: int, row: int) -> int:
    return int_at(span + at.POSITION) + row - int_at(span + at.FIRST)


@compiled
def cache_row(model: int, layer: int, cache: int, row: int, position: int, head: int) -> None:
    """Rotates and scales one row's queries of a group; writes its key and value into the cache."""
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
        norm_and_rotate(model, query, int_at(layer + at.Q_NORM), position)
        for j in range(0, wide * 4, 64):
            store16(queries + i * wide * 4 + j, load16(query + j) * scale)
    key, value = mixed + (heads + head) * wide * 4, mixed + (heads + kv_heads + head) * wide * 4
    norm_and_rotate(model, key, int_at(layer + at.K_NORM), position)
    keys = cache + int_at(layer + at.KEYS) + (head * context + position // 16 * 16) * wide * 2 + position % 16 * 2
    for i in range(wide):
        put_half(keys + 32 * i, float_at(key + 4 * i))
    values = cache + int_at(layer + at.VALUES) + (head * context + position) * wide * 2
    for i in range(0, wide, 16):
        store_halves16(values + 2 * i, load16(value + 4 * i))


@compiled
def cache_phase(sync: int, model: int, layer: int, rows: int, spans: int) -> None:
    kv_heads = int_at(model + at.NUM_KV_HEADS)
    task = claim(sync + at.NEXT, 1)
    while task < rows * kv_heads:
        row = task // kv_heads
        span = span_of(spans, row)
        cache_row(model, layer, int_at(span + at.CACHE), row, position_of(span, row), task % kv_heads)
        task = claim(sync + at.NEXT, 1)
    barrier(sync)


@compiled
def score_blocks(keys: int, queries: int, count: int, wide: int, out: int) -> None:
    """Computes scores [count, 32] against two blocks; the scores of two queries are CHUNK floats apart."""
    for done in range(0, count, MOST_QUERIES):
        some, stride = min(MOST_QUERIES, count - done), at.CHUNK * 4
        scores(some, keys, queries + done * wide * 4, wide * 4, wide, out + done * stride, stride)


@compiled
def weigh(scores: int, blocks: int, first: int, last: int, start: int, state: int, sums: int, wide: int) -> None:
    """Turns one query's scores of a chunk into weights e^(score - greatest so far), and rescales its sums to match."""
    best = splat16(HIDDEN_SCORE)
    if first > start or last < start + 16 * blocks - 1:
        for i in range(blocks):
            score, block_start = load16(scores + 64 * i), start + 16 * i
            store16(scores + 64 * i, seen16(score, splat16(HIDDEN_SCORE), first - block_start, last - block_start))
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
    """Adds the chunk's values, weighted, to the queries' sums."""
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
def attend(
    model: int, layer: int, cache: int, head: int, segment: int, first_row: int, rows: int, position: int, own: int
) -> None:
    """Computes a segment's partial attention of `rows` rows of one key head, the first at `position`: sums, greatest
    score, total weight."""
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
    end = min((segment + 1) * at.SEGMENT, position + rows)
    start = segment * at.SEGMENT
    if window != 0:
        start = max(start, (position - window + 1) // at.CHUNK * at.CHUNK)
    while start < end:
        blocks = (min(at.CHUNK, end - start) + 31) // 32 * 2
        keys = cache + int_at(layer + at.KEYS) + (head * context + start) * wide * 2
        for i in range(0, blocks, 2):
            score_blocks(keys + i * wide * 32, queries, count, wide, own + i * 64)
        for n in range(count):
            last = position + n // group
            first = max(0, last - window + 1) if window != 0 else 0
            sums = partial + n * stride
            weigh(own + n * at.CHUNK * 4, blocks, first, last, start, sums + wide * 4, sums, wide)
        values = cache + int_at(layer + at.VALUES) + (head * context + start) * wide * 2
        # Only written positions: past them may be a failed draft's NaN, and 0 · NaN is NaN.
        mix_chunk(values, own, min(at.CHUNK, end - start), count, partial, stride, wide)
        start += at.CHUNK


@compiled
def tile_rows(model: int, rows: int, segments: int, threads: int) -> int:
    """The rows of one task: few enough for all threads to end at much the same time, and for a thread's buffer."""
    heads, kv_heads = int_at(model + at.NUM_HEADS), int_at(model + at.NUM_KV_HEADS)
    fair, most = rows * kv_heads * segments // (at.THREAD_TASKS * threads), at.TILE_QUERIES * kv_heads // heads
    return max(1, min(fair, most))


@compiled
def first_segment(window: int, position: int) -> int:
    return max(0, position - window + 1) // at.SEGMENT if window != 0 else 0


@compiled
def attention_phase(sync: int, model: int, layer: int, spans: int, end: int, own: int) -> None:
    kv_heads, window, threads = int_at(model + at.NUM_KV_HEADS), int_at(layer + at.WINDOW), int_at(sync + at.THREADS)
    span, before = spans, 0  # the tasks of the spans before this one
    task = claim(sync + at.NEXT, 1)
    while span < end:
        rows, position = int_at(span + at.COUNT), int_at(span + at.POSITION)
        begin = first_segment(window, position)
        segments = (position + rows - 1) // at.SEGMENT + 1 - begin
        some = tile_rows(model, rows, segments, threads)
        tiles = (rows + some - 1) // some
        tasks = kv_heads * tiles * segments
        if task < before + tasks:
            head, rest = (task - before) % kv_heads, (task - before) // kv_heads
            row, cache, first_row = rest % tiles * some, int_at(span + at.CACHE), int_at(span + at.FIRST)
            count, segment = min(some, rows - row), begin + rest // tiles
            attend(model, layer, cache, head, segment, first_row + row, count, position + row, own)
            task = claim(sync + at.NEXT, 1)
        else:
            before += tasks
            span += at.SPAN_BYTES
    barrier(sync)


@compiled
def merge_head(partial: int, step: int, segments: int, wide: int, out: int) -> None:
    """Merges one query's segments by their weights: [head_dim] at `out`."""
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
    """Merges a row's attention over all heads and segments, and quantises it for the output projection."""
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
        index = ((begin * kv_heads + head // group) * at.MAX_ROWS + row) * group + head % group
        partial = int_at(model + at.PARTIAL) + index * stride
        merge_head(partial, kv_heads * at.MAX_ROWS * group * stride, segments, wide, out + head * wide * 4)
    for i in range(heads * wide * 4, groups * GROUP * 4, 64):
        store16(out + i, splat16(F32(0)))
    quantise_row(model + at.NARROW, row, out, groups)


@compiled
def merge_phase(sync: int, model: int, layer: int, rows: int, spans: int) -> None:
    row = claim(sync + at.NEXT, 1)
    while row < rows:
        span = span_of(spans, row)
        merge_row(model, layer, row, position_of(span, row), int_at(span + at.POSITION))
        row = claim(sync + at.NEXT, 1)
    barrier(sync)
