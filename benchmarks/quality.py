"""Measures each weight format's loss of quality: bits per weight, perplexity and divergence from float32. Prints
Markdown."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from benchmarks import held
from benchmarks.curve import Point, standing
from benchmarks.held import Held
from benchmarks.llama_cpp import library as llama
from benchmarks.models import MODELS, Model, Text, untied
from benchmarks.program import Arguments, run
from benchmarks.rotation import rotated
from localspec.bench.machine import describe_machine
from localspec.bench.tables import markdown
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.model import PackedModel
from localspec.engine.cpu.program import load
from localspec.engine.decoder import Decoder
from localspec.loading.cpu import assemble_packed
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble

ROWS = 128  # whose probabilities are float64 at once
FORMATS: tuple[PackedFormat, ...] = ("int8", "int4")
NAMES = (*FORMATS, "nf4", *held.LLAMA_CPP)
HEADS = ("weights", "bits per weight", "perplexity", "KL from fp32", "same first choice")


@dataclass(frozen=True, slots=True)
class Figures:
    """A format's means over the positions that count."""

    name: str
    bits: float
    perplexity: float
    kl: float
    same: float

    def cells(self) -> list[str]:
        kl = "–" if self.name == "fp32" else f"{self.kl:.5f}"
        return [self.name, f"{self.bits:.2f}", f"{self.perplexity:.3f}", kl, f"{self.same:.2%}"]


class Exact:
    """float32's logits, which all others are compared with."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.logits: list[Tensor] = []

    def figures(self, name: str, num_bytes: float, decoder: Decoder | PackedDecoder) -> Figures:
        """The first that is asked for is float32 itself."""
        first, loss, divergence, same, count = not self.logits, 0.0, 0.0, 0, 0
        for place, text in enumerate(self.model.texts):
            found = logits(decoder, text)
            if first:
                self.logits.append(found)
            for rows, wanted, ids in zip(
                *(torch.split(one, ROWS) for one in (found, self.logits[place], text.expected)), strict=True
            ):
                q, p = rows.double().log_softmax(-1), wanted.double().log_softmax(-1)
                loss += cross_entropy(q, ids, reduction="sum").item()
                divergence += kl_div(q, p, reduction="sum", log_target=True).item()
                same += int((rows.argmax(-1) == wanted.argmax(-1)).sum())
                count += len(ids)
        bits = 8 * num_bytes / self.model.num_weights
        return Figures(name, bits, math.exp(loss / count), divergence / count, same / count)


def logits(decoder: Decoder | PackedDecoder, text: Text) -> Tensor:
    """Logits of the rows whose predictions count."""
    decoder.crop(0)
    return decoder.forward(text.rows)[text.first :].float()


def context_of(model: Model) -> int:
    return max(len(text.ids) for text in model.texts)


def in_torch(model: Model, one: Held) -> Decoder:
    arch, _ = untied(model.arch, one.tensors)
    return assemble(arch, StateDictSource(one.tensors), dtype=torch.float32, context=context_of(model))


def engine(model: Model, kind: PackedFormat) -> tuple[str, float, PackedDecoder]:
    blueprint, made = held.packed(model, kind)
    weights = assemble_packed(blueprint, made)
    threads = torch.get_num_threads()
    decoder = PackedDecoder(PackedModel(model.arch, weights, context_of(model), load(choose()), threads))
    return f"{kind}, engine", blueprint.num_bytes, decoder


def measure(model: Model, only: Sequence[str], say: Callable[[str], None]) -> Iterator[Figures]:
    """float32 first; of the others those whose names begin with one of `only`."""
    exact = Exact(model)
    for one in weights(model, only, say):
        yield exact.figures(one.name, one.num_bytes, in_torch(model, one))
    for kind in FORMATS:
        if wanted(kind, only):
            say(f"{kind}, engine")
            name, num_bytes, decoder = engine(model, kind)
            yield exact.figures(name, num_bytes, decoder)
            decoder.close()


def weights(model: Model, only: Sequence[str], say: Callable[[str], None]) -> Iterator[Held]:
    yield held.exact(model)
    for kind in FORMATS:
        if wanted(kind, only):
            say(kind)
            yield held.ours(model, kind)
    for head in (False, True):
        if wanted("nf4", only):
            say("nf4")
            yield held.nf4(model, head=head)
    kinds = [kind for kind in held.LLAMA_CPP if wanted(kind, only)]
    for one in held.llama_cpp(model, kinds):
        say(one.name)
        yield one


def wanted(name: str, only: Sequence[str]) -> bool:
    return not only or name in only


def lines(found: Sequence[Figures]) -> list[str]:
    """Sentences that compare each of our formats with llama.cpp's curve."""
    curve = [Point(one.bits, one.kl) for one in found if one.name.startswith("llama.cpp")]
    if len(curve) < 2:
        return []
    mine = [one for one in found if one.name.startswith(FORMATS)]
    return [f"- {one.name}: {standing(curve, Point(one.bits, one.kl))}." for one in mine]


def report(model: Model, only: Sequence[str], say: Callable[[str], None]) -> str:
    found = list[Figures]()
    for one in measure(model, only, say):
        say(f"  {', '.join(one.cells()[1:])}")
        found.append(one)
    positions = sum(len(text.expected) for text in model.texts)
    table = markdown([HEADS, *(one.cells() for one in found)])
    head = f"### {model.name}, {model.num_weights / 1e6:.1f} M weights, {positions:,} positions"
    return "\n\n".join([head, table, *(["\n".join(found_lines)] if (found_lines := lines(found)) else [])])


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("quality", __doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rotated", action="store_true", help="also after an orthogonal change of basis")
    parser.add_argument("--only", nargs="+", default=[], metavar="FORMAT", help=f"default: {' '.join(NAMES)}")
    parser.add_argument("--texts", type=int, metavar="N", help="of each model, for a quick look; default: all")
    given = parser.parse_args(words)
    given.models = given.models or [*MODELS]
    for asked, known in ((given.models, MODELS), (given.only, NAMES)):
        if unknown := [name for name in asked if name not in known]:
            parser.error(f"'{unknown[0]}' is not one of {', '.join(known)}")
    return given


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    began = perf_counter()

    def say(what: str) -> None:
        print(f"{perf_counter() - began:4.0f} s  {what}", file=sys.stderr, flush=True)

    peer = llama.require()
    machine = describe_machine(torch.get_num_threads(), "cpu")
    print(f"{', '.join(f'{name} {value}' for name, value in machine.items())}, llama-cpp-python {peer}", flush=True)
    for name in given.models:
        say(name)
        whole = MODELS[name]()
        model = replace(whole, texts=whole.texts[: given.texts])
        print(f"\n{report(model, given.only, say)}", flush=True)
        if given.rotated:
            say(f"{name}, rotated")
            print(f"\n{report(rotated(model), given.only, say)}", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
