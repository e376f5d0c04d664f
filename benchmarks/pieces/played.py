"""The chat without a piece, writing an answer in frames of the same tokens; what each frame took goes to a pipe.

python -m benchmarks.pieces.played PIECE TEXT MESSAGES FD. A frame is all that the thread of the screen spends until
what three tokens changed is laid out and painted; only then come the next.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from time import thread_time

from benchmarks.pieces.cuts import take_out
from benchmarks.timed_chat import TimedChat
from localspec.core.events import Prefill
from localspec.history import OpenChat, StoredChat, StoredMessage, Tree
from localspec.tui.markdown.pace import Pace
from localspec.tui.terminal.timer import once
from tests.support.scripted_engine import ScriptedEngine, answer, step

TOKENS_A_FRAME = 3  # 60 tokens a second, drawn 20 times
CODE_FRAMES, FIGURES_FRAMES = 5, 20  # as often as the pace draws them at that speed
LOOK_SECONDS = 0.004
PROSE = (
    "A **small drafter** guesses a few tokens, and the real model checks them *at once*; what is wrong is thrown away, "
    "so that the text `stays` the same, whoever drafted it.\n\n"
)
NESTED = "".join(
    f"{i}. item {i} of a list, with `code` in it\n   - inner one\n   - inner two, **bold**\n" for i in "123"
)
STEP = "def step(self, k):\n    draft = self.drafter.draft(self.tokens, k)\n\n"
CODE = f"```python\n{STEP * 12}```\n\n"
TABLE = "| drafter | cost |\n|---|---|\n" + "| model | low |\n" * 3 + "\n"
LONG = " ".join(f"word{i} and" for i in range(120)) + ".\n\n"
SHORT = "".join(" ".join(f"bade{i * j % 97}" for j in range(24)) + ".\n\n" for i in range(12))
TEXTS = {"long": PROSE * 2 + NESTED + "\n" + CODE + TABLE + LONG + NESTED.replace("1.", "-"), "short": SHORT}
TEXTS["code"] = f"{PROSE}```python\n{STEP * 107}```\n"  # 321 lines: nine leaves


class SteadyPace(Pace):
    """Draws by count and not by the clock, so that every run draws the same frames."""

    def __init__(self, piece: str) -> None:
        super().__init__()
        self.code_every = 1 if piece == "code-rule" else CODE_FRAMES
        self.figures_every = 1 if piece == "figures-rule" else FIGURES_FRAMES
        self.frames = 0

    def draws(self, *, in_code: bool) -> bool:
        self.frames += 1
        return not in_code or self.frames % self.code_every == 0

    def draws_figures(self) -> bool:
        return self.frames % self.figures_every == 0


class Played(TimedChat):
    """Asks once, and is given the answer by itself: the engine only takes the question."""

    def __init__(self, piece: str, text: str, messages: int, fd: int) -> None:
        engine = ScriptedEngine(answer(), paused=True)
        engine.permit(1)  # ready
        super().__init__(lambda: engine, past=past(messages) if messages else None)
        self.pace, self.fd = SteadyPace(piece), fd
        self.began = 0.0
        self.tokens: Iterator[str] = iter(re.findall(r"\n+ *| ?\w{1,5}| +|[^\w\s]{1,2}", TEXTS[text]))
        self.taken: list[float] = []

    def on_mount(self) -> None:
        once(self.chat, LOOK_SECONDS, self.ask)

    async def ask(self) -> None:
        if self.chat.state.phase == "loading":
            once(self.chat, LOOK_SECONDS, self.ask)
            return
        self.chat.engine.pace = self.pace
        self.chat.prompt.text = "go"
        self.chat.prompt.action_send()
        once(self.chat, 1.0, self.begin)

    async def begin(self) -> None:
        await self.chat.receive(Prefill(done=12, total=12, cached=0))
        await self.write()

    async def write(self) -> None:
        """The next frame; its cost is known when the one after it begins."""
        self.began = thread_time()
        tokens = list(islice(self.tokens, TOKENS_A_FRAME))
        if not tokens:
            os.write(self.fd, f"{json.dumps(self.taken)}\n".encode())
            return
        for token in tokens:
            await self.chat.receive(step(token, accepted=0))
        await self.chat.draw()
        once(self.chat, LOOK_SECONDS, self.end_frame)

    async def end_frame(self) -> None:
        screen = self.chat
        waits = screen._dirty_widgets or screen._layout_required or screen._repaint_required
        if waits or screen._compositor._dirty_regions:
            once(screen, LOOK_SECONDS, self.end_frame)
            return
        self.taken.append(1000 * (thread_time() - self.began))
        await self.write()


def past(count: int) -> OpenChat:
    """A chat of so many messages, questions and answers."""
    said = [
        StoredMessage(
            n, "c", n - 1 or None, "user" if n % 2 else "assistant", PROSE if n % 2 else PROSE + NESTED, "done", ""
        )
        for n in range(1, count + 1)
    ]
    return OpenChat(StoredChat("c", "a chat", "", "", "guide", None, None, count, False, count), Tree(said))


def main(piece: str, text: str, messages: str, fd: str) -> None:
    app = Played(piece, text, int(messages), int(fd))
    take_out(piece)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
