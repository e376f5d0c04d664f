"""Chooses, loads and unloads the model and its drafter. What cannot work is refused before anything is unloaded; an
answer that is being written ends first.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from textual.message import Message
from textual.worker import get_current_worker

from localspec.core.errors import LocalspecError
from localspec.core.events import Notice
from localspec.core.requests import ChangeDrafter
from localspec.core.sanitize import one_line
from localspec.history.text.lists import short_name
from localspec.tui.chat import chosen_formats
from localspec.tui.chat.draft_length import drafter
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.speculation import Speculation
from localspec.tui.control.state import AWAY
from localspec.tui.control.tuning import ModelChoice
from localspec.tui.control.turns import Turns
from localspec.tui.screens.dialog import Dialog, DialogButton

STOP_FIRST = "Stop the answer first: press {stop}."
UNLOADED = "unloaded: the next question loads it again"
IN_USE = "This model is loaded already, with this draft."
CHANGED = "you changed the model or its drafter before it began."
CHECKING = "Checking {name}…"
LONG = 600.0  # seconds; a check ends before
SHORTER = "{name} holds {context:,} tokens of a chat; before it was {before:,}."
LEFT_OUT = "the oldest turns will have to be left out of what the model reads. Nothing is deleted."
CUTS = f"This chat has {{used:,}} tokens, and {{name}} holds {{context:,}}: {LEFT_OUT}"
ANOTHER_DRAFTER = "Drafting with {name} from now on. Was: {before}. Back: /draft {draft}"
LOAD = "load"


class Chosen(Message):
    """A model that was checked is to be loaded. `beside`: only its drafter changes, and that fits beside it."""

    def __init__(self, choice: ModelChoice, *, beside: bool = False) -> None:
        super().__init__()
        self.choice, self.beside = choice, beside


class Models:
    """An answer that is being written is stopped and saved; a question that waits goes back to the prompt."""

    def __init__(self, parts: ChatParts, turns: Turns, speculation: Speculation) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.tuning, self.recorder, self.conversation = parts.tuning, parts.recorder, parts.conversation
        self.turns, self.speculation = turns, speculation
        self.before: ModelChoice | None = None  # what was let go for the model that is being loaded
        self.drafter_before: tuple[str, str] | None = None  # its name and --draft, while another is loaded

    def choose(self, model: str, draft: str | None = None, quant: str = "") -> None:
        """Load another model, another drafter or another format, once it is known to work. Of several choices the last
        one counts."""
        if self.tuning.server:
            self.feedback.refuse(COMMANDS["model"].lack(self.tuning.server))
            return
        look = partial(self.look_up, model, draft, quant, self.feedback.command)
        self.feedback.hint(CHECKING.format(name=one_line(short_name(model))), LONG)
        self.screen.run_worker(look, thread=True, exit_on_error=False, exclusive=True, group="choose")

    def look_up(self, model: str, draft: str | None, quant: str, typed: str) -> None:
        """Runs in a thread."""
        worker, state = get_current_worker(), self.state
        try:
            choice = self.tuning.choice(model, draft, quant, held_bytes=state.held_bytes, gpu_bytes=state.gpu_bytes)
            beside = self.fits_beside(choice)
        except LocalspecError as fault:
            if not worker.is_cancelled:
                self.screen.call_later(self.refuse, fault, typed)
        else:
            if not worker.is_cancelled:
                self.screen.post_message(Chosen(choice, beside=beside))

    def refuse(self, fault: LocalspecError, typed: str) -> None:
        """What is loaded stays; what was typed can be mended."""
        self.feedback.status.end_hint()
        self.feedback.give_back(typed)
        self.feedback.warn(fault)

    def fits_beside(self, choice: ModelChoice) -> bool:
        """Whether only the drafter is another, and can be put beside the loaded model. Reads what memory is free."""
        from localspec.runtime.precheck import fits_beside  # imports psutil

        model, now, load = self.state.model, self.tuning.load, choice.load
        as_now = msgspec.structs.replace(load, draft=now.draft, k=now.k, mode=now.mode)
        as_now = as_now.drafting_in(now.weights.draft_format)
        if model is None or not self.is_there or choice.checked is None or as_now != now:
            return False
        return fits_beside(load, choice.checked.draft, model, held_bytes=self.state.tally.stats.drafter_bytes)

    async def take(self, message: Chosen) -> None:
        """Loads what was checked, unless it is loaded; asks first, where that model does not hold what the chat has."""
        self.feedback.status.end_hint()
        choice, used = message.choice, self.used
        if choice.load == self.tuning.load and self.is_there and not self.state.can_reload:
            self.feedback.hint(IN_USE)
            return
        context, before = self.contexts(choice)
        if used > context > 0:
            lines = [CUTS.format(used=used, name=choice.title, context=context)]
            dialog = Dialog(f"Load {choice.title}?", lines, [DialogButton(LOAD, f"Load {choice.title}")])
            self.screen.app.push_screen(dialog, partial(self.answer, message))
            return
        await self.change(choice, beside=message.beside)
        if 0 < context < before and used:
            shorter = SHORTER.format(name=choice.title, context=context, before=before)
            await self.feedback.inform(Notice("info", "context", shorter), answers=True)

    def answer(self, message: Chosen, reply: str | None) -> None:
        if reply == LOAD:
            self.screen.call_later(partial(self.change, message.choice, beside=message.beside))

    @property
    def is_there(self) -> bool:
        """Whether a model is in memory."""
        return self.state.model is not None and self.state.phase not in AWAY

    @property
    def used(self) -> int:
        """Tokens of the context that the chat has used, as the model that answered last counts them."""
        made = [utterance.made for utterance in self.conversation.branch if utterance.made is not None]
        return made[-1].stats.context_used if made and not self.conversation.turns_left_out else 0

    def contexts(self, choice: ModelChoice) -> tuple[int, int]:
        """The context of another model and that of the present one; 0 where it is not known, or the same."""
        before = self.state.model.context_max if self.state.model is not None else 0
        after = choice.context
        return (0, before) if after == before else (after, before)

    async def change(self, choice: ModelChoice, *, beside: bool = False) -> None:
        """Load what was chosen; an answer that is being written ends here. The conversation goes on."""
        await self.turns.break_off(CHANGED)
        is_there = self.is_there
        self.before = self.tuning.now if is_there else self.before
        self.drafter_before = self.drafter_now if choice.load.model == self.tuning.load.model else None
        self.tuning.take(choice)
        self.speculation.forget()
        self.conversation.own_model = choice.name
        self.recorder.change(model_key=choice.name, preset=self.tuning.preset)
        if beside and is_there and self.speculation.comparison is None and self.engine.feed is not None:
            self.state.enter("loading", "changing the drafter")
            load = choice.load
            self.engine.feed.change_drafter(ChangeDrafter(load.draft, load.k, load.mode, load.weights.draft_format))
        else:
            self.state.header.clear()
            self.engine.load()

    @property
    def drafter_now(self) -> tuple[str, str] | None:
        return (drafter(self.state.spec), str(self.tuning.load.draft)) if self.state.spec is not None else None

    async def welcome(self) -> None:
        """What was let go is no longer needed; a format that was chosen works, and stays. Another drafter is named,
        and how to get the one before."""
        self.before = None
        then, self.drafter_before = self.drafter_before, None
        spec, now = self.state.spec, self.drafter_now
        if then and now and spec is not None and spec.kind != "off" and then[1] != now[1]:
            text = ANOTHER_DRAFTER.format(name=now[0], before=then[0], draft=one_line(then[1]))
            await self.feedback.inform(Notice("info", "drafter", text), answers=True)
        name = self.tuning.name
        if quant := self.tuning.formats.get(name, ""):
            keep = partial(chosen_formats.keep, name, quant)
            self.screen.run_worker(keep, thread=True, exit_on_error=False, group="formats kept")

    async def unload(self) -> None:
        """Free what the engine holds. Nothing is lost: the next engine gets the whole conversation."""
        state = self.state
        if self.engine.feed is None or state.phase == "gone":
            self.feedback.hint("Nothing is loaded.")
        elif state.phase not in {"idle", "loading"}:
            stop_first = self.feedback.with_keys(STOP_FIRST)
            self.feedback.refuse(stop_first if state.answering else f"Not now: {state.status.state}")
        else:
            feed, self.engine.feed = self.engine.feed, None
            await self.turns.take_back()
            state.enter("unloaded", UNLOADED)
            await asyncio.to_thread(feed.engine.close)
