"""Weights that others have quantised, as the floats they stand for: every layout to the bit, against independent code.

tests/support/prequantised.py packs them from the formats' descriptions; tests/recorded/ has what the libraries say.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.engine.generic_arch import read_any
from localspec.loading import weight_cache
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.footprint import footprint, in_16_bits, num_elements
from localspec.loading.sources import Files, WeightReader, open_source, sizes_to_read
from localspec.loading.unpacking import weight as unpacking
from localspec.loading.unpacking.fields import float8
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.prequantised.config import read_rules
from localspec.models.prequantised.pattern import UnreadPattern, matcher
from localspec.runtime.local_models import listed_model, stored
from tests.support.models import random_tensors, save_snapshot
from tests.support.prequantised import (
    AWQ_FIELDS,
    FP8_FIELDS,
    STYLES,
    compressed,
    e4m3,
    floats,
    fp8,
    gptq_fields,
    group,
    ints,
    packed,
    store_folder,
    whole,
)
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
    "vocab_size": 448,
    "attention_bias": True,
}
RECORDED = Path(__file__).parents[1] / "recorded" / "unpacked.safetensors"
DOWN = "model.layers.1.mlp.down_proj"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A style's name → its folder, and the floats that it stands for; each made once."""
    top = tmp_path_factory.mktemp("models")

    @cache
    def make(name: str) -> tuple[Path, dict[str, Tensor]]:
        folder = save_snapshot(top / name, gpt2_like(), template=CHATML, eos="<|im_end|>", **SIZES)
        return folder, store_folder(folder, STYLES[name])

    return make


# --- what the numbers are


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STYLES)
def test_every_layout_is_read_to_the_bit(name: str, made: Any):
    """Whole, and rows that begin and end within words, blocks and groups."""
    folder, meant = made(name)
    source = open_source(open_snapshot(folder))
    assert source.names() == set(meant)
    for key, tensor in meant.items():
        assert source.shape(key) == tuple(tensor.shape)
        assert torch.equal(source.read(key).float(), tensor), key
        for first, last in ((3, 11), (7, 8), (0, 1), (len(tensor) - 5, len(tensor))):
            assert torch.equal(source.rows(key, first, last).float(), tensor[first:last]), key


@pytest.mark.parametrize("slab", [1, 200, 700])
@pytest.mark.parametrize("name", ["gptq 3", "awq", "w4a16 ordered", "fp8"])
def test_the_size_of_the_steps_changes_no_bit(name: str, slab: int, made: Any, monkeypatch: pytest.MonkeyPatch):
    folder, meant = made(name)
    monkeypatch.setattr(unpacking, "SLAB_ELEMENTS", slab)
    source = open_source(open_snapshot(folder))
    for key, tensor in meant.items():
        assert torch.equal(source.rows(key, 5, 30).float(), tensor[5:30]), key


@cache
def recorded() -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(RECORDED, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}, json.loads(opened.metadata()["by"])  # noqa: SIM118


@pytest.mark.parametrize("name", json.loads(safe_open(RECORDED, framework="pt").metadata()["by"]))
def test_it_is_what_the_library_of_the_layout_makes_of_it(name: str, tmp_path: Path):
    """Recorded by tests/recorded/unpacked.py, which says how and by which versions."""
    parts = {key.removeprefix(f"{name}/"): part for key, part in recorded()[0].items() if key.startswith(f"{name}/")}
    expected = parts.pop("whole")
    save_file({f"lm_head.{part}": tensor for part, tensor in parts.items()}, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "quantization_config": STYLES[name].config}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert torch.equal(open_source(open_snapshot(tmp_path)).read("lm_head.weight"), expected)


def test_fp8_blocks_are_what_transformers_makes_of_them():
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    for block in ((32, 48), (0, 0), (1, 0)):
        parts, meant = fp8(weight, block=block)
        theirs = Fp8Dequantize(None)._dequantize_one(parts["weight"], parts["weight_scale"], torch.float32)
        assert torch.equal(theirs, meant)


def test_all_256_eight_bit_floats_are_what_the_format_says():
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)
    expected = torch.tensor([e4m3(octet) for octet in range(256)])
    assert torch.equal(float8(codes).nan_to_num(999), expected.nan_to_num(999))
    assert torch.equal(float8(codes).nan_to_num(999), codes.float().nan_to_num(999))
    assert int(float8(codes).isnan().sum()) == 2


def test_zeros_of_0_borrow_from_their_neighbours_as_gptqs_tools_have_it():
    """GPTQ's first format takes ones off whole words: the recorded files have rows whose zero point is 0."""
    tensors, by = recorded()
    assert by["gptq uneven"].startswith("gptqmodel")
    nibbles = tensors["gptq uneven/qzeros"][:, :, None] >> torch.arange(0, 32, 4) & 15
    assert int((nibbles == 15).sum()) > 0


# --- which module has which scheme

NAMES = [f"model.layers.{at}.{part}" for at in (0, 1, 13, 31) for part in ("self_attn.q_proj", "mlp.down_proj")]
NAMES += ["lm_head", "model.embed_tokens", "model.layers.2.mlp.gate"]
PATTERNS = [
    ".*lm_head",
    ".*_proj$",
    r"model\.layers\.\d+\.mlp\..*",
    "^model.layers.[0-9]+.self_attn.(q|k|v)_proj$",
    "(?:.*down_proj|lm_head)",
    ".*mlp.gate$",
    r"model\.layers\.(1[0-9]|3[01])\.",
    "model",
    "layers",
    ".*layers.1?3.*",
    "[lm]+_head",
    r".*\w+_proj",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_in_python(pattern: str):
    fits = matcher(pattern)
    assert [fits(name) for name in NAMES] == [re.match(pattern, name) is not None for name in NAMES]


@pytest.mark.parametrize(
    "pattern", ["(a", "a)", "a{3}", "(?=a)", "(?<n>a)", r"(a)\1", "(a+)+", "*a", "[^a]", "a" * 201, "(" * 9 + ")" * 9]
)
def test_a_pattern_that_is_more_than_that_is_refused(pattern: str):
    with pytest.raises(UnreadPattern):
        matcher(pattern)
    config = {"model_type": "llama", "quantization_config": compressed("dense", group(ints(4), (f"re:{pattern}",)))}
    with pytest.raises(CheckpointError, match="targets = ") as met:
        read_rules(config)
    assert met.value.hint


def test_no_pattern_takes_long():
    """Steps are counted by how often a character is looked at: a backtracking matcher would look 10^12 times."""
    looks = 0

    class Text(str):
        __slots__ = ()

        def __getitem__(self, at: Any) -> str:
            nonlocal looks
            looks += 1
            return super().__getitem__(at)

    for pattern in (".*" * 99 + "x", "(m|m|m)" * 20 + "x", "m?" * 60 + "m" * 60, ".*.+" * 40 + "x"):
        assert not matcher(pattern)(Text("m" * 40))
    assert looks < 100_000


def mixed(folder: Path, groups: tuple[dict[str, Any], ...]) -> dict[str, Tensor]:
    """Attention in four bits, gate and up in eight, down in int8 of its own; the head as it was."""
    tensors = random_tensors(read_model(folder), seed=0, dtype=torch.float32)
    stored, meant = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in tensors.items():
        make = {"self_attn": packed, "down_proj": whole, "mlp": lambda weight: packed(weight, bits=8, size=-1)}
        kind = next((make[part] for part in make if part in name and name.endswith("_proj.weight")), None)
        parts, meant[name] = kind(tensor) if kind else ({"weight": tensor}, tensor)
        stored |= {name.removesuffix("weight") + part: found for part, found in parts.items()}
        if kind is None:
            stored[name] = stored.pop(name.removesuffix("weight") + "weight", tensor)
    save_file(stored, folder / "model.safetensors")
    say(folder, compressed("mixed-precision", *groups))
    return meant


def read_model(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def say(folder: Path, fields: Any) -> None:
    (folder / "config.json").write_text(json.dumps({**read_model(folder), "quantization_config": fields}))


def test_of_several_groups_a_name_goes_before_a_pattern_and_that_before_a_class(tmp_path: Path):
    folder = save_snapshot(tmp_path / "mixed", gpt2_like(), **{**SIZES, "attention_bias": False})
    eight, alone = ints(8, -1), {**ints(8), "strategy": "channel"}
    names = tuple(f"model.layers.{at}.mlp.down_proj" for at in range(2))
    meant = mixed(folder, (group(ints(4, 32)), group(eight, ("re:.*mlp.*",)), group(alone, names)))
    snapshot = open_snapshot(folder)
    assert snapshot.stored_as == "W4A16 and W8A16"
    source = open_source(snapshot)
    assert all(torch.equal(source.read(name).float(), tensor.float()) for name, tensor in meant.items())


def test_a_module_that_no_group_names_is_refused_where_it_is_packed(tmp_path: Path):
    folder = save_snapshot(tmp_path / "model", gpt2_like(), **SIZES)
    store_folder(folder, STYLES["w4a16"])
    say(folder, compressed("mixed-precision", group(ints(4, 32), ("re:.*mlp.*",)), group(ints(8, -1), ("lm_head",))))
    with pytest.raises(CheckpointError, match="no group of its config names it"):
        open_source(open_snapshot(folder))


# --- what a config.json may say

UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "gptq bits 64": (gptq_fields(64), "bits = 64"),
    "gptq bits 5": (gptq_fields(5), "bits = 5"),
    "gptq bits true": (gptq_fields(True), "bits = True"),
    "gptq bits text": ({**gptq_fields(), "bits": "4"}, "bits = '4'"),
    "gptq without bits": ({"quant_method": "gptq"}, "bits = None"),
    "gptq group 0": (gptq_fields(size=0), "group_size = 0"),
    "gptq group -2": (gptq_fields(size=-2), "group_size = -2"),
    "gptq group text": ({**gptq_fields(), "group_size": "x"}, "group_size = 'x'"),
    "gptq marlin": (gptq_fields(checkpoint_format="marlin"), "checkpoint_format = 'marlin'"),
    "gptq marlin of old": (gptq_fields(is_marlin_format=True), "is_marlin_format"),
    "gptq planes": (gptq_fields(format="gptq_p"), "checkpoint_format = 'gptq_p'"),
    "gptq short words": (gptq_fields(pack_dtype="int16"), "pack_dtype = 'int16'"),
    "gptq rotated": (gptq_fields(rotation="hadamard"), "rotation = 'hadamard'"),
    "gptq rules": (gptq_fields(dynamic={"+:.*down.*": {"bits": 8}}), "dynamic = "),
    "gptq rules of another kind": (gptq_fields(dynamic={".*": [4]}), "dynamic = "),
    "awq bits": ({**AWQ_FIELDS, "bits": 8}, "bits = 8"),
    "awq group 0": ({**AWQ_FIELDS, "group_size": 0}, "group_size = 0"),
    "awq gemv": ({**AWQ_FIELDS, "version": "gemv"}, "version = 'gemv'"),
    "awq marlin": ({**AWQ_FIELDS, "version": "marlin"}, "version = 'marlin'"),
    "awq of its authors": ({**AWQ_FIELDS, "backend": "llm-awq"}, "backend = 'llm-awq'"),
    "fp8 e5m2": ({**FP8_FIELDS, "fmt": "e5m2"}, "fmt = 'e5m2'"),
    "fp8 cache": ({**FP8_FIELDS, "kv_cache_scheme": "static"}, "kv_cache_scheme"),
    "fp8 block 0": ({**FP8_FIELDS, "weight_block_size": [0, 128]}, "weight_block_size"),
    "fp8 block of one": ({**FP8_FIELDS, "weight_block_size": [128]}, "weight_block_size"),
    "ct nvfp4": (compressed("nvfp4-pack-quantized", group(floats("group"))), "format = 'nvfp4-pack-quantized'"),
    "ct mxfp4": (compressed("mxfp4-pack-quantized", group(floats("group"))), "format = 'mxfp4-pack-quantized'"),
    "ct marlin": (compressed("marlin-24", group(ints(4))), "format = 'marlin-24'"),
    "ct format of a group": (compressed("dense", {**group(ints(4)), "format": "mxfp8-quantized"}), "mxfp8"),
    "ct format list": (compressed("dense", group(ints(4)), format=["dense"]), "format = "),
    "ct sparse": (compressed("dense", group(ints(4)), sparsity_config={"format": "sparse-24-bitmask"}), "sparsity"),
    "ct cache": (compressed("dense", group(ints(4)), kv_cache_scheme=floats("tensor")), "kv_cache_scheme"),
    "ct transforms": (compressed("dense", group(ints(4)), transform_config={"config_groups": {"R1": {}}}), "transform"),
    "ct no groups": (compressed("dense"), "config_groups"),
    "ct preset": (compressed("dense", config_groups={"W4A16": ["Linear"]}), "config_groups"),
    "ct 3 bits": (compressed("pack-quantized", group(ints(3))), "num_bits = 3"),
    "ct 64 bits": (compressed("pack-quantized", group(ints(64))), "num_bits = 64"),
    "ct 4-bit floats": (compressed("dense", group({**floats("group"), "num_bits": 4})), "num_bits = 4"),
    "ct type": (compressed("dense", group({**ints(4), "type": ["int"]})), "type = "),
    "ct weights text": (compressed("dense", group("int4")), "weights = 'int4'"),  # type: ignore[arg-type]
    "ct targets number": (compressed("dense", {**group(ints(4)), "targets": 3}), "targets = 3"),
    "ct group 0": (compressed("dense", group({**ints(4, 32), "group_size": 0})), "group_size = 0"),
    "ct block": (compressed("dense", group(floats("block", block_structure="128"))), "block_structure"),
    "ct block 0": (compressed("dense", group(floats("block", block_structure=[0, 1]))), "block_structure"),
    "ct tokens": (compressed("dense", group(floats("token"))), "strategy = 'token'"),
    "ct made anew": (compressed("dense", group(floats("tensor", dynamic=True))), "dynamic = True"),
}


@pytest.mark.parametrize("story", UNREADABLE)
def test_what_is_not_read_is_one_sentence_with_a_way_on(story: str):
    fields, words = UNREADABLE[story]
    for family in ("llama", "qwen3"):
        with pytest.raises(CheckpointError, match="quantised already, by") as met:
            read_any({**random_config(), "model_type": family, "quantization_config": fields})
        assert words in met.value.message
        assert met.value.message.endswith("which localspec cannot unpack.")
        assert "\n" not in str(met.value)
        assert len(met.value.message) < 250
        assert "16-bit" in met.value.hint


def random_config() -> dict[str, Any]:
    return {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": False}


@pytest.mark.parametrize(
    "more",
    [
        {"dynamic": {"-:.*down.*": {}, "+:.*up.*": {"bits": 4, "group_size": 32, "desc_act": True}}},
        {"modules_in_block_to_quantize": [["self_attn.q_proj"]], "block_name_to_quantize": "model.layers"},
        {"meta": {"quantizer": ["gptqmodel:1.4"]}, "damp_percent": 0.1, "static_groups": False, "pack_dtype": "int32"},
    ],
)
def test_what_changes_nothing_in_the_files_is_let_pass(more: dict[str, Any]):
    rules = read_rules({"model_type": "llama", "quantization_config": gptq_fields(**more)})
    assert rules is not None
    assert rules.label == "GPTQ 4-bit"


@pytest.mark.parametrize("method", ["gptq", "awq", "compressed-tensors", "fp8", "fbgemm_fp8"])
def test_of_families_that_transformers_runs_none_is_unpacked(method: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.models.prequantised.stored_format.find_spec", lambda _: None)
    with pytest.raises(CheckpointError, match=f"quantised already, by {method}") as met:
        read_any(
            {"model_type": "olmo", **random_config(), "quantization_config": {**gptq_fields(), "quant_method": method}}
        )
    assert "16-bit" in met.value.hint


# --- what is planned, shown and kept


def test_weights_are_counted_and_not_the_words_they_lie_in(made: Any):
    """Else a plan for a 7B in four bits would be that of a 1B."""
    for name in STYLES:
        folder, meant = made(name)
        snapshot = open_snapshot(folder)
        assert num_elements(snapshot) == sum(tensor.numel() for tensor in meant.values())
        layer = sum(tensor.numel() for key, tensor in meant.items() if key.startswith("model.layers.0."))
        assert num_elements(snapshot, "model.layers.0.") == layer
        assert stored(snapshot) == snapshot.stored_as == STYLES[name].label


def test_each_format_is_planned_as_for_the_floats(made: Any, tmp_path: Path):
    floats_of = save_snapshot(tmp_path / "floats", gpt2_like(), **SIZES)
    for name in ("gptq 8", "fp8"):  # their heads are quantised too
        snapshot, plain = open_snapshot(made(name)[0]), open_snapshot(floats_of)
        for quant in ("fp32", "bf16", "int8", "int4", "nf4"):
            assert footprint(snapshot, find_format(quant), 64) == footprint(plain, find_format(quant), 64)
            for keep_head in (False, True):
                kept = (in_16_bits(one, find_format(quant), keep_head=keep_head) for one in (snapshot, plain))
                assert next(kept) == next(kept)


def test_progress_counts_what_is_read(made: Any):
    for name in ("gptq ordered", "awq", "w4a16 uneven", "fp8 tensor"):
        snapshot = open_snapshot(made(name)[0])
        reader, sizes = WeightReader(open_source(snapshot)), sizes_to_read(snapshot)
        for key in reader.source.names():
            reader.whole(key)
            assert reader.just_read() == sizes[key]
        reader.refuse_unused(tied_head=False)


def test_two_bits_are_enough_bytes_for_what_a_config_promises(tmp_path: Path):
    wide = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 8}
    folder = save_snapshot(tmp_path / "two", gpt2_like(), **{**SIZES, **wide})
    store_folder(folder, STYLES["gptq 2"])
    assert open_snapshot(folder).stored_as == "GPTQ 2-bit"


def test_a_packed_copy_is_of_how_the_files_are_read(made: Any):
    """Zeros mean something else in GPTQ's second format, and no byte of the weights' files tells."""
    folder, _ = made("gptq uneven")
    snapshot = open_snapshot(folder)
    fields = {**snapshot.config["quantization_config"], "checkpoint_format": "gptq_v2"}
    other = Snapshot(**{**copied(snapshot), "config": {**snapshot.config, "quantization_config": fields}})
    blueprint = Blueprint(read_arch(snapshot.config), "int8")
    assert weight_cache.fingerprint(snapshot, blueprint) != weight_cache.fingerprint(other, blueprint)


def copied(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__}


def test_floats_with_a_config_left_behind_are_floats(tmp_path: Path):
    """As who unpacks a model and forgets the field: its files say what they are."""
    folder = save_snapshot(tmp_path / "floats", gpt2_like(), **SIZES)
    say(folder, gptq_fields())
    snapshot = open_snapshot(folder)
    assert not snapshot.unpacked
    assert isinstance(open_source(snapshot), Files)
    assert (snapshot.stored_as, stored(snapshot)) == ("", "fp32")


def test_codes_that_another_field_explains_are_refused_by_who_reads_that(tmp_path: Path):
    """MLX's: that the model is of its making says more than that its weights are no floats."""
    folder = save_snapshot(tmp_path / "mlx", gpt2_like(), **SIZES)
    save_file({f"{DOWN}.weight": torch.zeros(64, 12, dtype=torch.uint8)}, folder / "model.safetensors")
    fields = {**read_model(folder), "num_hidden_layers": 1, "hidden_size": 4, "vocab_size": 8}
    for more, stays in (({"quantization": {"bits": 4}}, True), ({}, False)):
        (folder / "config.json").write_text(json.dumps({**fields, **more}))
        if stays:
            assert not open_snapshot(folder).unpacked
        else:
            with pytest.raises(CheckpointError, match=r"down_proj\.weight' is U8, and its config does not say"):
                open_snapshot(folder)


def test_the_picker_shows_what_the_files_are(made: Any):
    from localspec.models.catalog import Catalog

    folder, _ = made("awq")
    shown = listed_model(str(folder), Catalog.load().resolve(str(folder)), 1 << 40)
    assert (shown.quant, shown.fit) == ("AWQ 4-bit", "fits")
