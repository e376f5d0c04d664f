"""int4 is not four bits throughout: which weights have eight, what that takes, and what it saves of the quality."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from benchmarks.models import tokenizer_of
from benchmarks.shapes.random_weights import BITS, SHAPES
from localspec.core.paths import packaged
from localspec.engine.arch import read_arch
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.model import PackedModel
from localspec.engine.cpu.pack import pack, pad_rows, unpack
from localspec.engine.cpu.program import Program, load
from localspec.engine.decoder import Decoder
from localspec.loading.cpu import Packer, pack_source
from localspec.loading.cpu_layout import LINEARS, Blueprint
from localspec.loading.sources import Files, StateDictSource, WeightReader
from localspec.loading.torch import assemble
from localspec.models.checkpoint import open_snapshot
from tests.support.models import ODD, TINY, random_tensors
from training import corpus, evaluate

pytestmark = pytest.mark.heavy

CONTEXT = 256
TIED, APART = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
HEADS = {  # values that begin with a block, some that begin in the middle of one, and some that nobody shares
    "whole blocks": {**TINY, **APART},
    "odd heads": {**TINY, **APART, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    "odd sizes": {**TINY, **ODD, **TIED},
    "no groups": {**TINY, **TIED, "num_key_value_heads": 4},
}


@pytest.fixture(scope="module")
def engine() -> Program:
    return load(choose())


def kinds(config: dict[str, Any], kind: Any) -> dict[str, str]:
    """Of every linear, by name."""
    return {
        piece.name: piece.weight_format
        for piece in Blueprint(read_arch(config), kind).pieces.values()
        if piece.weight_format
    }


@pytest.mark.parametrize("config", HEADS.values(), ids=HEADS)
def test_int4_has_shared_values_the_first_layers_attention_and_a_tied_head_in_eight_bits(config: dict[str, Any]):
    layers, are_shared = config["num_hidden_layers"], config["num_attention_heads"] != config["num_key_value_heads"]
    wide = {"0.qk", "0.v", "0.output", *(f"{index}.v" for index in range(layers) if are_shared)}
    tables = {"embedding"} if config["tie_word_embeddings"] else {"embedding", "head"}
    wide |= {"embedding"} if config["tie_word_embeddings"] else set()
    found = kinds(config, "int4")
    assert found.keys() == tables | {f"{index}.{name}" for index in range(layers) for name in LINEARS}
    assert {name for name, kind in found.items() if kind == "int8"} == wide
    assert set(kinds(config, "int8").values()) == {"int8"}


@pytest.mark.parametrize("config", HEADS.values(), ids=HEADS)
def test_every_query_and_value_is_held_as_the_rule_says(config: dict[str, Any], engine: Program):
    blueprint, tensors = Blueprint(read_arch(config), "int4"), random_tensors(config, seed=3, dtype=torch.float32)
    packer, arch = Packer(blueprint, WeightReader(StateDictSource(tensors)), engine), blueprint.arch
    for _ in packer.pieces():
        pass
    for index in range(arch.num_layers):
        pieces = [blueprint.pieces[f"{index}.{name}"] for name in ("qk", "v")]
        qk, v = (unpack(packer.made[piece.name], piece.weight_format) for piece in pieces)  # type: ignore[arg-type]
        queries, values = (tensors[f"model.layers.{index}.self_attn.{part}_proj.weight"] for part in "qv")
        wanted = held(values, arch.num_kv_heads, arch.head_dim, blueprint.format_of(index, "v"))
        first = (arch.num_heads + arch.num_kv_heads - blueprint.heads_before_values) * blueprint.head
        assert torch.equal(v[first : first + len(wanted), : wanted.shape[1]], wanted)
        wanted = held(queries, arch.num_heads, arch.head_dim, "int4" if index else "int8")
        assert torch.equal(qk[: len(wanted), : wanted.shape[1]], wanted)


def held(weight: Tensor, heads: int, size: int, kind: Any) -> Tensor:
    """What blocks of a format have of it, each head padded."""
    rows = pad_rows(weight, heads, size)
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % 64, 0, -rows.shape[0] % 32))
    return unpack(pack(padded, kind), kind)[: len(rows), : rows.shape[1]]


def test_a_billion_weights_take_less_than_five_and_four_tenths_bits_each():
    """Apart, as the shape has them, and with the large tied table of Llama 3.2 1B."""
    for shape, tied in (("llama-1b", False), ("llama-1b", True)):
        made = SHAPES[shape]
        config = {**made.config(512), "tie_word_embeddings": tied, "vocab_size": 128256 if tied else made.vocab_size}
        blueprint = Blueprint(read_arch(config), "int4")
        tables = (1 if tied else 2) * config["vocab_size"] * made.hidden_size
        weights = made.num_weights - 2 * made.vocab_size * made.hidden_size + tables
        assert 8 * blueprint.num_bytes / weights < (5.4 if tied else 4.4)


@pytest.mark.parametrize("name", SHAPES)
def test_the_bench_counts_with_bits_that_are_enough(name: str):
    shape = SHAPES[name]
    for kind in ("int8", "int4"):
        blueprint = Blueprint(shape.arch(512), kind)  # type: ignore[arg-type]
        assert 8 * blueprint.num_bytes / shape.num_weights < BITS[kind] + 0.05  # type: ignore[index]  # norms


# --- what it is for


@pytest.fixture(scope="module")
def texts() -> list[Tensor]:
    """Questions that guide was not trained on, and their answers."""
    snapshot = open_snapshot(packaged("assets/guide") / "target")
    words = tokenizer_of(snapshot)
    asked = evaluate.held_out(corpus.load(), words, seed=0)[::24]
    return [torch.tensor(one.prompt + one.answer[:-1])[:CONTEXT] for one in asked]


@pytest.mark.slow
def test_guide_loses_a_quarter_at_most_of_what_it_lost_in_four_bits_throughout(
    texts: list[Tensor], engine: Program, monkeypatch: pytest.MonkeyPatch
):
    """In mean divergence from float32."""
    folder = packaged("assets/guide") / "target"
    mixed = divergence(folder, texts, engine)
    monkeypatch.setattr(Blueprint, "format_of", lambda self, *_: self.weight_format)
    assert mixed < min(0.025, divergence(folder, texts, engine) / 4)


def divergence(folder: Path, texts: list[Tensor], engine: Program) -> float:
    """Of int4, in nats, over all positions."""
    snapshot = open_snapshot(folder)
    arch, source = read_arch(snapshot.config), Files(snapshot)
    exact = assemble(arch, source, dtype=torch.float32, context=CONTEXT)
    weights = pack_source(Blueprint(arch, "int4"), WeightReader(Files(snapshot)), engine)
    packed = PackedDecoder(PackedModel(arch, weights, CONTEXT, engine))
    found = [list(chances(decoder, texts)) for decoder in (exact, packed)]
    packed.close()
    p, q = (torch.cat(rows) for rows in found)
    return kl_div(q, p, reduction="batchmean", log_target=True).item()


def chances(decoder: Decoder | PackedDecoder, texts: list[Tensor]) -> Iterator[Tensor]:
    """Logarithms."""
    for ids in texts:
        decoder.crop(0)
        yield decoder.forward(ids).double().log_softmax(-1)
