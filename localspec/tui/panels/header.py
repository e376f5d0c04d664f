"""The line at the top: which model, how it is drafted for, where it runs, how fast. Knows nothing about chats."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.geometry import Offset
from textual.widget import Widget

from localspec.core.events import ModelCard, SpecCard, Stats
from localspec.core.requests import Template
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import SERVER
from localspec.models.named_templates import COMPLETION
from localspec.tui.chat.draft_length import NO_MODEL, drafting, explained
from localspec.tui.chat.explained import SPEED
from localspec.tui.chat.gain import against, gain
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.speed_panel import LEAST_WIDTH, SpeedReading, drafts
from localspec.tui.themes import QUIET

GAP = "   "


class Header(Widget):
    """Shows the program's name, and once the model is ready its names and figures. However long names are, the
    figures are in sight; a narrow line has the model's name and the figures only."""

    def __init__(self) -> None:
        super().__init__()
        self._loaded: tuple[ModelCard, SpecCard, Template | None] | None = None
        self._reading = SpeedReading(Stats())
        self._drawn = Content()
        self._pointed: Offset | None = None  # where the mouse is

    def clear(self) -> None:
        """Clears the line: another model is being loaded."""
        self._loaded = None
        self.follow(SpeedReading(Stats()))

    def show(self, model: ModelCard, spec: SpecCard, template: Template | None = None) -> None:
        """`template`: formats the chat instead of the model's own."""
        self._loaded = model, spec, template
        self.follow(self._reading)

    def follow(self, reading: SpeedReading) -> None:
        """Draws the reading if it differs."""
        self._reading = reading
        if not self.line.is_same(self._drawn):
            self.refresh()
            self.explain()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._pointed = event.get_content_offset(self)
        self.explain()

    def explain(self) -> None:
        """The tooltip says what the mouse is on: what drafts, or what the figures mean."""
        words = self.meaning(self._pointed.x) if self._pointed is not None else ""
        self.tooltip = Content(words) if words else None

    def meaning(self, x: int) -> str:
        """What stands in this column, in a sentence or two; "" for names that explain themselves."""
        reading, width = self._reading, self.content_size.width
        if x >= width - speed(reading).cell_length:
            return against(reading.stats, reading.band, reading.probes) if drafts(reading) else SPEED.sentence
        before, drafter, _ = self.names(width)
        is_there = before.cell_length <= x < before.cell_length + drafter.cell_length
        return explained(self._loaded[1]) if self._loaded and is_there else ""

    @property
    def line(self) -> Content:
        width, figures = self.content_size.width, speed(self._reading)
        columns = max(0, width - figures.cell_length)
        return Content("").join(self.names(width)).truncate(columns, ellipsis=True, pad=True) + figures

    def names(self, width: int) -> tuple[Content, Content, Content]:
        """The names that fit in a line of this width: those before the drafter's, that, and those after it."""
        if self._loaded is None:
            return NAME, Content(), Content()
        model, spec, template = self._loaded
        if width < LEAST_WIDTH - 2:  # the blank at either end
            return Content.styled(one_line(model.name), "bold"), Content(), Content()
        state = drafting(spec, self._reading.own_rounds)
        if state == NO_MODEL and self.is_attached:
            state += with_keys(self, " · {spec}: why?")
        drafter = (f" · {state}", QUIET) if spec.switch == "off" else (f" ⇐ {state}", "$text-secondary")
        if spec.kind == SERVER:
            drafter = f" · {state}" if state else "", QUIET
        before = Content.assemble(
            NAME,
            (f" · {one_line(model.name)}", "bold"),
            f" · {one_line(model.quant)}" if model.quant else "",
            f" · {words}" if (words := wording(model, template)) else "",
        )
        return before, Content.assemble(drafter), Content.styled(f" · {one_line(model.device)}", QUIET)

    def render(self) -> Content:
        self._drawn = self.line
        return self._drawn


NAME = Content.styled("localspec", "bold $text-accent")


def wording(model: ModelCard, template: Template | None) -> str:
    """The chat's template in words, where it is not the model's own."""
    if template is None and model.chat:
        return ""
    return "completion mode" if template is None or template == COMPLETION else one_line(f"template {template.name}")


def speed(reading: SpeedReading) -> Content:
    """The speed of the last answer."""
    stats = reading.stats
    if not stats.predicted_n or not stats.predicted_ms:
        return Content()
    pace = Content.styled(f"{GAP}{stats.predicted_per_second:.1f} tok/s", "bold")
    return Content.assemble(pace, GAP, gain(stats.speedup, reading.band)) if drafts(reading) else pace
