"""What a reader asks of an engine: load this, answer that. Records that cross the pipe; None means "not said".

Knows nothing about who asks or how it is answered.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, Self  # Any: each option has a type of its own

from localspec.core.errors import UsageError
from localspec.core.events import DraftLength, Mode, Record
from localspec.core.weight_formats import INT8_THRESHOLD

Role = Literal["system", "user", "assistant"]
PROBE_EVERY = 16  # rounds
RANDOM_SEED = -1  # another one every time, whatever those with less to say have said
MAX_DRAFT = 16  # tokens
LONGEST_NUMBER = 8  # digits: Python refuses to read thousands of them

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
