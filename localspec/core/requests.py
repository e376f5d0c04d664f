"""What a reader asks of an engine: load this, answer that. Records that cross the pipe; None means "not said".

Knows nothing about who asks or how it is answered.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, Self  # Any: each option has a type of its own

from msgspec.structs import replace

from localspec.core.events import Mode, Record
from localspec.core.weight_formats import AUTO, INT8_THRESHOLD

Role = Literal["system", "user", "assistant"]
PROBE_EVERY = 16  # rounds: the first of the engine's PROBE_GAPS
RANDOM_SEED = -1  # another one every time, whatever those with less to say have said
LONGEST_DRAFT = 16  # the engine's MAX_DRAFT, known here without its torch

RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 1 << 22),
    "top_p": (1e-9, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "seed": (RANDOM_SEED, (1 << 63) - 1),
}
WHOLE = ("top_k", "seed")


def is_in_range(name: str, value: Any) -> bool:
    """Whether this sampling option may have this value, whoever gave it."""
    low, high = RANGES[name]
    is_number = isinstance(value, Integral if name in WHOLE else Real) and not isinstance(value, bool)
    return is_number and bool(low <= value <= high)


def range_words(name: str) -> str:
    """What this sampling option may be."""
    low, high = RANGES[name]
    return f"a {'whole ' if name in WHOLE else ''}number from {low} to {high}"


class Message(Record, frozen=True):
    """One turn of a conversation, as plain text."""

    role: Role
    content: str


class EarlyExit(Record, frozen=True, tag="early-exit"):
    """The target's first `layer` layers draft; None takes the catalogue's. `greedy`: always their best token."""

    layer: int | None = None
    greedy: bool = False


class DraftModel(Record, frozen=True, tag="model"):
    """A smaller model drafts: a key of the catalogue, a folder or a file. `greedy`: always its best token."""

    model: str
    greedy: bool = False


class WeightOptions(Record, frozen=True, rename={"weight_format": "quant", "draft_format": "draft_quant"}):
    """How a model's weights are held, and what computes with them. `ctx` in tokens; "auto" takes the best that fits.

    `keep_head`: the head stays in 16 bits, whatever the weight format. `int8_threshold`: a GPU's int8 multiplies inputs
    beyond it in 16 bits; 0 for none. `device`: "offload" keeps in memory only the layers that a draft runs through, or
    as many as `max_memory` ("8GB") allows, and the rest on disk, or beside a GPU in main memory.

    `save_quantized`: weights that bitsandbytes has quantised are cached on disk, and the next start reads them.
    `draft_format`: a draft model's own; "auto" is the target's, where the draft supports it.
    """

    weight_format: str = AUTO
    device: str = "auto"
    ctx: int | None = None
    threads: int | None = None
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD
    max_memory: str | None = None
    save_quantized: bool = False
    draft_format: str = AUTO

    @property
    def offloads(self) -> bool:
        return self.device == "offload"


class LoadRequest(Record, frozen=True):
    """A target by catalogue key, folder or GGUF file, and how to run it.

    `mode`: how to speculate, until somebody says otherwise; "auto" leaves it to `k`. `probe_every`: rounds from one
    without a draft to the next, at first.

    `draft`: "auto", "off", "early-exit", "early-exit:E", a key, a folder, or one of the records above.

    `folding`: what is typed is read as the catalogue says of the model, if it does.
    """

    model: str = "guide"
    draft: str | EarlyExit | DraftModel = "auto"
    k: str = "auto"
    weights: WeightOptions = WeightOptions()
    mode: Mode = "auto"
    probe_every: int = PROBE_EVERY
    folding: bool = True

    @classmethod
    def of(cls, model: str, **given: Any) -> Self:
        """A request from options by the names that users write: quant, device, draft, k, …"""
        weights = {field: given.pop(name) for name, field in WEIGHT_OPTIONS.items() if name in given}
        return cls(model, weights=WeightOptions(**weights), **given)

    def in_format(self, name: str) -> Self:
        """The same request in another weight format."""
        return replace(self, weights=replace(self.weights, weight_format=name))


WEIGHT_OPTIONS = dict(zip(WeightOptions.__struct_encode_fields__, WeightOptions.__struct_fields__, strict=True))
LOAD_OPTIONS = (*WEIGHT_OPTIONS, *(name for name in LoadRequest.__struct_fields__ if name not in ("model", "weights")))


class SamplingOptions(Record, frozen=True):
    """How the next token is chosen. temperature 0 is greedy; a seed makes the text repeat, and
    RANDOM_SEED does not."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None

    @property
    def said(self) -> dict[str, Any]:
        """The options that were said."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    @property
    def fixed_seed(self) -> int | None:
        """The seed under which the text repeats, if there is one."""
        return None if self.seed == RANDOM_SEED else self.seed

    def over(self, other: SamplingOptions) -> SamplingOptions:
        """What this one says, else what the other says."""
        return SamplingOptions(**{**other.said, **self.said})


class SpecWish(Record, frozen=True, tag="steer"):
    """How to draft from the next round on. Auto: the policy decides, and may decide not to. On: always, by `k` tokens;
    "auto" leaves how many to the policy. Off: never."""

    mode: Mode = "auto"
    k: str = "auto"

    @classmethod
    def of(cls, k: str, mode: Mode = "auto") -> Self:
        """What --k says, unless a mode does; no draft at all is no draft in any."""
        if k.isdecimal() and not int(k):
            return cls("off")
        said = cls() if k == "auto" else cls("on", k)
        return said if mode == "auto" else cls(mode, said.k)


def is_draft_length(k: str) -> bool:
    return k in ("auto", "heuristic") or (k.isdecimal() and len(k) < 9 and int(k) <= LONGEST_DRAFT)


class Template(Record, frozen=True):
    """How a conversation becomes text where that is not left to the model: Jinja, and texts that end an answer."""

    name: str
    source: str
    stop: tuple[str, ...] = ()


class GenerateRequest(Record, frozen=True, tag="ask"):
    """Answer a conversation, or continue a text: exactly one of `messages` and `prompt`.

    `continues`: the last message is the assistant's, and goes on where it was cut. `speculate` sets aside, for this
    answer, what the engine was last told of drafting; with `exit_layer` the target's first layers draft it, whoever
    does otherwise. `odds`: proposals that are rejected come with both probabilities, which costs a little time.
    `template` takes the place of the model's own.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingOptions = SamplingOptions()
    continues: bool = False
    speculate: bool | None = None
    exit_layer: int | None = None
    odds: bool = False
    template: Template | None = None
