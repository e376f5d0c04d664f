"""Takes the README's pictures: the real chat on the built-in model, without a terminal.

    .venv/bin/python docs/shots.py        writes assets/shots/*.svg; or: make shots

The same words every time, since the model is greedy; the figures are this machine's.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "assets" / "shots"
QUESTION = "What is speculative decoding?"
SIZE = (100, 30)
WIDE = (130, 36)
PATIENCE_SECONDS = 300
TERMINAL_ID = re.compile(r"terminal-\d+-")  # Rich numbers every picture anew


async def main() -> None:
    from textual.pilot import Pilot

    from localspec.requests import LoadRequest
    from localspec.tui.app import ChatApp
    from localspec.worker import EngineProcess

    app = ChatApp(lambda: EngineProcess(LoadRequest("guide")))

    async def until(predicate: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not predicate():
                await asyncio.sleep(0.05)

    async def shoot(pilot: Pilot[None], name: str) -> None:
        app.chat.prompt.cursor_blink = False
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="localspec", simplify=True)
        (FOLDER / f"{name}.svg").write_text(TERMINAL_ID.sub("terminal-", picture), encoding="utf-8")
        print(FOLDER / f"{name}.svg")

    FOLDER.mkdir(parents=True, exist_ok=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(lambda: app.chat.phase in {"idle", "gone"})
        await shoot(pilot, "empty")
        for number, question in enumerate([QUESTION, QUESTION], start=1):  # the first also times plain rounds
            app.chat.prompt.give(question)
            await pilot.press("enter")
            await until(lambda number=number: len(app.chat.conversation.branch) == 2 * number)
            await until(lambda: app.chat.phase == "idle")
        await shoot(pilot, "answer")
        await pilot.press("shift+f3")
        await shoot(pilot, "tokens")
        await pilot.resize_terminal(*WIDE)
        await shoot(pilot, "wide")
        await pilot.press("f1")
        await shoot(pilot, "help")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as state:  # nobody's own chats are in the pictures
        os.environ["LOCALSPEC_DATA_DIR"] = state
        asyncio.run(main())
