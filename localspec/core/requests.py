"""What a reader asks of an engine: load this, answer that. Records that cross the pipe; None is "no value given".

Knows nothing about who asks or how it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints  # Any: each option has a type of its own

import msgspec

from localspec.core.errors import UsageError
from localspec.core.events import DraftLength, Mode, Record
from localspec.core.weight_formats import INT8_THRESHOLD

Role = Literal["system", "user", "assistant"]
PROBE_EVERY = 16  # rounds
RANDOM_SEED = -1  # a new one every time, also where an option of lower precedence has a seed
MAX_DRAFT = 16  # tokens
LONGEST_NUMBER = 8  # digits: Python refuses to read thousands of them


class Message(Record, frozen=True):
    """One turn of a conversation, as plain text."""

    role: Role
    content: str


class DraftRequest(Record, frozen=True):
    """A drafter by the name of its row in DRAFTERS, or "auto" or "off". `greedy`: it drafts its most likely token."""

    kind: str
    argument: str = ""
    greedy: bool = False


class EarlyExit(Record, frozen=True, tag="early-exit"):
    """The target's first `layer` layers draft; None takes the catalogue's. `greedy`: always their best token."""

    layer: int | None = None
    greedy: bool = False

    @property
    def request(self) -> DraftRequest:
        return DraftRequest("early-exit", "" if self.layer is None else str(self.layer), self.greedy)


class DraftModel(Record, frozen=True, tag="model"):
    """A smaller model drafts: a key of the catalogue, a folder or a file. `greedy`: always its best token."""

    model: str
    greedy: bool = False

    @property
    def request(self) -> DraftRequest:
        return DraftRequest("model", self.model, self.greedy)


AskedDraft = str | EarlyExit | DraftModel  # as --draft or as a record


class LoadRequest(Record, frozen=True):
    """A target by catalogue key, folder or GGUF file, and how to run it. `ctx` in tokens.

    `keep_head`: in 16 bits, whatever `quant`. `int8_threshold`: inputs beyond it are multiplied in 16 bits by a GPU's
    int8; 0 for none. `device`: "offload" keeps in memory only what a draft runs through, or as many layers as
    `max_memory` ("8GB") allows, and the rest on disk, or beside a GPU in main memory.

    `save_quantized`: what bitsandbytes makes of the weights is kept on disk, and the next start reads that.

    `mode`: how to speculate, until somebody says otherwise; "auto" leaves it to `k`. `probe_every`: rounds from one
    without a draft to the next, at first.

    `draft_quant`: a draft model's own format; "auto" is the target's, where the draft can have it.

    `draft`: "auto", "off", a drafter's name ("early-exit:E"), a key, a folder, or one of the records above.

    `folding`: what is typed is read as the catalogue says of the model, if it does.
    """

    model: str = "guide"
    draft: AskedDraft = "auto"
    quant: str = "auto"
    device: str = "auto"
    ctx: int | None = None
    k: DraftLength = "auto"
    threads: int | None = None
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD
    max_memory: str | None = None
    mode: Mode = "auto"
    probe_every: int = PROBE_EVERY
    save_quantized: bool = False
    draft_quant: str = "auto"
    folding: bool = True


def option(low: float, high: float, metavar: str, about: str) -> msgspec.Meta:
    """A sampling option's range, and its flag's help."""
    return msgspec.Meta(ge=low, le=high, description=about, extra={"metavar": metavar})


class SamplingOptions(Record, frozen=True, forbid_unknown_fields=True):
    """How the next token is chosen, from a flag, a file, the chat or Python; None leaves it to what comes next. Its
    fields are the options: flags, tables, forms and checks are made from them.

    temperature 0 is greedy; with a seed the text repeats, and with RANDOM_SEED it does not.
    """

    temperature: Annotated[float, option(0, 100, "T", "0 is greedy.  [default: the model's]")] | None = None
    top_k: Annotated[int, option(0, 1 << 22, "N", "Keep the N likeliest tokens.")] | None = None
    top_p: Annotated[float, option(1e-9, 1, "P", "Keep the likeliest tokens up to this mass.")] | None = None
    min_p: Annotated[float, option(0, 1, "P", "Drop tokens below this share of the likeliest.")] | None = None
    repetition_penalty: Annotated[float, option(0.01, 100, "R", "Above 1: repeat less.")] | None = None
    seed: (
        Annotated[int, option(RANDOM_SEED, (1 << 63) - 1, "N", "The same text every time, whatever drafts.")] | None
    ) = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that have a value."""
        return {name: value for name in SAMPLING_FIELDS if (value := getattr(self, name)) is not None}

    @property
    def fixed_seed(self) -> int | None:
        """The seed under which the text repeats, if there is one."""
        return None if self.seed == RANDOM_SEED else self.seed

    def over(self, other: SamplingOptions) -> SamplingOptions:
        """These options, and the other's where these have no value."""
        return SamplingOptions(**{**other.given, **self.given})


@dataclass(frozen=True, slots=True)
class SamplingField:
    """One sampling option: its type, its range, and its flag's help."""

    kind: type[int] | type[float]
    low: float
    high: float
    metavar: str
    about: str

    @classmethod
    def read(cls, hint: Any) -> Self:
        """The field of a hint as SamplingOptions has them."""
        kind, meta = get_args(get_args(hint)[0])
        return cls(kind, meta.ge, meta.le, meta.extra["metavar"], meta.description)

    def takes(self, value: Any) -> bool:
        number = isinstance(value, Integral if self.kind is int else Real) and not isinstance(value, bool)
        return number and bool(self.low <= value <= self.high)

    @property
    def range(self) -> str:
        """In words."""
        return f"a {'whole ' if self.kind is int else ''}number from {self.low} to {self.high}"


SAMPLING_FIELDS = {
    name: SamplingField.read(hint) for name, hint in get_type_hints(SamplingOptions, include_extras=True).items()
}


class SpecWish(Record, frozen=True, tag="steer"):
    """How to draft from the next round on. Auto: the policy decides, and may decide not to. On: always, by `k` tokens;
    "auto" leaves how many to the policy. Off: never."""

    mode: Mode = "auto"
    k: DraftLength = "auto"

    @classmethod
    def of(cls, k: DraftLength, mode: Mode = "auto") -> Self:
        """The mode that a draft length implies, unless another is given; 0 is off in any."""
        if k == 0:
            return cls("off")
        said = cls() if k == "auto" else cls("on", k)
        return said if mode == "auto" else cls(mode, said.k)


def read_draft_length(written: str | int) -> DraftLength | None:
    """A draft length as --k, LOCALSPEC_K or /k has it; None if it is none."""
    match written:
        case "auto" | "heuristic":
            return written
        case str() if not written.isdecimal() or len(written) > LONGEST_NUMBER:
            return None
        case bool():
            return None
    return int(written) if 0 <= int(written) <= MAX_DRAFT else None


def draft_length(written: str | int) -> DraftLength:
    """The same; UsageError if it is none."""
    found = read_draft_length(written)
    if found is None:
        raise UsageError(f"'{written}' is not a draft length.", hint=f"Use --k auto, heuristic, or 0 to {MAX_DRAFT}.")
    return found


class Template(Record, frozen=True):
    """How a conversation becomes text where that is not left to the model: Jinja, and texts that end an answer."""

    name: str
    source: str
    stop: tuple[str, ...] = ()


class GenerateRequest(Record, frozen=True, tag="ask"):
    """Answer a conversation, or continue a text: exactly one of `messages` and `prompt`.

    `continues`: the last message is the assistant's, and goes on where it was cut. `speculate` sets aside, for this
    answer, the engine's current mode; with `exit_layer` the target's first layers draft it, whatever the usual
    drafter. `draft_probabilities`: rejected proposals come with both probabilities, which costs a little time.
    `template` replaces the model's own.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingOptions = SamplingOptions()
    continues: bool = False
    speculate: bool | None = None
    exit_layer: int | None = None
    draft_probabilities: bool = False
    template: Template | None = None
