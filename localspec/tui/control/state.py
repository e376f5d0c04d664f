"""What goes on, and the lines that say so: header, state line, speed panel, the terminal's title. Knows no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace
from textual.events import Key
from textual.screen import Screen

from localspec.core.events import ModelCard, SpecCard, Stats, Step
from localspec.history import OpenChat
from localspec.runtime.stats import Tally
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.draft_length import why_off
from localspec.tui.chat.info import Info
from localspec.tui.chat.past import conversation
from localspec.tui.chat.recorder import Scribe
from localspec.tui.control.commands import Known
from localspec.tui.control.tuning import Tuning
from localspec.tui.markdown.painter import Painter
from localspec.tui.panels.header import Header, switch
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.speed_panel import Reading, SpeedPanel, held
from localspec.tui.panels.stats_line import StatsLine
from localspec.tui.terminal.collector import Collector
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.transcript import Transcript

Phase = Literal["loading", "idle", "reading", "generating", "stopping", "comparing", "benchmarking", "gone", "unloaded"]
AWAY: frozenset[Phase] = frozenset(("loading", "benchmarking", "gone", "unloaded"))  # no model is in memory here


class StateScreen(Screen[None]):
    """Makes the widgets that a turn changes; where they stand, and what the user can press, is a subclass's."""

    phase: Phase = "loading"
    model: ModelCard | None = None
    spec: SpecCard | None = None
    device_bytes = 0
    others: tuple[str, ...] = ()  # models that the catalogue does not have, as they were at the start
    drafter_failed = False
    has_news = False  # for the figures
    answer: Answer | None = None  # while it is being written
    queued: Utterance | None = None
    rounds: Sequence[Step] = ()  # of the last answer

    def __init__(self, system: str | None, *, scribe: Scribe, past: OpenChat | None, tuning: Tuning) -> None:
        super().__init__()
        self._compositor = Painter()
        self.scribe, self.tuning, self.tally = scribe, tuning, Tally()
        self.past, self.conversation = past, conversation(past, system, tuning)
        self.title = past.chat.title if past else ""
        self.header, self.status, self.prompt = Header(), StatsLine(), Prompt(self.claims, self.known)
        self.collector = Collector(self, lambda: self.busy)
        self.transcript = Transcript(
            busy=lambda: self.busy,
            let_go=self.collector.wish,
            version=self.conversation.version,
            rounds=scribe.rounds,
            window=tuning.config.ui.window_messages,
        )
        self.speed = SpeedPanel(self.reading)
        self.speed.wish = {"auto": None, "on": True, "off": False}[tuning.config.ui.speed_panel]

    def claims(self, _event: Key) -> bool:
        """Whether a key pressed on the empty prompt is a command here instead."""
        return False

    def known(self) -> Known:
        """Those that are known without another look at the disk."""
        tuning = self.tuning
        return Known(
            presets=tuple(tuning.config.all_presets),
            themes=tuple(sorted(self.app.available_themes)),
            models=tuple(dict.fromkeys((*tuning.catalog.models, *self.others))),
            drafts=tuple(dict(tuning.entry.drafts)) if tuning.entry else (),
        )

    def watch__selecting(self) -> None:
        """What is selected may begin or end out of sight."""
        self.refresh(layout=True)

    # --- what goes on

    @property
    def busy(self) -> bool:
        """An answer is being written or waited for: the conversation must not change under it."""
        return self.answer is not None or self.queued is not None

    @property
    def answering(self) -> bool:
        return self.phase in {"reading", "generating"}

    @property
    def can_reload(self) -> bool:
        return self.phase in {"gone", "unloaded"} or (self.phase == "idle" and self.drafter_failed)

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
            self.status.end_hint()
        could_reload = self.can_reload
        self.phase, self.status.state = phase, words
        self.prompt.cursor_blink = not self.answering  # to blink costs the model
        self.name_terminal()
        if self.can_reload != could_reload:
            self.refresh_bindings()

    def name_terminal(self) -> None:
        """State and chat, for whoever looks at another window."""
        state = self.phase if self.phase in {"gone", "unloaded"} else self.status.state
        self.app.title = f"{state} · {self.title or 'localspec'}"

    # --- what was measured

    def show_figures(self) -> None:
        self.status.stats = self.figures
        self.has_news = False
        if self.answer is not None:
            self.answer.follow_rounds()
        self.follow_figures()

    @property
    def figures(self) -> Stats:
        """Of the last answer; but the context is the branch's, which may end elsewhere by now."""
        stats = self.tally.stats if self.answer or self.rounds else Stats()
        if self.answer is not None or self.model is None:
            return stats
        then = self.conversation.counted(self.model)
        return replace(stats, context_used=then.context_used, context_max=then.context_max)

    def follow_figures(self) -> None:
        """Header, panel and state line read what was measured."""
        self.header.follow(self.reading())
        self.speed.follow()
        self.show_info()

    def reading(self) -> Reading:
        """What header and speed panel show; the panel asks for it when it is drawn."""
        meter, device = self.tally.meter, self.model.device if self.model else ""
        known = self.status.stats, meter.band, len(meter.plain_ms), self.rounds
        return Reading(*known, self.spec, device, self.device_bytes)

    def show_info(self) -> None:
        """How the next answer is written, and how this one is drafted for."""
        why, before = why_off(self.spec, self.rounds), self.status.info.why
        if why and not before and self.spec is not None and self.spec.kind != "off":
            self.status.give_hint(f"Nothing is drafted at present: {why}.")
        spec = switch(self.spec) if self.spec else ""
        self.status.info = Info(self.tuning.preset, self.tuning.sampling.fixed_seed, spec, why)

    def show_spec(self, spec: SpecCard) -> None:
        """A drafter that failed stays out, whatever the engine says of the wish."""
        if self.model is not None and not (self.drafter_failed and spec.kind != "off"):
            self.spec = spec
            self.header.show(self.model, spec, self.tuning.template)
            self.show_info()
