"""Weights and the files that hold them: broken, hostile, of another kind than they should be, or not there."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import torch

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT
from tests.attacks.attack import Attack, Attacks, harmless, refused
from tests.attacks.spoiling import (
    INDEX,
    SHARDS,
    SINGLE,
    all_as,
    all_at,
    both,
    entry_of,
    gone,
    header,
    instead,
    link,
    listening,
    moved_away,
    one_added,
    one_at,
    one_changed,
    one_gone,
    rewritten,
    sharded,
    sparse,
    unchanged,
    written,
)

MODEL, FILE, AT_INDEX = "{0}/model", f"{{0}}/{SINGLE}", f"{{0}}/{INDEX}"
HEAD, NORM = "model.embed_tokens.weight", "model.norm.weight"
UP, DOWN = "model.layers.1.mlp.up_proj.weight", "model.layers.3.mlp.down_proj.weight"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 135\n"
FETCH = "Download the model again."
FP32 = ("--quant", "fp32")


class Runs:
    """What a pickle may do to whoever opens it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/localspec-was-attacked",)


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("archive/data.pkl", pickle.dumps(Runs()))
    return file.getvalue()


def many(count: int) -> bytes:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({f"t{number}": empty for number in range(count)}).encode()
    return struct.pack("<Q", len(text)) + text


FILES: Attacks = {
    **harmless({"nothing is wrong": unchanged, "a link to the weights": moved_away(SINGLE), "two shards": sharded()}),
    **refused(
        FILE,
        {
            "weights of no bytes": (written(SINGLE, ""), " is empty."),
            "weights of seven bytes": (written(SINGLE, b"\x01" * 7), " is cut short (has 7 of 8 bytes)."),
            "weights cut in half": (
                rewritten(SINGLE, lambda raw: raw[: len(raw) // 2]),
                " is cut short (has 89,864 of 179,728 bytes).",
            ),
            "weights cut by a byte": (
                rewritten(SINGLE, lambda raw: raw[:-1]),
                " is cut short (has 179,727 of 179,728 bytes).",
            ),
            "weights with a byte more": (
                rewritten(SINGLE, lambda raw: raw + b"\0"),
                " has bytes after its last tensor (a size of 179,729 instead of 179,728).",
            ),
            "weights with 100 GB of nothing behind": (
                sparse(SINGLE, 100 << 30),
                " has bytes after its last tensor (a size of 107,374,182,400 instead of 179,728).",
            ),
        },
    ),
    **refused(
        f"{FILE} cannot be read ",
        {
            "a folder for weights": (instead(SINGLE, Path.mkdir), "(it is not a file)."),
            "a fifo for weights": (instead(SINGLE, os.mkfifo), "(it is not a file)."),
            "a socket for weights": (instead(SINGLE, listening), "(it is not a file)."),
            "zeros without end for weights": (instead(SINGLE, link("/dev/zero")), "(it is not a file)."),
            "a link to itself for weights": (
                instead(SINGLE, link("model.safetensors")),
                "(Too many levels of symbolic links).",
            ),
            "a link to nowhere for weights": (instead(SINGLE, link("../elsewhere")), "(No such file or directory)."),
        },
    ),
    **refused(
        f"{FILE} is not a safetensors file (it claims a header of ",
        {
            "a link to secrets for weights": (instead(SINGLE, link("/etc/passwd")), "… bytes)."),
            "a pickle named safetensors": (written(SINGLE, pickle.dumps(Runs())), "… bytes)."),
            "a zip named safetensors": (written(SINGLE, archive()), "… bytes)."),
            "weights in gzip": (rewritten(SINGLE, gzip.compress), "… bytes)."),
            "a page of the web for weights": (written(SINGLE, "<!DOCTYPE html><title>404</title>"), "… bytes)."),
            "a header of 2^63 bytes": (
                written(SINGLE, struct.pack("<Q", 1 << 63) + b"{}"),
                "9,223,372,036,854,775,808 bytes).",
            ),
        },
    ),
    **refused(
        f"{FILE} is a Git LFS pointer, ",
        {"a pointer of Git LFS for weights": (written(SINGLE, POINTER), "not the weights.")},
        hint="Run: git lfs pull",
    ),
    **refused(
        "Model 'model' has ",
        {
            "no weights": (gone(SINGLE), f"no weights (no model.safetensors in {MODEL})."),
            "two files and no index": (
                both(sharded(), gone(INDEX)),
                "2 safetensors files and no model.safetensors.index.json.",
            ),
        },
    ),
    **refused(
        "Model 'model' has only pickle weights (pytorch_model.bin), ",
        {
            "a pickle beside no weights": (
                both(gone(SINGLE), written("model/pytorch_model.bin", pickle.dumps(Runs()))),
                "which localspec does not load.",
            )
        },
        hint="Choose a copy of the model in safetensors.",
    ),
}
HEADERS: Attacks = {
    **refused(
        f"{FILE}: its ",
        {
            "a header that is a list": (header(lambda found: [found]), "header is not a JSON object."),
            "a header nested 100,000 deep": (
                header(lambda _: b"[" * 100_000 + b"]" * 100_000),
                "header is nested too deep.",
            ),
            "a header with a number of 100,000 digits": (
                header(lambda _: b'{"a":' + b"9" * 100_000 + b"}"),
                "header is not valid JSON (a number has 100,000 digits).",
            ),
            "a header that is not UTF-8": (header(lambda _: b'{"\xff": 1}'), "header is not UTF-8 text."),
            "a tensor twice": (
                header(lambda found: json.dumps(found).encode()[:-1] + b', "model.norm.weight": {}}'),
                "header is not valid JSON (the key 'model.norm.weight' appears twice).",
            ),
            "offsets that overlap": (
                header(lambda found: {**found, "again": found[NORM]}),
                "tensors overlap at byte 180,006.",
            ),
            "offsets behind the end": (
                entry_of(NORM, data_offsets=[10**9, 10**9 + 128]),
                "tensors leave a hole at byte 179,938.",
            ),
        },
    ),
    **refused(
        f"{FILE}: tensor ",
        {
            "a dtype that nobody knows": (entry_of(NORM, dtype="F31"), f"'{NORM}' has the unknown dtype 'F31'."),
            "a negative size": (entry_of(NORM, shape=[-32]), f"'{NORM}' has a bad shape."),
            "a thousand dimensions": (entry_of(NORM, shape=[1] * 1000), f"'{NORM}' has a bad shape."),
            "a size that overflows": (
                entry_of(NORM, shape=[1 << 32, 1 << 32]),
                f"'{NORM}' has an impossible shape.",
            ),
            "another size than its bytes": (
                entry_of(NORM, shape=[31]),
                f"'{NORM}' has a shape that does not match its bytes.",
            ),
            "a name of escapes": (
                header(lambda found: {**found, "\x1b]0;mine\x07": {}}),
                r"'\x1b]0;mine\x07' lacks dtype, shape or data_offsets, or has more.",
            ),
        },
    ),
    **refused(
        f"{MODEL}/config.json describes ",
        {"200,000 tensors": (written(SINGLE, many(200_000)), "at least 4,264 bytes of weights, but there are 0.")},
    ),
}
INDICES: Attacks = {
    **refused(
        AT_INDEX,
        {
            "an index that leaves the folder": (
                sharded(lambda found: {**found, NORM: "../../other.safetensors"}),
                " names '../../other.safetensors', which is not a file of this folder.",
            ),
            "an index of nothing": (sharded(lambda _: {}), " has no weight_map."),
            "an index that is a list": (both(sharded(), written(INDEX, "[]")), " is not a JSON object."),
            "an index of 65 MB": (
                both(sharded(), sparse(INDEX, 65 << 20)),
                " is too large (68,157,440 bytes, at most 67,108,864 are read).",
            ),
            "an index of five million lists": (
                both(sharded(), written(INDEX, b'{"a": [' + b"[]," * 5_000_000 + b"1]}")),
                " has too many values (at most 4,000,000 are read).",
            ),
            "a fifo for an index": (both(sharded(), instead(INDEX, os.mkfifo)), " cannot be read (it is not a file)."),
            "a tensor in no shard": (
                sharded(lambda found: {**found, "more": Path(SHARDS[0]).name}),
                " names the tensor 'more', which no shard has.",
            ),
        },
    ),
    **refused(
        "",
        {
            "a fifo for a shard": (
                both(sharded(), instead(SHARDS[1], os.mkfifo)),
                f"{{0}}/{SHARDS[1]} cannot be read (it is not a file).",
            ),
            "a shard that is missing": (both(sharded(), gone(SHARDS[1])), f"The shard {{0}}/{SHARDS[1]} is missing."),
            "a tensor in another shard": (
                sharded(lambda found: {**found, NORM: Path(SHARDS[0]).name}),
                f"{{0}}/{SHARDS[1]}: tensor '{NORM}' is not where model.safetensors.index.json says.",
            ),
        },
    ),
}
WHOLE = {
    "I8": torch.int8,
    "U8": torch.uint8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
}
UNREAD = "and its config does not say how it is read."
KINDS: Attacks = {
    **refused(
        "The checkpoint's ",
        {
            **{f"weights in {kind}": (all_as(made), f"'{HEAD}' is {kind}, {UNREAD}") for kind, made in WHOLE.items()},
            "one tensor in I16": (one_changed(UP, lambda found: found.to(torch.int16)), f"'{UP}' is I16, {UNREAD}"),
            "one tensor in U16": (one_changed(UP, lambda found: found.to(torch.uint16)), f"'{UP}' is U16, {UNREAD}"),
            "a head in I8": (
                one_added("lm_head.weight", torch.ones(405, 32, dtype=torch.int8)),
                f"'lm_head.weight' is I8, {UNREAD}",
            ),
        },
    ),
    **harmless(
        {
            "weights in float16": all_as(torch.float16),
            "weights in bfloat16": all_as(torch.bfloat16),
            "weights in float64": all_as(torch.float64),
            "rope tables that old checkpoints carry": one_added(
                "model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(4)
            ),
        }
    ),
}
NO_NUMBER = "has a weight that is infinite or not a number."
INVALID = "The model produced invalid numbers (NaN or infinity)."
FLAT = (
    "warning: model finds every token equally likely: its weights are all zero, or so large that they overflow. "
    + REPEAT
)
NUMBERS: Attacks = {
    **refused(
        "The checkpoint's ",
        {
            "NaN in a weight": (one_at(DOWN, float("nan")), f"'{DOWN}' {NO_NUMBER}"),
            "infinity in the head": (one_at(HEAD, float("inf")), f"'{HEAD}' {NO_NUMBER}"),
        },
        hint=FETCH,
    ),
    **refused(
        INVALID,
        {"NaN in a weight, in fp32": (one_at(DOWN, float("nan")), "")},
        hint=f"{FETCH[:-1]}, or try another --quant.",
        words=FP32,
    ),
    **refused(
        INVALID,
        {"NaN in a norm, in bf16": (one_at(NORM, float("nan")), "")},
        hint=f"{FETCH[:-1]}, or try another --quant.",
        words=("--quant", "bf16"),
    ),
    "all weights zero": Attack(all_at(0.0), FLAT, 0),
    "all weights zero, in fp32": Attack(all_at(0.0), FLAT, 0, FP32),
    "all weights 3e38": Attack(all_at(3e38), FLAT, 0),
    "all weights 3e38, in fp32": Attack(all_at(3e38), FLAT, 0, FP32),
    "all weights 3e38, in int4": Attack(all_at(3e38), FLAT, 0, ("--quant", "int4")),
}
EXTRA = "model.layers.0.mlp.adapter.weight"
SHAPES: Attacks = refused(
    "The checkpoint has a tensor that its config does not explain: ",
    {"a tensor too many": (one_added(EXTRA, torch.zeros(2, 2)), f"'{EXTRA}'.")},
    hint=CHOOSE_ANOTHER,
) | refused(
    "The checkpoint",
    {
        "a tensor too few": (one_gone(UP), f" has no tensor '{UP}'."),
        "a tensor on its side": (
            one_changed(UP, lambda found: found.t()),
            f"'s '{UP}' is (32, 48), and its config says (48, 32).",
        ),
        "a tensor in one dimension": (
            one_changed(UP, lambda found: found.flatten()),
            f"'s '{UP}' is (1536,), and its config says (48, 32).",
        ),
        "a tensor of no elements": (
            one_changed(UP, lambda found: found[:0]),
            f"'s '{UP}' is (0, 32), and its config says (48, 32).",
        ),
    },
    hint=REPEAT,
)
WEIGHTS: Attacks = {**FILES, **HEADERS, **INDICES, **KINDS, **NUMBERS, **SHAPES}
