"""The attack: somebody publishes a model whose files crash, exhaust, mislead or run code in whoever opens it.

Every file here must end in one CheckpointError that names the file: no other exception, no hang, no allocation.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from localspec.core.errors import CheckpointError
from localspec.core.families import FAMILIES
from localspec.engine.arch import READ, read_arch
from localspec.models.catalog import Entry
from localspec.models.checkpoint import open_snapshot
from localspec.models.prompt_sandbox import opening_of
from localspec.models.sandbox_process import opened
from localspec.runtime.local_models import UNREADABLE, listed_model
from tests.support.tokenizers import CHATML, CONFIG, entry, gpt2_like, safetensors_bytes, tiny_weights, write_snapshot

pytestmark = pytest.mark.heavy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_snapshot(tmp_path / "tiny", tokenizer=gpt2_like(), template=CHATML)


def refusal(folder: Path, file_name: str) -> str:
    """The one sentence that opening the folder ends in."""
    start = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        open_snapshot(folder)
    assert time.process_time() - start < 1
    assert file_name in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 1000
    return caught.value.message


ROW = entry("F32", [4, 4], 0, 64)
WEIGHTS: dict[str, tuple[bytes, str]] = {
    "no bytes at all": (b"", "is empty"),
    "seven bytes": (b"\x01" * 7, "cut short"),
    "a header longer than the file": (struct.pack("<Q", 5000) + b"{}", "cut short"),
    "a header of 2^63 bytes": (struct.pack("<Q", 1 << 63) + b"{}", "claims a header"),
    "a header over 100 MB": (struct.pack("<Q", 100_000_001) + b"{}", "claims a header"),
    "a header that is not UTF-8": (safetensors_bytes(b'{"a\xff": 1}'), "not UTF-8"),
    "a header that is not JSON": (safetensors_bytes(b"{"), "not valid JSON"),
    "a header that is HTML": (safetensors_bytes(b"<html>404</html>"), "not valid JSON"),
    "a header that is a list": (safetensors_bytes(b"[]"), "not a JSON object"),
    "a header of no bytes": (safetensors_bytes(b""), "is empty"),
    "a header nested 100,000 deep": (safetensors_bytes(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested"),
    "a number of 100,000 digits": (safetensors_bytes(b'{"a":' + b"9" * 100_000 + b"}"), "not valid JSON"),
    "the same tensor twice": (safetensors_bytes(b'{"a":{},"a":{}}'), "appears twice"),
    "metadata that is not text": (safetensors_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    "a tensor that is a string": (safetensors_bytes({"a": "F32"}), "lacks dtype"),
    "a tensor without offsets": (safetensors_bytes({"a": {"dtype": "F32", "shape": []}}), "lacks dtype"),
    "a tensor with more fields": (safetensors_bytes({"a": {**ROW, "run": "me"}}, bytes(64)), "or has more"),
    "an unknown dtype": (safetensors_bytes({"a": entry("F99", [4, 4], 0, 64)}, bytes(64)), "unknown dtype"),
    "a dtype that is a list": (safetensors_bytes({"a": {**ROW, "dtype": [1]}}, bytes(64)), "unknown dtype"),
    "a negative size": (safetensors_bytes({"a": entry("F32", [-4, -4], 0, 64)}, bytes(64)), "bad shape"),
    "a size that is not whole": (safetensors_bytes({"a": {**ROW, "shape": [4.0, 4]}}, bytes(64)), "bad shape"),
    "a size that is true": (safetensors_bytes({"a": {**ROW, "shape": [True, 16]}}, bytes(64)), "bad shape"),
    "a shape that overflows to 0": (safetensors_bytes({"a": entry("F32", [1 << 32, 1 << 32], 0, 0)}), "impossible"),
    "a shape that overflows to 16": (
        safetensors_bytes({"a": entry("F32", [(1 << 60) + 1, 1 << 4], 0, 64)}, bytes(64)),
        "impossible",
    ),
    "a thousand dimensions": (safetensors_bytes({"a": entry("F32", [1] * 1000, 0, 4)}, bytes(4)), "bad shape"),
    "negative offsets": (safetensors_bytes({"a": entry("F32", [4, 4], -64, 0)}, bytes(64)), "bad data_offsets"),
    "offsets backwards": (safetensors_bytes({"a": entry("F32", [4, 4], 64, 0)}, bytes(64)), "bad data_offsets"),
    "three offsets": (safetensors_bytes({"a": {**ROW, "data_offsets": [0, 32, 64]}}, bytes(64)), "bad data_offsets"),
    "offsets of 2^70": (safetensors_bytes({"a": entry("F32", [4, 4], 0, 1 << 70)}, bytes(64)), "bad data_offsets"),
    "fewer bytes than the shape": (safetensors_bytes({"a": entry("F32", [4, 5], 0, 64)}, bytes(64)), "does not match"),
    "4-bit numbers that end in half a byte": (
        safetensors_bytes({"a": entry("F4", [3], 0, 1)}, b"\0"),
        "does not match",
    ),
    "tensors that overlap": (safetensors_bytes({"a": ROW, "b": entry("F32", [4, 4], 32, 96)}, bytes(96)), "overlap"),
    "the same bytes twice": (safetensors_bytes({"a": ROW, "b": ROW}, bytes(64)), "overlap"),
    "a hole between tensors": (safetensors_bytes({"a": ROW, "b": entry("U8", [4], 80, 84)}, bytes(84)), "leave a hole"),
    "a hole at the beginning": (safetensors_bytes({"b": entry("U8", [4], 80, 84)}, bytes(84)), "leave a hole"),
    "bytes after the end": (safetensors_bytes({"a": ROW}, bytes(80)), "after its last tensor"),
    "fewer bytes than the tensors": (safetensors_bytes({"a": ROW}, bytes(60)), "cut short"),
}


@pytest.mark.parametrize("story", WEIGHTS)
def test_broken_weights_are_refused_by_name(story: str, folder: Path) -> None:
    raw, reason = WEIGHTS[story]
    (folder / "model.safetensors").write_bytes(raw)
    assert reason in refusal(folder, "model.safetensors")


def test_a_file_with_a_sparse_hundred_gigabytes_is_not_read(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as stream:
        stream.truncate(100 << 30)
    assert "after its last tensor" in refusal(folder, "model.safetensors")


def outcome(folder: Path, raw: bytes) -> str:
    """What opening these weights ends in; anything but a snapshot or a CheckpointError fails the test."""
    (folder / "model.safetensors").write_bytes(raw)
    start = time.process_time()
    try:
        open_snapshot(folder)
    except CheckpointError:
        return "refused"
    finally:
        assert time.process_time() - start < 1
    return "opened"


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_weights_cut_anywhere_are_refused(count: int, folder: Path) -> None:
    whole = tiny_weights()
    cuts = [at * len(whole) // count for at in range(count)]
    assert {outcome(folder, whole[:cut]) for cut in cuts} == {"refused"}


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_a_flipped_byte_of_the_header_never_crashes(count: int, folder: Path) -> None:
    rng, whole = random.Random(7), tiny_weights()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw) - 80)] ^= 1 << rng.randrange(8)
        assert outcome(folder, bytes(raw)) in ("refused", "opened")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}


def shard(folder: Path, weight_map: object) -> None:
    """Two honest shards, and an index that may lie."""
    (folder / "model.safetensors").unlink()
    for name, file in SHARDS.items():
        (folder / file).write_bytes(safetensors_bytes({name: ROW}, bytes(64)))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


ESCAPES: list[object] = ["../../x.safetensors", "/etc/passwd", "/tmp/x.safetensors", "a/b.safetensors", "C:\\x"]
ESCAPES += ["..", "", ".hidden.safetensors", "x\0.safetensors", "x" * 300 + ".safetensors", "model.bin"]
ESCAPES += [
    "a\\..\\b.safetensors",
    "x.safetensors ",
    "x.safetensors\n",
    "~/x.safetensors",
    "\uff0e\uff0e/x.safetensors",
]
ESCAPES += [1, None, ["x.safetensors"], {"a": 1}]


@pytest.mark.parametrize("escape", ESCAPES)
def test_an_index_cannot_leave_the_folder(escape: object, folder: Path) -> None:
    shard(folder, {**SHARDS, "b": escape})
    assert "not a file of this folder" in refusal(folder, "index.json")


def a_shard_twice(folder: Path) -> None:
    both = {"a": ROW, "b": entry("F32", [4, 4], 64, 128)}
    (folder / SHARDS["b"]).write_bytes(safetensors_bytes(both, bytes(128)))


def a_shard_more(folder: Path) -> None:
    (folder / "model-00003-of-00003.safetensors").write_bytes(tiny_weights())


LIES: dict[str, tuple[dict[str, str], Callable[[Path], object], str]] = {
    "a shard is missing": (SHARDS, lambda folder: (folder / SHARDS["b"]).unlink(), "is missing"),
    "a tensor is in no shard": ({**SHARDS, "c": SHARDS["b"]}, lambda _: None, "which no shard has"),
    "a tensor is in two shards": (SHARDS, a_shard_twice, "is in "),
    "a tensor is in another shard": ({"a": SHARDS["b"], "b": SHARDS["a"]}, lambda _: None, "is not where"),
    "a tensor is not in the index": ({"a": SHARDS["a"], "x": SHARDS["b"]}, lambda _: None, "is not where"),
    "a shard is not in the index": (SHARDS, a_shard_more, "does not name the shard"),
    "the index is empty": ({}, lambda _: None, "no weight_map"),
}


@pytest.mark.parametrize("story", LIES)
def test_an_index_that_lies_is_refused(story: str, folder: Path) -> None:
    weight_map, spoil, reason = LIES[story]
    shard(folder, weight_map)
    spoil(folder)
    assert reason in refusal(folder, "safetensors")


SILLY: list[dict[str, Any]] = [
    {"vocab_size": 1 << 31},
    {"vocab_size": 0},
    {"vocab_size": -1},
    {"vocab_size": "32000"},
    {"vocab_size": True},
    {"vocab_size": 32000.5},
    {"vocab_size": 1 << 22},
    {"num_hidden_layers": 10**6},
    {"num_hidden_layers": 0},
    {"num_hidden_layers": 1000, "hidden_size": 65536},
    {"n_layer": -3},
    {"hidden_size": 0},
    {"hidden_size": 1 << 40},
    {"hidden_size": 10**400},
    {"hidden_size": {"a": 1}},
    {"hidden_size": 9, "num_attention_heads": 2},
    {"num_attention_heads": 0},
    {"num_attention_heads": 4, "num_key_value_heads": 3},
    {"num_key_value_heads": 1 << 20},
    {"head_dim": -64},
    {"intermediate_size": 10**12},
    {"max_position_embeddings": 10**12},
    {"max_position_embeddings": 0},
    {"rope_theta": float("nan")},
    {"rope_theta": float("inf")},
    {"rope_theta": -1},
    {"rope_theta": 0},
    {"rope_scaling": {"factor": 0}},
    {"rope_scaling": {"factor": float("-inf")}},
    {"rms_norm_eps": -1e-5},
    {"text_config": {"num_hidden_layers": 10**9}},
    {"anything": 10**30},
    {"model_type": 3},
]


@pytest.mark.parametrize("change", SILLY, ids=lambda change: str(change)[:50])
def test_a_silly_number_is_refused_at_once(change: dict[str, Any], folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **change}))
    start = time.process_time()
    refusal(folder, "config.json")
    assert time.process_time() - start < 0.1


FIELDS = ["auto_map", "_attn_implementation_internal", "attn_implementation", "trust_remote_code", "custom_generate"]
FIELDS += ["_attn_implementation", "base_model_name_or_path", "tokenizer_name_or_path", "vision_attn_implementation"]
FIELDS += ["_attn_implementation_autoset", "experts_implementation", "_experts_implementation_internal"]
FILES = ["config.json", "generation_config.json", "tokenizer_config.json"]


def nested(field: str, depth: int) -> dict[str, Any]:
    """The field at a depth, inside records and lists."""
    inner: dict[str, Any] = {field: "attacker/repository--code.Run"}
    for level in range(depth):
        inner = {"text_config": inner} if level % 2 else {"parts": [1, inner]}
    return inner


@pytest.mark.parametrize("file_name", FILES)
@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("field", FIELDS)
def test_a_configuration_cannot_run_code(
    field: str, depth: int, file_name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2026-4372 and CVE-2026-5241: a field of config.json fetched and ran code, whatever the caller had said."""
    monkeypatch.setattr(socket.socket, "connect", never)
    file = folder / file_name
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**before, **nested(field, depth)}))
    if (field, depth) == ("auto_map", 0):  # dropped: test_foreign_code.py has what it names
        assert field not in open_snapshot(folder).config
    else:
        assert "foreign code" in refusal(folder, file_name)


KERNELS: list[Any] = [
    "attacker/kernel",
    "eager/kernel",
    {"": "attacker/kernel"},
    ["eager", "attacker/kernel"],
    "paged|x",
]


@pytest.mark.parametrize("value", KERNELS, ids=str)
def test_a_way_of_attention_that_is_not_transformers_own_is_refused(value: object, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "_attn_implementation": value}))
    assert "a kernel to be fetched and run" in refusal(folder, "config.json")


def never(*_: object) -> NoReturn:
    raise AssertionError("a checkpoint opened a connection")


def test_a_nested_configuration_cannot_name_another_model(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "text_config": {"_name_or_path": "attacker/model"}}))
    assert "foreign code" in refusal(folder, "config.json")


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "half an object": b'{"model_type": "llama"',
    "a list": b"[1]",
    "not UTF-8": b'{"model_type": "\xff\xfe"}',
    "a key twice": b'{"model_type": "llama", "model_type": "gpt2"}',
    "too deep for us": b'{"a":' * 40 + b"1" + b"}" * 40,
    "too deep for Python": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number that overflows": b'{"model_type": "llama", "rope_theta": 1e999}',
    "a literal NaN": b'{"model_type": "llama", "x": NaN}',
    "HTML": b"<!DOCTYPE html><title>503</title>",
}


@pytest.mark.parametrize("file_name", FILES)
@pytest.mark.parametrize("story", GARBAGE)
def test_garbage_instead_of_a_configuration_is_refused(story: str, file_name: str, folder: Path) -> None:
    (folder / file_name).write_bytes(GARBAGE[story])
    refusal(folder, file_name)


@pytest.mark.parametrize(
    ("file_name", "size"),
    [*((name, 11 << 20) for name in FILES), ("chat_template.jinja", (64 << 10) + 1), ("tokenizer.json", 200 << 20)],
)
def test_a_file_that_is_too_large_is_not_read(file_name: str, size: int, folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    with (folder / file_name).open("wb") as stream:
        stream.truncate(size)
    assert "too large" in refusal(folder, file_name)


def test_a_template_inside_the_configuration_is_bounded_too(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x" * ((64 << 10) + 1)}))
    assert "too large" in refusal(folder, "tokenizer_config.json")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("file_name", [*FILES, "model.safetensors", "chat_template.jinja"])
def test_a_folder_or_a_pipe_in_place_of_a_file_is_refused(
    file_name: str, make: Callable[[Path], None], folder: Path
) -> None:
    (folder / file_name).unlink(missing_ok=True)
    make(folder / file_name)
    assert "is not a file" in refusal(folder, file_name)


def test_a_folder_without_a_configuration_is_no_model(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "is missing" in refusal(folder, "config.json")


def test_a_folder_without_weights_is_no_model(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refusal(folder, "model.safetensors")


WINDOWED = {"sliding_window": 4, "use_sliding_window": True}
ODD: list[Any] = [None, True, "", "x", [], [1], [None], ["a", {}], {}, {"a": [1]}, 1.5, -1, 0, 10**12, 10**30, -1e308]
KEYS = {
    "config.json": [*CONFIG, "head_dim", "eos_token_id", "rope_scaling", "rope_theta", "intermediate_size", "n_layer"],
    "generation_config.json": ["eos_token_id", "temperature", "max_length"],
    "tokenizer_config.json": ["bos_token", "eos_token", "chat_template", "added_tokens_decoder", "model_max_length"],
    "tokenizer.json": ["added_tokens", "model", "normalizer", "pre_tokenizer", "decoder", "post_processor", "padding"],
}


@pytest.mark.parametrize("file_name", KEYS)
def test_a_value_of_any_other_kind_never_crashes(file_name: str, folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    file = folder / file_name
    before = json.loads(file.read_text()) if file.exists() else {}
    for key in KEYS[file_name]:
        for value in ODD:
            file.write_text(json.dumps({**before, key: value}))
            message = complaint(folder)
            assert message is None or file_name in message, (key, value)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_that_is_broken_never_costs_the_list_of_models(family: str, folder: Path) -> None:
    """Whatever a field that the decoder reads has in it."""
    here, whole = Entry("tiny", "tiny", folder), {**CONFIG, "model_type": family, "intermediate_size": 16, **WINDOWED}
    file, odd = folder / "config.json", [*ODD, ["full_attention"] * 2, ["other"], {"rope_theta": None}]
    for key, value in [("vocab_size", 16), *itertools.product(sorted(READ), odd)]:
        file.write_text(json.dumps({**whole, key: value}))
        listed = listed_model("tiny", here, 1 << 40)
        assert listed.fit != UNREADABLE or (key, value) != ("vocab_size", 16)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", ["rms_norm_eps", "max_window_layers", "layer_types", "rope_scaling", "rope_theta"])
def test_nothing_said_is_the_default(key: str, family: str) -> None:
    config = {**CONFIG, "model_type": family, "intermediate_size": 16, **WINDOWED}
    assert read_arch({**config, key: None}) == read_arch(config)
    assert read_arch({**config, "rope_parameters": {"rope_theta": None}}) == read_arch(config)


def test_a_hundred_thousand_fields_that_nobody_reads_cost_little() -> None:
    start = time.process_time()
    config = {**CONFIG, "intermediate_size": 16}
    assert read_arch({**config, **{f"field_{at}": at for at in range(1, 100_000)}}) == read_arch(config)
    assert time.process_time() - start < 5


LONG = "y" * 5000
WORDY = [
    {"is_causal": LONG},
    {"hidden_act": LONG},
    {"num_hidden_layers": LONG},
    {"layer_types": [LONG]},
    {"model_type": LONG},
]
WORDY += [{"rope_scaling": LONG}]


@pytest.mark.parametrize("change", WORDY, ids=lambda change: min(*change, "a name"))
def test_what_a_stranger_wrote_is_quoted_in_part_and_with_a_way_on(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_arch({**CONFIG, "intermediate_size": 16, **change})
    assert len(caught.value.message) < 300
    assert caught.value.hint


def complaint(folder: Path) -> str | None:
    """What is wrong with the folder or its tokenizer, if anything; another exception fails the test."""
    try:
        snapshot = replace(open_snapshot(folder), config={})  # whose rows are too few for the tokenizer
        opened(opening_of(snapshot)).text("hello")
    except CheckpointError as error:
        return error.message
    return None


NO_TOKENIZERS = [b"", b"{}", b"[]", b"\xff", b'{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}']
NO_TOKENIZERS += [b'{"added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}']


@pytest.mark.parametrize("raw", NO_TOKENIZERS)
def test_a_tokenizer_that_is_none_is_named(raw: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        opened(opening_of(open_snapshot(folder)))
