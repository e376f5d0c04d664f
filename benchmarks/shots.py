"""Takes the README's pictures: the real chat on the built-in model, without a terminal.

    .venv/bin/python -m benchmarks.shots        writes assets/shots/*.svg; or: make shots

The same words every time, since the model is greedy; the figures are this machine's.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.program import Arguments, run

FOLDER = Path(__file__).parents[1] / "assets" / "shots"
EARLIER = ("How do I stop an answer?", "What is early exit?", "Where are my chats kept?")  # each a chat of its own
QUESTION = "What is speculative decoding?"
SIZE = (100, 30)
WIDE = (140, 36)  # the sidebar shows itself from here on
PATIENCE_SECONDS = 300
TERMINAL_ID = re.compile(r"terminal-\d+-")  # Rich numbers every picture anew


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not predicate():
            await asyncio.sleep(0.05)


async def take() -> None:
    from textual.pilot import Pilot

    from localspec.core.requests import LoadRequest
    from localspec.history import NewChat, Writer
    from localspec.runtime.worker import EngineProcess
    from localspec.tui.app import ChatApp
    from localspec.tui.chat.recorder import HistoryRecorder
    from localspec.tui.screens.compare import CompareScreen

    sink = Writer()
    app = ChatApp(lambda: EngineProcess(LoadRequest("guide")), recorder=HistoryRecorder(sink, NewChat("guide")))

    async def ask(pilot: Pilot[None], question: str) -> None:
        before = len(app.chat.conversation.branch)
        app.chat.prompt.give(question)
        await pilot.press("enter")
        await until(lambda: len(app.chat.conversation.branch) == before + 2 and app.chat.state.phase == "idle")

    async def compare(pilot: Pilot[None]) -> None:
        await pilot.press("f3", "f6")
        await until(lambda: isinstance(app.screen, CompareScreen) and app.screen.over)
        await shoot(pilot, "compare")
        await pilot.press("escape")
        await until(lambda: app.screen is app.chat)

    async def shoot(pilot: Pilot[None], name: str) -> None:
        app.chat.prompt.cursor_blink = False
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="localspec", simplify=True)
        (FOLDER / f"{name}.svg").write_text(TERMINAL_ID.sub("terminal-", picture), encoding="utf-8")
        print(FOLDER / f"{name}.svg")

    FOLDER.mkdir(parents=True, exist_ok=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.chat.state.phase in {"idle", "gone"})
        await shoot(pilot, "empty")
        for question in EARLIER:  # these also time plain rounds
            await ask(pilot, question)
            await pilot.press("ctrl+n")
            await until(lambda: not app.chat.conversation.branch)
        await ask(pilot, QUESTION)
        await pilot.press("shift+f3", "f3")  # from now on it is kept how probable the rejected ones were
        await ask(pilot, "Does drafting make answers worse?")
        await shoot(pilot, "answer")
        await pilot.press("shift+f3")
        await shoot(pilot, "tokens")
        await compare(pilot)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: len(app.chat.sidebar.list.options) > len(EARLIER) + 1)
        await shoot(pilot, "wide")
        await pilot.press("f1")
        await shoot(pilot, "help")
    if trouble := sink.close():
        raise SystemExit(trouble.message)


def main(words: Sequence[str]) -> None:
    Arguments("shots", __doc__).parse_args(words)
    with tempfile.TemporaryDirectory() as own:  # nobody's own chats are in the pictures
        os.environ["LOCALSPEC_DATA_DIR"] = os.environ["LOCALSPEC_STATE_DIR"] = own
        asyncio.run(take())


if __name__ == "__main__":
    sys.exit(run(main))
