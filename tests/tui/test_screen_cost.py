"""What the screen does for what changes on it: little, and nothing that shows is left out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.screen import Screen

from localspec.tui.app import ChatApp
from localspec.tui.markdown import pace as pace_module
from localspec.tui.markdown.layout import LINES_AHEAD
from localspec.tui.markdown.pace import FIGURES_SECONDS, FRAME_SECONDS, SHARE, SLOWEST_FRAME, SPARE_SHARE, Pace
from localspec.tui.markdown.paragraph import Paragraph
from localspec.tui.transcript.answer import Answer
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import READY, TEXT, ScriptedEngine, answer, step
from tests.support.snapshots import picture

pytestmark = pytest.mark.heavy

NESTED = "1. one\n2. two\n   - inner and `code`\n\n     ```py\n     x = 1\n     ```\n3. three\n"
LOOSE = "1. one\n\n2. two\n\n   more\n\n10. three\n\n2024 was a year.\n\n- 4\n\n- 5\n"
LONG = f"{TEXT}\n> said by *another*\n> twice\n\n{NESTED}"
WORDS = "word " * 60


def grown(text: str, seed: int) -> list[str]:
    """It in pieces as a model writes them."""
    rng, pieces = random.Random(seed), []
    while text:
        size = rng.randint(1, 40)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


class Glass:
    """What a terminal shows that gets every update, however small."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def show(self, update: object) -> None:
        if isinstance(update, LayoutUpdate):
            self.rows = ["".join(strip.text for strip in line) for line in update.strips]
        elif isinstance(update, ChopsUpdate):
            for y, start, end in update.spans:
                for stop, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=True):
                    if strip is not None and x < end and stop > start:
                        text = strip.text[: min(stop, end) - x]
                        self.rows[y] = self.rows[y][:x] + text + self.rows[y][x + len(text) :]


@pytest.fixture
def glass(monkeypatch: pytest.MonkeyPatch) -> Glass:
    shown, real = Glass(), ChatApp._display

    def display(app: ChatApp, screen: Screen[None], update: object) -> None:
        shown.show(update)
        real(app, screen, update)

    monkeypatch.setattr(ChatApp, "_display", display)
    return shown


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time the screen was laid out."""
    counted: list[str] = []
    real = Compositor.reflow
    monkeypatch.setattr(Compositor, "reflow", lambda *args: counted.append("layout") or real(*args))
    return counted


async def settled(stage: Stage) -> None:
    """All that was asked for is drawn."""
    for _ in range(3):
        await stage.pilot.pause()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "seed"), [((150, 36), 1), ((80, 24), 2), ((60, 16), 3)])
async def test_what_is_drawn_piece_by_piece_is_what_is_there(glass: Glass, size: tuple[int, int], seed: int):
    """Every update is applied to a screen of its own, which is at the end the screen drawn as a whole."""
    async with open_chat(ScriptedEngine(HELLO), size=size) as stage:
        await stage.send("go")
        await stage.sees("Bye.", "idle")
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        for number, piece in enumerate(grown(LONG, seed)):
            shown.add(step(piece, accepted=0))
            await shown.flush()
            if number % 5 == 0:
                await settled(stage)
                assert [row.rstrip() for row in glass.rows] == [row.rstrip() for row in stage.seen.splitlines()], number
        await shown.end()
        await settled(stage)
        assert [row.rstrip() for row in glass.rows] == [row.rstrip() for row in stage.seen.splitlines()]


LINES = "".join(f"line {number} of a long answer\n\n" for number in range(40))


async def test_a_prompt_that_grows_over_what_was_scrolled_is_drawn_whole(glass: Glass):
    """Where a message out of sight stands is asked between the paste and its layout: Textual's map then has all new
    positions, and the layout finds nothing moved."""
    async with open_chat(ScriptedEngine(answer(step(LINES, accepted=0)))) as stage:
        await stage.asks("go", "line 39", "idle")
        await stage.pilot.press("pageup")
        await settled(stage)
        stage.chat.prompt.insert("pasted\n" * 14)
        assert stage.messages[0].query("*").last().region.y < 0
        await settled(stage)
        assert [row.rstrip() for row in glass.rows] == [row.rstrip() for row in stage.seen.splitlines()]


@pytest.mark.parametrize("before", ["", "a"])
async def test_an_emoji_over_the_edge_of_something_hidden_is_whole(glass: Glass, before: str):
    """The list of chats lies over a transcript that grows: its edges cut nothing in two."""
    text = before + "🦊" * 13
    async with open_chat(ScriptedEngine(HELLO), size=(80, 24)) as stage:
        await stage.send("go")
        await stage.sees("Bye.", "idle")
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        await stage.pilot.press("ctrl+b", "slash")
        await stage.until(lambda: stage.chat.sidebar.search.has_focus)
        await stage.write(text)
        for piece in grown(LONG, 1)[:20]:
            shown.add(step(piece, accepted=0))
            await shown.flush()
            await settled(stage)
            assert text in stage.seen
        assert any(text in row for row in glass.rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (LONG, grown(LONG, 1)),
        (LONG, grown(LONG, 4)),
        (NESTED, list(NESTED)),
        (LOOSE, list(LOOSE)),
        (WORDS, [f"{word} " for word in WORDS.split()]),
    ],
)
async def test_an_answer_that_has_grown_looks_as_one_that_was_always_there(text: str, pieces: list[str]):
    """Every cell and its style."""
    async with open_chat(ScriptedEngine(), size=(100, 200)) as stage:
        growing, whole = Answer("guide"), Answer("guide", text)
        await stage.chat.feedback.show(growing)
        for piece in pieces:
            growing.add(step(piece, accepted=0))
            await growing.flush()
        await growing.end()
        await stage.chat.feedback.show(whole)
        await settled(stage)
        lines, height = picture(stage.app).splitlines(), stage.app.size.height
        rows = list(zip(lines[:height], lines[height + 1 :], strict=False))
        first, second = (rows[shown.region.y : shown.region.bottom] for shown in (growing._body, whole._body))
        assert first == second


async def test_words_are_drawn_without_the_screen_being_laid_out(layouts: list[str]):
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        lines = 0
        for word in WORDS.split():
            shown.add(step(word + " ", accepted=0))
            await shown.flush()
            await settled(stage)
            if not lines:
                layouts.clear()
            lines = shown.query_one(Paragraph).content_size.height
        assert lines >= 3
        assert len(layouts) <= lines / LINES_AHEAD


async def test_the_last_item_of_a_list_grows_in_its_place():
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        shown.add(step("- one\n- two\n  - in", accepted=0))
        await shown.flush()
        before = list(shown.query(Paragraph))
        for piece in ("ner", " and more", " of **it", "**"):
            shown.add(step(piece, accepted=0))
            await shown.flush()
        assert list(shown.query(Paragraph)) == before
        await stage.sees("inner and more of it")
        shown.add(step("\n- three", accepted=0))
        await shown.flush()
        assert list(shown.query(Paragraph))[:3] == before
        await stage.sees("three")


async def test_a_key_lays_out_nothing(layouts: list[str]):
    async with open_chat(ScriptedEngine(HELLO), size=(150, 36)) as stage:
        await stage.send("go")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("a")
        await settled(stage)
        layouts.clear()
        await stage.pilot.press("b", "c", "space", "d", "backspace")
        await stage.sees("abc")
        await settled(stage)
        assert not layouts


# --- the pace, on a clock of its own


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.spent = 100.0
        monkeypatch.setattr(pace_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(pace_module, "thread_time", lambda: self.spent)

    def frames(self, pace: Pace, seconds: float, cost: Callable[[], float], busy: float = 0.0) -> int:
        """How many are drawn meanwhile, at this cost each; between them the thread is busy for such a share."""
        drawn, until = 0, self.now + seconds
        while self.now < until:
            if pace.draws(in_code=False):
                drawn += 1
                self.spent += cost()
                self.now += cost()
            wait = pace.wait()
            self.now += wait
            self.spent += wait * busy
        return drawn


@pytest.mark.parametrize(("milliseconds", "least", "most"), [(0.1, 190, 200), (2.0, 120, 160), (10.0, 28, 40)])
def test_frames_take_no_more_than_their_share(
    monkeypatch: pytest.MonkeyPatch, milliseconds: float, least: int, most: int
):
    clock = Clock(monkeypatch)
    assert least <= clock.frames(Pace(), 10, lambda: milliseconds / 1000) <= most
    assert clock.spent - 100 <= 10 * SHARE + 2 * milliseconds / 1000


def test_however_slow_the_screen_is_something_is_drawn(monkeypatch: pytest.MonkeyPatch):
    assert Clock(monkeypatch).frames(Pace(), 10, lambda: 0.3) >= 10 / (0.3 + SLOWEST_FRAME + FRAME_SECONDS)


@pytest.mark.parametrize("busy", [0.1, 0.5, 1.0])
def test_whatever_else_the_thread_does_something_is_drawn(monkeypatch: pytest.MonkeyPatch, busy: float):
    """Keys, scrolling and whatever a screen does besides must not keep an answer out of sight."""
    frames = Clock(monkeypatch).frames(Pace(), 10, lambda: 0.001, busy)
    assert frames >= 10 / (0.001 + SLOWEST_FRAME + FRAME_SECONDS)


def test_who_looks_early_puts_nothing_off(monkeypatch: pytest.MonkeyPatch):
    clock, pace = Clock(monkeypatch), Pace()
    assert pace.draws(in_code=False)
    clock.spent += 1
    whole = pace.wait()
    clock.now += whole / 2
    clock.spent += 1
    assert not pace.draws(in_code=False)
    assert pace.wait() == pytest.approx(whole / 2)
    clock.now += whole / 2
    assert pace.draws(in_code=False)


def test_the_first_words_of_an_answer_do_not_wait_for_what_was_drawn_before(monkeypatch: pytest.MonkeyPatch):
    clock, pace = Clock(monkeypatch), Pace()
    assert pace.draws(in_code=False)
    clock.spent += 1
    pace.wait()
    assert not pace.draws(in_code=False)
    pace.start()
    assert pace.draws(in_code=False)


def test_a_core_of_its_own_is_used(monkeypatch: pytest.MonkeyPatch):
    pace = Pace()
    pace.share = SPARE_SHARE
    assert 150 <= Clock(monkeypatch).frames(pace, 10, lambda: 0.01) <= 200


@pytest.mark.parametrize(("device", "share"), [("cpu", SHARE), ("cuda:0", SPARE_SHARE)])
async def test_where_the_model_computes_decides_the_share(device: str, share: float):
    ready = replace(READY, model=replace(READY.model, device=device))
    async with open_chat(ScriptedEngine(opening=[ready])) as stage:
        await stage.ready()
        assert stage.chat.engine.pace.share == share


def test_figures_are_drawn_once_a_second(monkeypatch: pytest.MonkeyPatch):
    clock, pace, drawn = Clock(monkeypatch), Pace(), 0
    for _ in range(100):
        drawn += pace.draws_figures()
        clock.now += FRAME_SECONDS
    assert 4 <= drawn <= 100 * FRAME_SECONDS / FIGURES_SECONDS


@pytest.mark.slow
async def test_figures_are_right_when_nothing_more_comes():
    engine = ScriptedEngine(answer(*(step("a ", "b ", accepted=None) for _ in range(40))), paused=True)
    async with open_chat(engine, size=(150, 36)) as stage:
        engine.permit(3)  # ready, the prompt read, one round
        await stage.send("go")
        await stage.sees("a b")
        engine.permit(30)
        await stage.sees("31 rounds")
