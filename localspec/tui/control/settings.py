"""How tokens are sampled, which template formats the chat, the system prompt, the theme. Knows no engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from localspec.config.assignments import assigned, words
from localspec.config.tables import OverflowPolicy
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Ready
from localspec.core.requests import SamplingOptions, Template
from localspec.core.sanitize import one_line
from localspec.models import named_templates
from localspec.models.named_templates import CHOICES
from localspec.tui.chat.starters import starter
from localspec.tui.control.command_search import did_you_mean
from localspec.tui.control.parts import ChatParts
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.screens.theme_picker import ThemePicker

NO_TEMPLATE = msgspec.structs.replace(named_templates.NO_TEMPLATE, hint="/template chatml overrides.")
OVERFLOW = "context_overflow"  # as config.toml has it for all chats
NO_SUCH_POLICY = UsageError(
    "context_overflow is ask, drop-oldest or stop.", hint="For example: /set context_overflow=ask"
)
POLICIES: dict[OverflowPolicy, str] = {
    "ask": "you are asked",
    "drop-oldest": "the oldest turns are dropped",
    "stop": "a message that does not fit stays unanswered",
}
NO_PRESET = "/preset none leaves it."
SYSTEM_SHOWN = 60  # letters of it; /system shows it whole
NO_SYSTEM = "There is no system prompt. Set one: /system TEXT"
THEME_KEPT = "Theme {name}, also at the next start: it is ui.theme in config.toml."
SYSTEM_REMOVED = "The system prompt is removed, from the next question on."


def template_words(template: Template | None) -> str:
    return one_line(template.name) if template else "auto, the model's own"


class Settings:
    """Changes hold from the next question on."""

    def __init__(self, parts: ChatParts) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.tuning, self.recorder, self.conversation = parts.tuning, parts.recorder, parts.conversation
        self.transcript = parts.transcript

    # --- how tokens are sampled

    def set(self, argument: str) -> None:
        """/set"""
        if argument:
            self.tune(lambda: self.assign(argument))
        else:
            closed = partial(self.form_closed, self.conversation.instructions)
            self.screen.app.push_screen(SamplingForm(self.tuning), closed)

    def assign(self, typed: str) -> None:
        """What to do when the context is full is this chat's own; the rest holds for all."""
        named = [word for word in words(typed) if assigned(word)[0] == OVERFLOW]
        policy = assigned(named[-1])[1] if named else None
        if named and policy not in POLICIES:
            raise NO_SUCH_POLICY
        if rest := [word for word in words(typed) if word not in named]:
            self.tuning.set(" ".join(rest))
        if policy in POLICIES:
            self.conversation.when_full = None if policy == "ask" else policy
            self.recorder.shorten(self.conversation.when_full, self.conversation.turns_left_out)

    def form_closed(self, system: str, applied: bool | None) -> None:
        if applied:
            self.tuned(system)

    def preset(self, argument: str) -> None:
        """/preset"""
        if argument:
            is_none = argument == "none" and argument not in self.tuning.config.all_presets
            self.tune(lambda: self.tuning.use_preset(None if is_none else argument))
        else:
            named, now = ", ".join(self.tuning.config.all_presets), self.tuning.preset
            leave = f" {NO_PRESET}" if now else ""
            self.feedback.hint(f"Preset: {one_line(now or 'none')}. Available: {one_line(named)}.{leave}")

    def tune(self, change: Callable[[], None]) -> None:
        """A change of how tokens are chosen."""
        system = self.conversation.instructions
        try:
            change()
        except UsageError as fault:
            self.feedback.refuse(str(fault))
        else:
            self.tuned(system)

    def tuned(self, system_before: str) -> None:
        """Keeps what was changed, and says what holds now: a preset may have a system prompt, too."""
        self.recorder.change(preset=self.tuning.preset)
        self.state.show_info()
        policy = self.conversation.when_full or self.tuning.config.chat.context_overflow
        full = [] if policy == "ask" else [f"when the context is full, {POLICIES[policy]}"]
        now = one_line(" · ".join([self.tuning.words, *self.system_words(system_before), *full]))
        self.feedback.hint(f"From the next question on: {now}")

    def system_words(self, before: str) -> list[str]:
        """The system prompt, if it is another than before."""
        now = self.conversation.instructions
        if now == before:
            return []
        whose = "the preset's" if now == self.tuning.preset_table.system else "the former"
        cut = "…" if len(now) > SYSTEM_SHOWN else ""
        return [f"{whose} system prompt: “{now[:SYSTEM_SHOWN]}{cut}”" if now else "no system prompt"]

    # --- the template

    def template(self, argument: str) -> None:
        """/template"""
        if argument:
            look = partial(self.look_for_template, argument, self.feedback.command)
            self.screen.run_worker(look, thread=True, exit_on_error=False, group="choose")
        else:
            named = f"Template: {template_words(self.tuning.template)}. Available: {', '.join(CHOICES)}."
            self.feedback.hint(named)

    def look_for_template(self, name: str, typed: str) -> None:
        """Runs in a thread."""
        try:
            found = named_templates.find(name)
        except LocalspecError as fault:
            self.screen.call_later(self.refuse_template, typed, fault)
        else:
            self.screen.call_later(self.use_template, found)

    def refuse_template(self, typed: str, fault: LocalspecError) -> None:
        self.feedback.give_back(typed)
        self.feedback.hint(one_line(str(fault)))

    def use_template(self, template: Template | None) -> None:
        self.tuning.template = template
        if self.state.spec is not None:
            self.state.show_spec(self.state.spec)
        self.feedback.hint(f"From the next question on: template {template_words(template)}.")

    async def welcome(self, ready: Ready) -> None:
        """Takes what the model says of sampling, and suggests a message that suits it; a base model continues texts,
        until the user names a template."""
        # A server has defaults of its own, which it does not name: only what the user sets is asked of it.
        self.tuning.own = None if ready.model.server else msgspec.convert(ready.model.sampling, SamplingOptions)
        self.transcript.suggest(starter(self.tuning.name, chats=ready.model.chat))
        if not ready.model.chat and self.tuning.template is None:
            self.tuning.template = named_templates.COMPLETION
            await self.feedback.inform(NO_TEMPLATE)

    # --- the rest

    async def system(self, argument: str) -> None:
        """/system: what is set goes for this chat alone."""
        before = self.conversation.instructions
        if argument:
            self.conversation.own_system = "" if argument == "none" else argument
            self.recorder.instruct(self.conversation.instructions)
        now = self.conversation.instructions
        none = SYSTEM_REMOVED if before else NO_SYSTEM
        await self.feedback.note(f"System prompt: {now}" if now else none)

    async def theme(self, argument: str) -> None:
        """/theme"""
        app = self.screen.app
        names = tuple(sorted(app.available_themes))
        if not argument:
            await app.push_screen(ThemePicker(names, app.theme), self.take_theme)
        elif argument in names:
            self.take_theme(argument)
        else:
            self.feedback.refuse(f"There is no theme {argument}.{did_you_mean(argument, names)} /theme lists them.")

    def take_theme(self, name: str | None) -> None:
        """Takes a theme, and says where it is kept."""
        app = self.screen.app
        if name is not None:
            app.theme = name
            app.theme_changed_signal.publish(app.current_theme)  # it was being tried until now
            self.feedback.hint(THEME_KEPT.format(name=one_line(name)))
