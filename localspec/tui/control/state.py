"""The chat's state and the lines that show it: header, state line, speed panel, the terminal's title.

Knows no engine and no history.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace
from textual.screen import Screen
from textual.worker import Worker

from localspec.core.events import AnyEvent, ModelCard, Ready, SpecCard, Stats, Step
from localspec.runtime.stats import Tally
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.chat.draft_length import is_long_paused, why_off
from localspec.tui.chat.info import ChatInfo
from localspec.tui.control.spec_switch import lack
from localspec.tui.control.tuning import Tuning
from localspec.tui.panels.header import Header
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.speed_panel import SpeedPanel, SpeedReading, held
from localspec.tui.panels.stats_line import StatsLine
from localspec.tui.terminal.timer import once
from localspec.tui.transcript.answer import Answer

Phase = Literal["loading", "idle", "reading", "generating", "stopping", "comparing", "benchmarking", "gone", "unloaded"]
PAUSED = "Drafting is paused, as it saves too little now"
AWAY: frozenset[Phase] = frozenset(("loading", "benchmarking", "gone", "unloaded"))  # no model is in memory here


@dataclass(frozen=True, slots=True)
class StatusLines:
    """The widgets that show the state."""

    header: Header
    status: StatsLine
    speed: SpeedPanel
    prompt: Prompt


class ChatState:
    """The phase, the model that is loaded, the turn under way, the figures. `unload` runs after a long idle time."""

    phase: Phase = "loading"
    model: ModelCard | None = None
    spec: SpecCard | None = None
    device_bytes = 0
    drafter_failed = False
    exit_code = 0  # of a start that failed
    title = ""  # of the chat
    download = ""  # that runs, in a few words

    utterance: Utterance | None = None  # the answer being written, whose widget is `answer`
    answer: Answer | None = None
    queued: Utterance | None = None  # a question that waits
    rounds: Sequence[Step] = ()  # of the last answer, where they are known
    rounds_before = 0  # of these, those that were written before the present model and drafter were loaded
    measures = False  # whether the figures are of an answer on the branch that is shown
    has_news = False  # for the figures
    pause = ""  # why nothing is drafted though it may be
    bench: Worker[None] | None = None
    rest: TimerHandle | None = None  # until the model is unloaded

    def __init__(
        self,
        screen: Screen[None],
        lines: StatusLines,
        conversation: Conversation,
        tuning: Tuning,
        *,
        unload: Callable[[], Awaitable[None]],
    ) -> None:
        self.screen, self.conversation, self.tuning = screen, conversation, tuning
        self.header, self.status, self.speed, self.prompt = lines.header, lines.status, lines.speed, lines.prompt
        self.unload = unload
        self.tally = Tally()

    # --- the phase

    @property
    def busy(self) -> bool:
        """An answer is being written or waited for: the conversation must not change under it."""
        return self.answer is not None or self.queued is not None

    @property
    def answering(self) -> bool:
        """Whether there is something to stop."""
        return self.bench is not None or self.phase in {"reading", "generating"}

    @property
    def can_reload(self) -> bool:
        return self.phase in {"gone", "unloaded"} or (self.phase == "idle" and self.drafter_failed)

    @property
    def can_draft(self) -> bool:
        """Whether there is a drafter to switch, or a page of what could be one, which a server has none of."""
        is_there = self.spec is not None and self.phase not in AWAY and not self.drafter_failed
        return is_there and not (self.tuning.server and lack(self.spec))

    @property
    def held_bytes(self) -> int:
        """Main memory that is given back before another model is loaded."""
        return 0 if self.phase in AWAY or self.gpu_bytes is not None else held(self.tally.stats)

    @property
    def gpu_bytes(self) -> int | None:
        """All memory of the GPU that the model is on, or was on last."""
        return self.device_bytes if self.model is not None and self.model.device.startswith("cuda") else None

    def enter(self, phase: Phase, words: str) -> None:
        if phase not in {self.phase, "generating"}:  # the first word of an answer contradicts no hint
            self.status.contradict_hint()
        keys = self.can_reload, self.answering, self.can_draft
        self.phase, self.status.state = phase, words
        self.prompt.cursor_blink = not self.answering  # to blink costs the model
        self.name_terminal()
        if keys != (self.can_reload, self.answering, self.can_draft):
            self.screen.refresh_bindings()
        self._rest()

    def _rest(self) -> None:
        """A chat in which nothing happens for long gives the memory back."""
        if self.rest is not None:
            self.rest.cancel()
        seconds = self.tuning.config.engine.idle_seconds
        is_idle = self.phase == "idle" and seconds is not None and not self.tuning.server
        self.rest = once(self.screen, seconds, self.unload) if is_idle and seconds is not None else None

    def name_terminal(self) -> None:
        """State and chat, for whoever looks at another window."""
        state = self.phase if self.phase in {"gone", "unloaded"} else self.status.state
        self.screen.app.title = f"{state} · {self.title or 'localspec'}"

    def forget_figures(self) -> None:
        """Drops the figures: another branch is shown."""
        self.follow_rounds(())
        self.measures = False

    def follow_rounds(self, rounds: Sequence[Step]) -> None:
        """Figures are of the answer with these rounds."""
        if rounds is not self.rounds:
            self.rounds, self.rounds_before = rounds, 0
        self.measures = True

    # --- the engine

    def begin_loading(self) -> None:
        """Forget the engine there was."""
        self.tally, self.exit_code, self.spec = Tally(), 0, None

    def count(self, event: AnyEvent) -> None:
        self.tally.add(event)
        self.has_news = True

    def welcome(self, ready: Ready) -> None:
        """A model is loaded."""
        self.exit_code = 0
        self.model, self.drafter_failed, self.device_bytes = ready.model, False, ready.memory.device_bytes
        self.rounds_before = len(self.rounds)
        self.show_spec(ready.spec)

    def lose_drafter(self) -> None:
        self.drafter_failed = True
        self.show_spec(SpecCard("off", reason="it failed"))
        self.screen.refresh_bindings()

    # --- the figures

    def show_figures(self) -> None:
        self.status.stats = self.figures
        self.has_news = False
        if self.answer is not None:
            self.answer.follow_rounds()
        self.follow_figures()

    @property
    def figures(self) -> Stats:
        """The last answer's figures, with the context of the branch, which may end elsewhere by now."""
        stats = self.tally.stats if self.answer or self.measures else Stats()
        if self.answer is not None or self.model is None:
            return stats
        then = self.conversation.counted(self.model)
        return replace(stats, context_used=then.context_used, context_max=then.context_max)

    def follow_figures(self) -> None:
        """Header, panel and state line read what was measured."""
        self.header.follow(self.reading())
        self.speed.follow()
        self.show_info()

    def reading(self) -> SpeedReading:
        """The figures for the header and the speed panel, which reads them when it is drawn."""
        meter, device = self.tally.meter, self.model.device if self.model else ""
        known = self.status.stats, meter.band, len(meter.plain.latest), self.rounds
        return SpeedReading(*known, self.spec, device, self.device_bytes, self.rounds_before)

    @property
    def own_rounds(self) -> Sequence[Step]:
        """The rounds of the last answer that the present drafter drafted for: what says how it drafts now."""
        return self.reading().own_rounds

    def show_info(self) -> None:
        """How the next answer is written; once, why this one is drafted for no more."""
        before, rounds = self.pause, self.own_rounds
        self.pause = why_off(self.spec, rounds) if is_long_paused(rounds) else ""
        if (why := self.pause) and not before and self.spec is not None and self.spec.kind != "off":
            self.status.give_hint(f"{PAUSED}: {why}. It is tried again by itself.")
        self.status.info = ChatInfo(self.tuning.preset, self.tuning.sampling.fixed_seed, self.download)

    def show_spec(self, spec: SpecCard) -> None:
        """A drafter that failed stays out, whatever the engine says of the switch."""
        if self.model is not None and not (self.drafter_failed and spec.kind != "off"):
            self.spec = spec
            self.screen.refresh_bindings()
            self.header.show(self.model, spec, self.tuning.template)
            self.show_info()
