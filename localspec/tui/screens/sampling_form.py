"""How the next tokens are chosen and where an answer ends, as a form. Empty fields show
the values in use and where they come from.

Knows a Tuning and changes it only when it is applied. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.screen import ModalScreen
from textual.validation import Function
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Select, Static

from localspec.config import assignments, precedence
from localspec.core.errors import UsageError
from localspec.core.requests import SAMPLING_FIELDS
from localspec.core.sanitize import one_line
from localspec.tui.control.tuning import Tuning
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.field import Field
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

LONGEST_VALUE, LONGEST_STOP = 20, 200  # characters
ENDS = "Ends at {texts}. With blanks: in quotes."
KEYS = "Tab next · {form.close} closes"


def fault(name: str, typed: str) -> str:
    """The fault of an option as typed in the form; "" if it has none."""
    try:
        match name:
            case "stop":
                assignments.words(typed)
            case "max_tokens":
                precedence.token_limit(typed)
            case _:
                precedence.chosen(name, typed)
    except UsageError as wrong:
        return wrong.message
    return ""


def what_enter_does(focused: Widget) -> str:
    match focused:
        case Select():
            return "opens the list"
        case OptionList():
            return "chooses"
        case Button(id=None):
            return "cancels"
    return "applies"


class SamplingForm(DismissedOnce, ModalScreen[bool]):
    """True when it was applied."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", "Close", key_display="Esc", id="form.close")  # an open list takes it first
    ]

    def __init__(self, tuning: Tuning) -> None:
        super().__init__()
        self.tuning = tuning
        presets = [(Content(one_line(name)), name) for name in tuning.config.all_presets]
        self.preset: Select[str] = Select(
            presets, prompt="none", value=tuning.preset or Select.NULL, compact=True, id="preset"
        )
        self.inputs = {name: self.input(name) for name in precedence.SETTABLE}
        self.wrong = Static(markup=False, id="wrong")
        self.dialog = Vertical(classes="dialog")

    def input(self, name: str) -> Field:
        check = Function(lambda typed: not fault(name, typed))
        longest = LONGEST_STOP if name == "stop" else LONGEST_VALUE
        return Field(self.value(name), compact=True, id=name, validators=check, valid_empty=True, max_length=longest)

    def value(self, name: str) -> str:
        """An option as the user set it."""
        if name == "stop":
            return self.tuning.spelled_stop
        value = self.tuning.chosen_limit if name == "max_tokens" else self.tuning.chosen.given.get(name)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    def compose(self) -> ComposeResult:
        fields = [Static("preset", markup=False), self.preset]
        for name, field in self.inputs.items():
            fields += [Static(name.replace("_", " "), markup=False), field]
        buttons = Button("Apply", variant="primary", compact=True, id="apply"), Button("Cancel", compact=True)
        with self.dialog:
            self.dialog.border_title = "Sampling"
            yield Grid(*fields)
            yield self.wrong
            yield Horizontal(*buttons)
        yield TooSmall()

    def on_mount(self) -> None:
        self.show_beneath()
        self.inputs["temperature"].focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.dialog.border_subtitle = Content(f"Enter {what_enter_does(event.widget)} · {with_keys(self, KEYS)}")

    @property
    def chosen(self) -> str | None:
        return None if self.preset.is_blank() else str(self.preset.value)

    def show_beneath(self) -> None:
        for name, field in self.inputs.items():
            field.placeholder = self.tuning.unset_words(name, self.chosen)

    @on(Select.Changed)
    def change_preset(self, event: Select.Changed) -> None:
        """A preset that is chosen applies as it is: options that were set besides are taken away."""
        event.stop()
        if self.chosen != self.tuning.preset:
            for name in SAMPLING_FIELDS:
                self.inputs[name].value = ""
        self.show_beneath()

    @on(Input.Changed)
    def check(self, event: Input.Changed) -> None:
        event.stop()
        self.wrong.update(self.first_fault() or self.how_read())

    def first_fault(self) -> str:
        faults = (fault(name, field.value) for name, field in self.inputs.items() if field.value)
        return next(filter(None, faults), "")

    def how_read(self) -> str:
        """The stop texts, where blanks have made several of them."""
        texts = assignments.words(self.inputs["stop"].value)
        quoted = [assignments.quoted(assignments.plain(word)) for word in texts]
        return ENDS.format(texts=one_line(" or ".join(quoted))) if len(texts) > 1 else ""

    @on(Button.Pressed)
    def press(self, event: Button.Pressed) -> None:
        event.stop()
        self.apply() if event.button.id == "apply" else self.dismiss(False)

    @on(Input.Submitted)
    def apply(self) -> None:
        if wrong := self.first_fault():
            self.wrong.update(wrong)
            next(field for name, field in self.inputs.items() if field.value and fault(name, field.value)).focus()
            return
        self.tuning.use_preset(self.chosen)
        self.tuning.apply([*self.pairs()])
        self.dismiss(True)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The fields as `/set` takes them: a field of stop texts has any number, and an empty one none."""
        for name, field in self.inputs.items():
            if name != "stop":
                yield name, field.value
        for word in assignments.words(self.inputs["stop"].value) or ["none"]:
            yield "stop", assignments.plain(word)
