"""Early exit beside transformers' own, `assistant_early_exit`, on the same weights: whole answers, prompt included.

Random weights agree by chance, and transformers' drafts cannot be forced to agree. So the layers behind the exit add
nothing here: their last projections are zeros, which take the time of any others, and every draft is right for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol  # Any: transformers is untyped

import torch

from benchmarks.shapes.agreement import PROMPT_TOKENS, Writing, prompt, written
from benchmarks.shapes.forwards import finish
from benchmarks.shapes.random_weights import Shape, make_decoder
from benchmarks.shapes.report import faster, ratio_text
from benchmarks.shapes.transformers_forwards import dense_model
from localspec.core.weight_formats import ListedFormat, find_format
from localspec.engine.decode import decode
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.linear import dtype_of
from localspec.engine.policy.named import Constant
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.loading.sources import StateDictSource

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

LAST = ("self_attn.o_proj", "mlp.down_proj")  # what a layer adds to the stream of residuals ends with these


@dataclass(frozen=True, slots=True)
class Way:
    """How the prompt is answered: in a format, plain where `k` is 0. `early`: what early exit is called there."""

    kind: str
    early: str
    exit_layer: int
    k: int
    max_tokens: int
    threads: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.early} {self.exit_layer}" if self.k else self.plain

    @property
    def plain(self) -> str:
        """The name of the plain run that texts and speed are compared with."""
        return f"{self.kind} plain"


class Answers(Protocol):
    """Answers the prompt in one way."""

    @property
    def way(self) -> Way: ...

    def write(self, turn: int) -> Writing: ...


@dataclass(frozen=True)
class Ours:
    """Our decoder."""

    way: Way
    decoder: Decoder | PackedDecoder

    def write(self, turn: int) -> Writing:  # noqa: ARG002 - nothing is drawn
        torch.set_num_threads(self.way.threads)
        self.decoder.crop(0)
        drafter = EarlyExitDrafter(self.decoder, self.way.exit_layer) if self.way.k else NoDrafter()
        session = Session(self.decoder, drafter, device=str(self.decoder.device))
        session.begin(Greedy(Sampling(temperature=0.0)))
        started = perf_counter()
        for _ in session.prefill(prompt(self.decoder.arch.vocab_size)):
            pass
        rounds = list(decode(session, Constant(self.way.k), max_tokens=self.way.max_tokens))
        finish(self.decoder.device)
        return written(rounds, perf_counter() - started)


@dataclass(frozen=True)
class Theirs:
    """transformers' `generate`, drafts of a constant length as ours are."""

    way: Way
    model: Any

    def write(self, turn: int) -> Writing:  # noqa: ARG002 - nothing is drawn
        torch.set_num_threads(self.way.threads)
        config, layers = self.model.config, self.model.config.num_hidden_layers
        ids = torch.tensor([prompt(config.vocab_size)], device=self.model.device)
        settings = self.model.generation_config
        settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = self.way.k, "constant"
        settings.assistant_confidence_threshold, settings.eos_token_id = 0.0, None
        drafts = {"assistant_early_exit": self.way.exit_layer} if self.way.k else {}
        forwards: list[int] = []
        count = self.model.register_forward_pre_hook(lambda *_: forwards.append(config.num_hidden_layers))
        try:
            started = perf_counter()
            with torch.inference_mode():
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=self.way.max_tokens,
                    do_sample=False,
                    pad_token_id=0,
                    **drafts,
                )
            finish(self.model.device)
            seconds = perf_counter() - started
        finally:
            count.remove()
            config.num_hidden_layers = layers  # its early exit leaves fewer when it fails
        return Writing(tuple(out[0, ids.shape[1] :].tolist()), seconds, forwards.count(layers))


def silenced(source: StateDictSource, exit_layer: int, shape: Shape) -> StateDictSource:
    """The same weights, but that the layers from the exit on add nothing."""
    behind = {f"model.layers.{index}.{name}.weight" for index in range(exit_layer, shape.num_layers) for name in LAST}
    made = {name: torch.zeros_like(tensor) if name in behind else tensor for name, tensor in source.tensors.items()}
    return StateDictSource(made)


@dataclass(frozen=True, slots=True)
class Race:
    """The settings common to all runs: a shape's weights, a draft length, a number of tokens, a device."""

    shape: Shape
    source: StateDictSource
    exit_layer: int
    k: int
    max_tokens: int
    threads: int
    device: str = "cpu"

    @property
    def context(self) -> int:
        return PROMPT_TOKENS + self.max_tokens + self.k + 1


def contenders(race: Race, kinds: Sequence[ListedFormat]) -> list[Answers]:
    """Plain and early exit: transformers in the first of our formats that torch has, ours in each."""
    weights = silenced(race.source, race.exit_layer, race.shape)
    dense = next(kind for kind in kinds if find_format(kind, race.device).is_float)
    model = dense_model(race.shape, weights, race.context, dtype_of(find_format(dense, race.device)), race.device)

    def ways(kind: str, early: str, threads: int) -> list[Way]:
        return [Way(kind, early, race.exit_layer, k, race.max_tokens, threads) for k in (0, race.k)]

    theirs = ways(f"transformers {dense}", "assistant_early_exit", race.threads)
    found: list[Answers] = [Theirs(way, model) for way in theirs]
    arch = race.shape.arch(race.context)
    for kind in kinds:
        decoder = make_decoder(arch, weights, kind, context=race.context, threads=race.threads, device=race.device)
        threads = race.threads if isinstance(decoder, Decoder) else 1  # of torch, beside the CPU engine's own
        found += [Ours(way, decoder) for way in ways(kind, "early exit", threads)]
    return found


def table(found: Sequence[Answers], texts: Sequence[Sequence[Writing]]) -> list[list[str]]:
    """A row for each; ratios of the same turn. `same`: as many texts as equal this way's own plain ones."""
    by_name = {one.way.name: written for one, written in zip(found, texts, strict=True)}
    theirs = [one.way for one in found if isinstance(one, Theirs)]
    head = ["method", "k", "tok/s", "tok/round", "× own plain", *(f"× {way.name}" for way in theirs), "same"]
    return [head, *(row(one.way, by_name, theirs) for one in found)]


def row(way: Way, texts: dict[str, Sequence[Writing]], theirs: Sequence[Way]) -> list[str]:
    own, plain = texts[way.name], texts[way.plain]
    speeds = sorted(text.tokens_per_second for text in own)
    ratios = [ratio_text(faster(own, texts[name])) for name in (way.plain, *(one.name for one in theirs))]
    per_round = sum(len(text.ids) for text in own) / sum(text.rounds for text in own)
    same = sum(a.ids == b.ids for a, b in zip(own, plain, strict=True))
    return [way.name, str(way.k), f"{speeds[len(speeds) // 2]:.1f}", f"{per_round:.2f}", *ratios, f"{same}/{len(own)}"]
