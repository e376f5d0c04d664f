"""What a reader asks of an engine: load this, answer that. Records that cross the pipe; None is "no value given".

Knows nothing about who asks or how it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints  # Any: each option has a type of its own

import msgspec
from msgspec.structs import replace

from localspec.core.arguments import check_fields, check_names
from localspec.core.errors import UsageError
from localspec.core.events import DraftLength, Mode, Record
from localspec.core.weight_formats import AUTO, INT8_THRESHOLD

Role = Literal["system", "user", "assistant"]
PROBE_EVERY = 16  # rounds
ProbeEvery = Annotated[int, msgspec.Meta(ge=2, le=4096)]
RANDOM_SEED = -1  # a new one every time, also where an option of lower precedence has a seed
MAX_DRAFT = 16  # tokens
LEAST_CONTEXT = 32  # tokens; a template alone takes more than half of them
MOST_BEAMS = 64
MOST_LIKELIEST = 20  # log-probabilities beside a token's own; as many as OpenAI gives
MOST_TOKENS = 1 << 20  # of one answer, where the user sets a limit
MOST_PARALLEL = 64  # answers at once
LONGEST_NUMBER = 8  # digits: Python refuses to read thousands of them
SUCH = 'Write {"role": "user", "content": "Hello"}, for example.'


class Message(Record, frozen=True):
    """One turn of a conversation, as plain text."""

    role: Role
    content: str

    @classmethod
    def of(cls, message: Message | dict[str, Any]) -> Message:
        """The record of a message that may come as a plain dict. UsageError if it is not a message."""
        if isinstance(message, Message):
            return message
        if set(message) != {"role", "content"} or message["role"] not in get_args(Role):
            fault = "A message has a role (system, user or assistant) and a content, and nothing else."
            raise UsageError(fault, hint=SUCH)
        if not isinstance(message["content"], str):
            raise UsageError("A message's content must be text.", hint=SUCH)
        return cls(message["role"], message["content"])


class DraftRequest(Record, frozen=True):
    """A drafter by the name of its row in DRAFTERS, or "auto" or "off". `greedy`: it drafts its most likely token;
    `lookup`: a look-up in front of it drafts, too."""

    kind: str
    argument: str = ""
    greedy: bool = False
    lookup: bool = False


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


Size = Annotated[str, msgspec.Meta(title="text, e.g. '8GB'")]
AskedDraft = str | EarlyExit | DraftModel  # as --draft or as a record
WrittenLength = Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT)] | Literal["auto", "heuristic"]  # in files
AskedLength = Annotated[str | int, msgspec.Meta(title=f"auto, heuristic, or a whole number from 0 to {MAX_DRAFT}")]


class WeightOptions(Record, frozen=True, rename={"weight_format": "quant", "draft_format": "draft_quant"}):
    """How a model's weights are held, and what computes with them. `ctx` in tokens; "auto" takes the best that fits.

    `keep_head`: the head stays in 16 bits, whatever the weight format. `int8_threshold`: a GPU's int8 multiplies inputs
    beyond it in 16 bits; 0 for none. `device`: "offload" keeps in memory only the layers that a draft runs through, or
    as many as `max_memory` ("8GB") allows, and the rest on disk, or beside a GPU in main memory.

    `save_quantized`: weights that bitsandbytes has quantised are cached on disk, and the next start reads them.
    `draft_format`: a draft model's own; "auto" is the target's, where the draft supports it. `parallel`: how many
    answers are written at once, each with a context of its own; "auto" for as many as fit, up to four.
    """

    weight_format: str = AUTO
    device: str = "auto"
    ctx: int | None = None
    threads: int | None = None
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD
    max_memory: Size | None = None
    save_quantized: bool = False
    draft_format: str = AUTO
    parallel: int | Literal["auto"] = 1

    @property
    def offloads(self) -> bool:
        return self.device == "offload"


class LoadRequest(Record, frozen=True):
    """A target by catalogue key, folder or GGUF file, and how to run it.

    `mode`: how to speculate, until it is steered; "auto" leaves it to `k`. `probe_every`: rounds from one
    without a draft to the next, at first.

    `draft`: "auto", "off", a drafter's name ("early-exit:E"), a key, a folder, or one of the records above.

    `folding`: what the user types is corrected, if models.toml has a [folding] table for the model.
    """

    model: str = "guide"
    draft: AskedDraft = "auto"
    k: DraftLength = "auto"
    weights: WeightOptions = WeightOptions()
    mode: Mode = "auto"
    probe_every: ProbeEvery = PROBE_EVERY
    folding: bool = True

    @classmethod
    def of(cls, model: str, **given: Any) -> Self:
        """A request from options by the names that users write: quant, device, draft, k, …"""
        check_names(given, LOAD_OPTIONS)
        weights = {field: given.pop(name) for name, field in WEIGHT_OPTIONS.items() if name in given}
        return cls(model, weights=WeightOptions(**weights), **given)

    def in_format(self, name: str) -> Self:
        """This request in another weight format."""
        return replace(self, weights=replace(self.weights, weight_format=name))

    def drafting_in(self, name: str) -> Self:
        """This request with a draft model in another weight format."""
        return replace(self, weights=replace(self.weights, draft_format=name))


WEIGHT_OPTIONS = dict(zip(WeightOptions.__struct_encode_fields__, WeightOptions.__struct_fields__, strict=True))
LOAD_OPTIONS = (*WEIGHT_OPTIONS, *(name for name in LoadRequest.__struct_fields__ if name not in ("model", "weights")))


def option(low: float, high: float, metavar: str, about: str) -> msgspec.Meta:
    """A sampling option's range, and its flag's help."""
    return msgspec.Meta(ge=low, le=high, description=about, extra={"metavar": metavar})


class SamplingOptions(Record, frozen=True, forbid_unknown_fields=True):
    """How the next token is chosen. An option that is not given is the model's own.

    temperature 0 is greedy; with a seed the text repeats, and with -1 it does not.
    """

    # Flags, tables, forms and checks are made from these fields.

    temperature: (
        Annotated[float, option(0, 100, "T", "Sampling temperature; 0 is greedy.  [default: the model's, or 0.7]")]
        | None
    ) = None
    top_k: Annotated[int, option(0, 1 << 22, "N", "Sample from the N most likely tokens.")] | None = None
    top_p: (
        Annotated[float, option(1e-9, 1, "P", "Sample from the most likely tokens up to this probability.")] | None
    ) = None
    min_p: Annotated[float, option(0, 1, "P", "Drop tokens below this share of the most likely one.")] | None = None
    repetition_penalty: (
        Annotated[float, option(0.01, 100, "R", "Penalty for repeated tokens; above 1 repeats less.")] | None
    ) = None
    seed: (
        Annotated[
            int,
            option(RANDOM_SEED, (1 << 63) - 1, "N", "Random seed: reproducible output, independent of the drafter."),
        ]
        | None
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
        """Merges: these options, and the other's where these have no value."""
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
        """The range in words, for messages."""
        random = f" ({RANDOM_SEED}: another each time)" if self.low == RANDOM_SEED else ""
        return f"a {'whole ' if self.kind is int else ''}number from {self.low} to {self.high}{random}"


SAMPLING_FIELDS = {
    name: SamplingField.read(hint) for name, hint in get_type_hints(SamplingOptions, include_extras=True).items()
}


class SpecOptions(Record, frozen=True, tag="steer"):
    """How to draft from the next round on. Auto: the policy decides, and may decide not to. On: always, by `k` tokens;
    "auto" leaves how many to the policy. Off: never."""

    mode: Mode = "auto"
    k: DraftLength = "auto"

    @classmethod
    def of(cls, k: DraftLength, mode: Mode = "auto") -> Self:
        """The mode that a draft length implies, unless another is given; 0 is off in any."""
        if k == 0:
            return cls("off")
        options = cls() if k == "auto" else cls("on", k)
        return options if mode == "auto" else cls(mode, options.k)

    @property
    def checked(self) -> SpecOptions:
        """The same with a valid length; on with 0 is off. UsageError for an invalid length."""
        k = draft_length(self.k)
        return SpecOptions.of(k) if self.mode == "on" and k != "auto" else SpecOptions(self.mode, k)


class ChangeDrafter(Record, frozen=True, tag="drafter"):
    """Draft otherwise from now on, for the model that is loaded: its weights and the conversation stay. The fields are
    those of LoadRequest and its weights."""

    draft: AskedDraft = "auto"
    k: DraftLength = "auto"
    mode: Mode = "auto"
    draft_format: str = AUTO


def read_draft_length(written: str | int) -> DraftLength | None:
    """A draft length as --k, LOCALSPEC_K or /k has it; None if it is invalid."""
    match written:
        case "auto" | "heuristic":
            return written
        case str() if not written.isdecimal() or len(written) > LONGEST_NUMBER:
            return None
        case bool():
            return None
    return int(written) if 0 <= int(written) <= MAX_DRAFT else None


def draft_length(written: str | int) -> DraftLength:
    """Parses a draft length; UsageError if it is invalid."""
    found = read_draft_length(written)
    if found is None:
        raise UsageError(f"'{written}' is not a draft length.", hint=f"Use --k auto, heuristic, or 0 to {MAX_DRAFT}.")
    return found


class Template(Record, frozen=True):
    """How a conversation becomes text where that is not left to the model: Jinja, and texts that end an answer."""

    name: str
    source: str
    stop: tuple[str, ...] = ()


class Reference(Record, frozen=True):
    """A text that a look-up may copy from, beside the conversation: an answer on another branch of the chat, a file, or
    an answer in a kept chat. `name` is the user's word for it. `before`: the last messages that an answer follows."""

    kind: Literal["branch", "file", "chat"]
    name: str
    text: str
    before: tuple[Message, ...] = ()


class GenerateRequest(Record, frozen=True, tag="ask"):
    """Answer a conversation, or continue a text: exactly one of `messages` and `prompt`.

    `continues`: the last message is the assistant's, and goes on where it was cut. `spec` sets aside, for this answer,
    how the engine speculates; `speculate` does so, too, and without probes: with drafts or without; with `exit_layer`
    the target's first layers draft it, whatever the usual drafter. `draft_probabilities`: rejected proposals come with
    both probabilities, which costs a little time.
    `template` replaces the model's own. `references`: texts that a look-up may copy from, of a kind the newest first;
    they change no answer. `beams`: so many texts are searched for the likeliest, without drafts; 1 is no search.
    `logprobs`: tokens come with their log-probabilities to the target, before temperature and cuts, and with those of
    so many of the likeliest at their position.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingOptions = SamplingOptions()
    continues: bool = False
    spec: SpecOptions | None = None
    speculate: bool | None = None
    exit_layer: int | None = None
    draft_probabilities: bool = False
    template: Template | None = None
    references: tuple[Reference, ...] = ()
    beams: int = 1
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """UsageError for anything but text, and for invalid Unicode, such as half of a character that needs two."""
        check_fields(self, "messages", "prompt", "stop")
        texts = (self.prompt or "", *(message.content for message in self.messages or ()), *self.stop)
        if not all(is_text(text) for text in texts):
            raise UsageError("The text has characters that are not valid Unicode.", hint="Convert it to UTF-8 first.")


AnyRequest = GenerateRequest | SpecOptions | ChangeDrafter
"""What an engine that is open is asked."""


def is_text(text: str) -> bool:
    """Whether every character can be written as UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole(text: str) -> str:
    """The text with U+FFFD in place of every lone surrogate."""
    return text if is_text(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
