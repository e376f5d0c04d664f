"""The events that screen, Python, pipe and JSON lines share: frozen records, distinguished by `type`.

A generation is (Waiting | Prefill)*, (Step | Text | Notice)*, Done or Failure; Steered may come at any time, also
outside of one.
Knows nothing about engines or readers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Source = Literal["draft", "bonus", "fix", "plain", "edited"]
FinishReason = Literal["stop", "length", "context", "cancelled", "error"]
Mode = Literal["on", "auto", "off"]
DraftLength = int | Literal["auto", "heuristic"]


class Record(msgspec.Struct, frozen=True, omit_defaults=False):
    """A part of an event."""


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """An event that a reader may show."""

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class Origin(Record, frozen=True):
    """The text that looked-up tokens were copied from: the conversation itself, another branch of the chat, a file, or
    a kept chat; `position`: the first copied token in it."""

    kind: Literal["conversation", "branch", "file", "chat"]
    name: str = ""
    position: int = 0


class Proposal(Record, frozen=True):
    """A drafted token that the target rejected, with its probability to both, given what the draft had before it: sent
    where `draft_probabilities` were asked for."""

    id: int
    text: str
    p_drafter: float | None = None
    p_target: float | None = None


class Likely(Record, frozen=True):
    """A token that could stand at a position, with its log-probability there."""

    id: int
    text: str
    logprob: float


class Token(Record, frozen=True):
    """One committed token: its source; if it was drafted, its position in the draft and the kind of its `drafter`.

    "edited" is a word of the user's in an answer: never encoded, its `id` is -1. `text` is "" while the token ends
    inside a character; the token that completes it carries the whole. `logprobs`, where they were asked for: its own,
    then the likeliest.
    """

    id: int
    text: str
    source: Source
    pos: int | None = None
    logprobs: tuple[Likely, ...] = ()
    alt: Proposal | None = None
    drafter: str = ""


class ModelCard(Record, frozen=True):
    """The loaded target. `quant` is the weight format, `context_max` in tokens; `layers` 0: unknown. `revision` is the
    version of the weights; `sampling` its own sampling defaults, by option. `server`: the address of a server that runs
    it elsewhere; of such a one only what the server says is known."""

    name: str
    quant: str
    device: str
    context_max: int
    chat: bool
    layers: int = 0
    revision: str = ""
    sampling: dict[str, int | float] = {}
    server: str = ""

    @property
    def is_offloaded(self) -> bool:
        """Whether layers are read from elsewhere for every round; `device` then names both."""
        return " and " in self.device


class SpecCard(Record, frozen=True):
    """The drafter: kind "lookup", "model", "early-exit" or "off" where there is none; `reason` says why. `lookup`: a
    look-up in front of it drafts, too.

    Kind "server": a server speculates, or does not; `name` is what it says of that, and `reason` why it cannot be
    switched from here, "" if it can.

    `mode`: "on" drafts `k` tokens, "auto" lets a policy decide, "off" is the user's choice. `translated`: the draft
    model has another tokenizer.
    """

    kind: str
    name: str = ""
    k: DraftLength = "auto"
    reason: str = ""
    exit_layer: int | None = None
    mode: Mode = "auto"
    lookup: bool = False
    translated: bool = False

    @property
    def switch(self) -> Mode:
        """The mode in effect: "off" without a drafter."""
        return "off" if self.kind == "off" else self.mode


class Memory(Record, frozen=True):
    """Bytes of the weights and the KV caches, the measured memory bandwidth, and the memory of the device, 0 if
    unknown."""

    target_bytes: int
    drafter_bytes: int
    kv_bytes: int
    bandwidth_peak_gbs: float | None = None
    device_bytes: int = 0


def per_second(count: int, milliseconds: float) -> float:
    return 1000 * count / milliseconds if milliseconds else 0.0


def share_accepted(accepted: int, rejected: int) -> float | None:
    """The share of tested draft tokens that was accepted; None where none was tested."""
    tested = accepted + rejected
    return accepted / tested if tested else None


class DrafterSums(Record, frozen=True):
    """The tokens that drafters of one kind proposed in a generation; those that were neither accepted nor rejected
    were never tested."""

    drafted: int = 0
    accepted: int = 0
    rejected: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        return share_accepted(self.accepted, self.rejected)


class Stats(Record, frozen=True):
    """The sums of one generation. Rates are properties, added to JSON by `stats.to_dict`. Times in milliseconds.

    `draft_kind` is a drafter's, "off" for none; of a server's answer "server" where the server reports its drafts,
    "unreported" where it does not, and "shared" where only totals are known that other users are in.
    """

    prompt_n: int = 0
    cached_n: int = 0
    prompt_ms: float = 0.0
    ttft_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_kind: str = "off"
    draft_rounds: int = 0
    plain_rounds: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_n_rejected: int = 0
    draft_n_ignored: int = 0
    accepted_counts: tuple[int, ...] = ()
    """accepted_counts[j]: drafted rounds that accepted exactly j tokens."""
    tested_counts: tuple[int, ...] = ()
    """tested_counts[j]: drafted rounds whose first j tokens were accepted or rejected, and the rest ignored."""
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    baseline_tps: float | None = None
    speedup: float | None = None
    target_bytes: int = 0
    drafter_bytes: int = 0
    kv_bytes: int = 0
    peak_bytes: int = 0
    read_bytes: int = 0
    """Weight bytes that the generation's forwards had to read."""
    bandwidth_peak_gbs: float | None = None
    context_used: int = 0
    context_max: int = 0
    finish_reason: FinishReason | None = None
    stop_text: str = ""
    """The stop text that ended the answer, of those that were asked for; `finish_reason` is "stop" then."""
    loops: bool = False
    """The chat stopped the answer, which repeated itself; `finish_reason` is "stop" then, too."""
    read_as: str = ""
    """The question as the model read it, where that is not as it was typed."""
    by_drafter: dict[str, DrafterSums] = {}
    """The drafted tokens by the kind of drafter that proposed them."""

    @property
    def predicted_per_second(self) -> float:
        return per_second(self.predicted_n, self.predicted_ms)

    @property
    def acceptance_rate(self) -> float | None:
        return share_accepted(self.draft_n_accepted, self.draft_n_rejected)

    @property
    def rounds(self) -> int:
        return self.draft_rounds + self.plain_rounds

    @property
    def tokens_per_step(self) -> float:
        return self.predicted_n / self.rounds if self.rounds else 0.0

    @property
    def mean_accept_len(self) -> float | None:
        """1 + accepted per drafted round, as vLLM counts it."""
        return 1 + self.draft_n_accepted / self.draft_rounds if self.draft_rounds else None

    @property
    def accept_per_pos(self) -> tuple[float, ...]:
        """The acceptance rate of each draft position, among the rounds that tested it."""
        tested = [sum(self.tested_counts[i:]) for i in range(1, len(self.tested_counts))]
        return tuple(sum(self.accepted_counts[i:]) / n for i, n in enumerate(tested, start=1) if n)

    @property
    def overhead_ms(self) -> float:
        return max(0.0, self.predicted_ms - self.draft_ms - self.verify_ms)

    @property
    def bandwidth_gbs(self) -> float | None:
        return self.read_bytes / self.predicted_ms / 1e6 if self.predicted_ms and self.read_bytes else None


class Loading(Event, frozen=True):
    """Progress of loading or of a measurement. `stage` describes it; `unit` is "bytes", "steps" or "answers", of a
    measurement "percent"."""

    stage: str
    done: int
    total: int
    unit: str = "bytes"
    eta_s: float | None = None


class Ready(Event, frozen=True):
    """The model is ready for questions, `parallel` of which it answers at once."""

    model: ModelCard
    spec: SpecCard
    memory: Memory
    parallel: int = 1


class Steered(Event, frozen=True):
    """Speculation changed: later rounds are drafted as in `spec`."""

    spec: SpecCard


class Prefill(Event, frozen=True):
    """Progress of the prefill, in tokens; `cached` were in the session already."""

    done: int
    total: int
    cached: int


class Waiting(Event, frozen=True):
    """A server has not begun the answer; `reason` says why, in a few words."""

    reason: str


class Step(Event, frozen=True):
    """One round as text. drafted = accepted + len(rejected) + ignored.

    `drafters`: the kind of drafter of each drafted token. `origin`: where the looked-up ones were copied from.
    `position`: the tokens in the context before the round. `shared`: other answers had rows in its forward, so its time
    says nothing about the speed-up.

    "edited" is no round of a model: the user's text at the beginning of an answer, in no figure."""

    kind: Literal["plain", "draft", "edited"]
    tokens: tuple[Token, ...]
    drafted: int = 0
    accepted: int = 0
    ignored: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    rejected: tuple[Proposal, ...] = ()
    drafters: tuple[str, ...] = ()
    origin: Origin | None = None
    position: int = 0
    shared: bool = False

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


class Text(Event, frozen=True):
    """A piece of an answer whose tokens and rounds are not known, as most servers send it; in no figure."""

    text: str


class Notice(Event, frozen=True):
    """A message that the user should read and need not act on. level: "info" or "warning"."""

    level: Literal["info", "warning"]
    code: str
    message: str
    hint: str = ""


class Done(Event, frozen=True):
    """The generation ended, whatever the reason; `text` so far stands."""

    finish_reason: FinishReason
    stats: Stats


class Failure(Event, frozen=True):
    """The generation or the start ended in an error. `turns_over` and `prompt_n` are a ContextOverflow's."""

    code: str
    message: str
    hint: str = ""
    exit_code: int = 1
    turns_over: int = 0
    prompt_n: int = 0


AnyEvent = Loading | Ready | Steered | Waiting | Prefill | Step | Text | Notice | Done | Failure
