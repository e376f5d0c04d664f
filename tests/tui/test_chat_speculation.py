"""Speculation switched by key and by word, an answer that goes on, and one compared with its plain self."""

from __future__ import annotations

import msgspec
import pytest
from textual.widgets import OptionList

from localspec.config.tables import Config
from localspec.core.events import AnyEvent, Done, Failure, FinishReason, Notice, Prefill, Ready, SpecCard, Stats, Step
from localspec.core.requests import GenerateRequest, Message, SamplingOptions, SpecOptions
from localspec.history import History, recall
from localspec.models.catalog import Catalog
from localspec.runtime.stats import SpeedMeter, joined
from localspec.tui.chat.gain import gain
from localspec.tui.control import failures, speculation, turns
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.panels.stats_line import StatsLine
from localspec.tui.screens import compare
from localspec.tui.screens import compare_methods as ways
from localspec.tui.screens.compare import CompareScreen, parting, verdict
from localspec.tui.screens.compare_methods import CompareMethod
from localspec.tui.screens.compare_side import Side
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step, totals

pytestmark = pytest.mark.heavy


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted answers are short, and their times are written down."""
    monkeypatch.setattr(compare, "REST_SECONDS", 0.01)
    monkeypatch.setattr(compare, "SHORT_MS", 0)


PLAIN = answer(*(step(word, accepted=0) for word in ("Hello", " there", ",", " world", ".")))
CUT = [Prefill(12, 12, 0), step("Hello", " there")]
MORE = answer(step("ld", ". "), step("Bye", "."))


@pytest.fixture(autouse=True)
def hints_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the next: no clock."""
    monkeypatch.setattr(StatsLine, "give_hint", lambda self, text, _=0.0, **_more: setattr(self, "hint", text))


def side(way: CompareMethod, rounds: list[Step], text: str = "") -> Side:
    made = Side(way)
    for event in answer(*rounds):
        made.add(event)
    made.text = text or made.text
    return made


def plain(count: int) -> list[Step]:
    return [step("a ", accepted=0)] * count


def drafted(count: int, *, slow: bool = False) -> list[Step]:
    whole = msgspec.structs.replace(step("a ", "a "), verify_ms=45.0 if slow else 20.0)
    return [whole] * (count // 2)


def uneven(rounds: list[Step]) -> list[Step]:
    """The same rounds on a machine whose speed changes: every second one takes longer, the others less."""
    spent = [one.verify_ms + (10.0 if number % 2 else -10.0) for number, one in enumerate(rounds)]
    return [msgspec.structs.replace(one, verify_ms=ms) for one, ms in zip(rounds, spent, strict=True)]


def cut_by(reason: FinishReason) -> list[AnyEvent]:
    return [*CUT, Done(reason, totals(CUT, reason))]


# --- switching


async def test_f5_goes_round_and_the_header_says_what_the_engine_does():
    async with open_chat(ScriptedEngine(HELLO), size=(90, 24)) as stage:
        await stage.ready()
        await stage.sees("⇐ guide-draft, auto · cpu")
        for state in ("· speculation off", "⇐ guide-draft, on", "⇐ guide-draft, auto", "· speculation off"):
            await stage.pilot.press("f5")
            await stage.sees(f" {state} · cpu")
        assert [one.mode for one in stage.engine.steered] == ["off", "on", "auto", "off"]
        assert not stage.engine.requests


async def test_at_eighty_columns_the_state_line_says_what_was_chosen():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 24)) as stage:
        await stage.ready()
        for mode in ("off", "on", "auto"):
            await stage.pilot.press("f5")
            await stage.hints(f"Speculation: {mode}")
        for typed, hint in [("/k 5", "Speculation: on, 5 at a time"), ("/spec off", "Speculation: off")]:
            await stage.send(typed)
            await stage.hints(hint)


async def test_pressed_in_an_answer_it_changes_the_rest_of_it():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("f5")
        await stage.hints("Speculation: off")
        stage.chat.status.end_hint()
        await stage.sees("speculation off", "generating")
        engine.permit()
        await stage.sees("Bye.", "idle", "speculation off")


async def test_two_quick_presses_are_two_places_though_the_engine_has_not_said_the_first():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.chat.action_spec()
        stage.chat.action_spec()
        await stage.sees("guide-draft, on")


@pytest.mark.slow
async def test_words_say_what_the_key_does_and_how_far():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for typed, seen in [
            ("/k 5", "guide-draft, 5 at a time"),
            ("/spec off", "speculation off"),
            ("/spec on", "guide-draft, 5 at a time"),
            ("/spec AUTO", "guide-draft, auto"),
            ("/k 0", "speculation off"),
            ("/k auto", "guide-draft, auto"),
        ]:
            await stage.send(typed)
            await stage.sees(seen)
        assert stage.engine.steered[2] == SpecOptions("on", 5)
        told = len(stage.engine.steered)
        for typed, seen in [
            ("/spec maybe", "Write /spec"),
            ("/k 17", "to 16"),
        ]:
            await stage.send(typed)
            await stage.sees(seen)
            assert stage.chat.prompt.text == typed
            await stage.pilot.press("ctrl+c")
            stage.chat.status.end_hint()
        assert len(stage.engine.steered) == told


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            SpecCard("off", reason="its state cannot be rolled back"),
            "Nothing drafts for this model: its state cannot be rolled back. /why shows",
        ),
        (SpecCard("off"), "Nothing drafts for this model. /why shows what could."),
    ],
)
async def test_without_a_drafter_f5_shows_what_could_draft_and_others_say_where_that_is(spec: SpecCard, sentence: str):
    """The page closes by the key that opened it; Enter on a row loads it; the last row is the hub's."""
    opening = [Ready(READY.model, spec, READY.memory)]
    tuning = begin(Config(), "guide", load={}, sampling=SamplingOptions())
    async with open_chat(ScriptedEngine(HELLO, HELLO, opening=opening), tuning=tuning, size=(100, 30)) as stage:
        await stage.sees("no draft model · F5: why?")
        for typed in (["f6"], [*"/k", "space", "3", "enter"]):
            await stage.pilot.press(*typed)
            await stage.sees(sentence)
            stage.chat.status.end_hint()
        await stage.pilot.press("ctrl+c", "f5")
        why = "Nothing drafts: its state cannot be rolled back." if spec.reason else "No draft model is known for it"
        await stage.sees("Drafters for guide", why, "×–", "layers 1–2", "hub: Ctrl+O")
        await stage.sees("at most 1/4 of the size")
        await stage.pilot.press("f5")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.send("/why")
        await stage.sees(
            "×–  look-up  copies earlier text of this chat", "look-up + layers 1–2  trained for early exit"
        )
        loaded: list[tuple[str, str | None]] = []
        stage.chat.models.choose = lambda model, draft=None: loaded.append((model, draft))  # type: ignore[method-assign]
        await stage.pilot.press("home", "down", "enter")
        await stage.until(lambda: loaded == [("guide", "lookup+early-exit:2")])
        assert not stage.engine.steered


IN_USE = SpecCard("early-exit", "layers 1-2", exit_layer=2, lookup=True)


async def test_the_page_of_drafters_has_the_one_in_use_highlighted_and_what_is_typed_there_is_a_question():
    opening = [Ready(READY.model, IN_USE, READY.memory)]
    tuning = begin(Config(), "guide", load={}, sampling=SamplingOptions())
    async with open_chat(ScriptedEngine(HELLO, opening=opening), tuning=tuning, size=(100, 30)) as stage:
        loaded: list[str] = []
        stage.chat.models.choose = lambda _, draft="": loaded.append(draft)  # type: ignore[method-assign]
        await stage.ready()
        await stage.send("/why")
        await stage.sees("Drafters for guide", "at most 1/4 of the size")
        rows = stage.app.screen.query_one(OptionList)
        assert rows.highlighted is not None
        assert "layers 1–2" in str(rows.get_option_at_index(rows.highlighted).prompt)
        await stage.pilot.press("enter")
        await stage.sees("This model is loaded already, with this draft.")
        await stage.send("/why")
        await stage.sees("Drafters for guide", "at most 1/4 of the size")
        await stage.pilot.press(*"Why?", "enter")
        await stage.until(lambda: stage.app.screen is stage.chat and stage.engine.requests)
        assert stage.turns[0] == Message("user", "Why?")
        await stage.send("/draft")
        await stage.sees("Drafters for guide")
        await stage.write("pasted text")
        await stage.until(lambda: stage.chat.prompt.text == "pasted text")
        assert stage.app.screen is stage.chat
        assert not loaded


async def test_enter_chooses_nothing_where_the_drafter_in_use_is_not_among_those_that_are_listed():
    tuning = begin(Config(), "guide", load={}, sampling=SamplingOptions())
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning, size=(100, 30)) as stage:
        loaded: list[str] = []
        stage.chat.models.choose = lambda _, draft="": loaded.append(draft)  # type: ignore[method-assign]
        await stage.ready()
        await stage.send("/why")
        await stage.sees("Now: guide-draft", "at most 1/4 of the size")
        await stage.pilot.press("enter")
        assert stage.app.screen is not stage.chat
        assert not loaded
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: loaded == ["lookup"])


async def test_a_drafter_that_failed_cannot_be_switched_on():
    notice = Notice("warning", "drafter_failed", "The drafter failed.")
    async with open_chat(ScriptedEngine([notice, *HELLO])) as stage:
        await stage.send("hi")
        await stage.sees("the draft model failed", "idle")
        await stage.pilot.press("f5")
        await stage.sees("Nothing drafts for this model: it failed.")
        assert not stage.engine.steered


async def test_before_the_model_is_loaded_f5_says_so():
    async with open_chat(ScriptedEngine(paused=True)) as stage:
        await stage.sees("loading")
        await stage.pilot.press("f5")
        await stage.sees("not loaded yet")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_the_switch_and_the_speed_are_in_sight_however_long_the_names_are(size: tuple[int, int]):
    model = msgspec.structs.replace(READY.model, name="a-model-with-a-name-" * 5)
    long = Ready(model, SpecCard("model", "its-draft-" * 9), READY.memory)
    async with open_chat(ScriptedEngine(HELLO, opening=[long]), size=size) as stage:
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        assert stage.seen.splitlines()[0].rstrip().endswith("…   80.0 tok/s   ×–")


# --- going on


async def test_a_stopped_answer_goes_on_in_its_own_message():
    engine = ScriptedEngine(HELLO, MORE, HELLO, paused=True)
    async with open_chat(engine, system="Be brief.") as stage:
        await stage.begins("hi")
        await stage.pilot.press("escape")
        await stage.sees("stopped · ")
        engine.permit()
        await stage.send("/continue")
        await stage.sees("Hello thereld. Bye.", "idle", "6 tok")
        assert "stopped" not in stage.seen
        asked = engine.requests[1]
        assert asked.continues
        assert asked.messages == (
            Message("system", "Be brief."),
            Message("user", "hi"),
            Message("assistant", "Hello there"),
        )
        assert [type(widget) for widget in stage.chat.transcript.children] == [Question, Answer]
        assert [(said.role, said.text) for said in stage.chat.conversation.branch] == [
            ("user", "hi"),
            ("assistant", "Hello thereld. Bye."),
        ]
        shown = stage.chat.query_one(Answer)
        assert shown._body.source == shown.text
        assert [token.text for each in shown.rounds for token in each.tokens] == [
            "Hello",
            " there",
            "ld",
            ". ",
            "Bye",
            ".",
        ]
        await stage.send("and?")
        await stage.until(lambda: len(engine.requests) == 3 and stage.chat.state.phase == "idle")
        assert len(engine.requests[2].messages or ()) == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reason", ["length", "context", "error"])
async def test_what_was_cut_may_go_on_however_it_was(reason: FinishReason):
    failed = [*CUT, Failure("engine", "The model failed.")]
    first = failed if reason == "error" else cut_by(reason)
    async with open_chat(ScriptedEngine(first, MORE)) as stage:
        await stage.send("hi")
        await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")
        await stage.send("/continue")
        await stage.sees("Hello thereld. Bye.", "idle")
        await stage.until(lambda: not stage.chat.query(".-failed"))


async def test_what_a_stop_text_ended_may_go_on():
    ended = msgspec.structs.replace(totals(CUT, "stop"), stop_text="###")
    async with open_chat(ScriptedEngine([*CUT, Done("stop", ended)], MORE)) as stage:
        await stage.asks("hi", "ended by the stop text “###”")
        await stage.ready()
        await stage.asks("/continue", "Hello thereld. Bye.")
        await stage.until(lambda: "ended by" not in stage.seen)


async def test_an_answer_that_ended_by_itself_does_not_go_on():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/continue")
        await stage.sees("There is no answer to continue.")
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.send("/continue")
        await stage.sees(turns.ENDED)
        assert len(stage.engine.requests) == 1
        assert len(stage.chat.conversation.branch) == 2


async def test_in_a_full_context_nothing_goes_on():
    full = msgspec.structs.replace(totals(CUT, "context"), context_used=8192)
    refused = Failure("context_overflow", "The prompt is 8,192 tokens and the context holds 8,192.", "Shorten it.", 5)
    async with open_chat(ScriptedEngine([*CUT, Done("context", full)], [refused])) as stage:
        await stage.send("hi")
        await stage.sees("the context is full", "idle")
        await stage.send("/continue")
        await stage.sees(failures.FULL, "the context is full · ")
        assert stage.chat.state.phase == "idle"
        assert [said.text for said in stage.chat.conversation.branch] == ["hi", "Hello there"]


async def test_nothing_goes_on_while_something_is_being_answered():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.send("/continue")
        await stage.sees("Wait for the answer to end")
        assert len(engine.requests) == 1


@pytest.mark.slow
async def test_an_answer_that_goes_on_may_be_stopped_and_go_on_again():
    engine = ScriptedEngine(HELLO, MORE, MORE, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("escape")
        await stage.sees("stopped · ")
        engine.permit(2 - engine._permits)
        await stage.send("/continue")
        await stage.sees("Hello thereld.")
        await stage.pilot.press("escape")
        await stage.sees("stopped · ")
        engine.permit()
        await stage.send("/continue")
        await stage.sees("Hello thereld. ld. Bye.", "idle")
        assert (engine.requests[2].messages or ())[-1] == Message("assistant", "Hello thereld. ")


async def test_both_parts_are_kept_as_one_message_with_the_rounds_and_figures_of_both():
    engine = ScriptedEngine(cut_by("length"), MORE)
    async with kept_chat(engine) as stage:
        await stage.send("hi")
        await stage.sees("The answer was cut after max_tokens. /continue goes on.", "cut at the length limit")
        await stage.ready()
        await stage.send("/continue")
        await stage.sees("Hello thereld. Bye.", "6 tok", "idle")
    check_kept()


@pytest.mark.slow
async def test_an_answer_of_an_earlier_program_goes_on_and_keeps_its_rounds():
    async with kept_chat(ScriptedEngine(cut_by("length"))) as stage:
        await stage.send("hi")
        await stage.sees("The answer was cut after max_tokens. /continue goes on.", "cut at the length limit")
        await stage.ready()
    async with kept_chat(ScriptedEngine(MORE), past=recall()) as stage:
        await stage.ready()
        await stage.send("/continue")
        await stage.sees("Hello thereld. Bye.", "6 tok", "idle")
        assert stage.engine.requests[0].messages == (Message("user", "hi"), Message("assistant", "Hello there"))
    check_kept()


def check_kept() -> None:
    opened = recall()
    assert [(said.content, said.status) for said in opened.branch] == [("hi", "done"), ("Hello thereld. Bye.", "done")]
    made = opened.branch[1].generation
    assert made is not None
    assert made.stats.predicted_n == 6
    with History() as history:
        kept = history.steps(opened.branch[1].id)
    assert "".join(each.text for each in kept) == "Hello thereld. Bye."
    assert sum(len(each.tokens) for each in kept) == 6


def test_joined_figures_are_the_sums_of_both_parts():
    first, then = totals(CUT, "cancelled"), totals(MORE, "stop")
    whole = joined(first, then)
    assert whole.predicted_n == first.predicted_n + then.predicted_n
    assert sum(whole.accepted_counts) == whole.draft_rounds == first.draft_rounds + then.draft_rounds
    assert whole.draft_n == whole.draft_n_accepted + whole.draft_n_rejected + whole.draft_n_ignored
    assert (whole.finish_reason, whole.ttft_ms, whole.prompt_n) == ("stop", first.ttft_ms, first.prompt_n)
    one = joined(Stats(predicted_ms=10, speedup=2.0), Stats(predicted_ms=30, speedup=1.0))
    assert one.speedup == pytest.approx(1.25)  # 20 + 30 plain milliseconds in 40
    assert joined(Stats(predicted_ms=10), Stats(predicted_ms=30, speedup=1.5)).speedup == 1.5
    assert joined(Stats(), Stats()).speedup is None


# --- comparing


def shown(stage: Stage) -> str:
    return "\n".join(strip.text for strip in stage.app.screen._compositor.render_strips())


async def sees(stage: Stage, *texts: str) -> None:
    await stage.until(lambda: all(text in shown(stage) for text in texts))


async def answered(stage: Stage) -> None:
    await stage.asks("hi", "Bye.", "idle")


DRAFTS, EXIT = CompareMethod("small", speculate=True), CompareMethod("early-exit:4", speculate=True, exit_layer=4)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (side(ways.PLAIN, plain(200)), side(DRAFTS, drafted(200)), "×1.60 faster · same text"),
        (
            side(ways.PLAIN, uneven(plain(20))),
            side(DRAFTS, uneven(drafted(20))),
            "×1.60 · same text · 20 tokens, too few to be sure",
        ),
        (side(ways.PLAIN, uneven(plain(200))), side(DRAFTS, uneven(drafted(200))), "×1.60 faster · same text"),
        (side(ways.PLAIN, plain(8)), side(DRAFTS, drafted(8)), "×– · same text · 8 tokens, too few to be sure"),
        (side(ways.PLAIN, plain(1)), side(DRAFTS, plain(1)), "×– · same text · 1 token, too few to be sure"),
        (side(ways.PLAIN, plain(200)), side(DRAFTS, drafted(200, slow=True)), "×0.80: slower · same text"),
        (side(ways.PLAIN, plain(200)), side(DRAFTS, plain(200)), "×1.00: hardly anything was drafted · same text"),
        (
            side(ways.PLAIN, plain(200)),
            side(DRAFTS, [*plain(196), *drafted(4)]),
            "×1.01: hardly anything was drafted · same text",
        ),
        (side(ways.PLAIN, plain(200)), side(DRAFTS, [*plain(160), *drafted(40)]), "×1.08 faster · same text"),
        (
            side(ways.PLAIN, [msgspec.structs.replace(one, verify_ms=40.0) for one in plain(200)]),
            side(DRAFTS, plain(200)),
            "×–: hardly anything was drafted · same text",  # the machine was slow for a while
        ),
        (side(DRAFTS, plain(200)), side(EXIT, drafted(200)), "early-exit:4 ×1.60 faster · same text"),
        (
            side(ways.PLAIN, plain(200), "We go."),
            side(DRAFTS, drafted(200), "We stay."),
            "×1.60 faster · the texts differ from character 4 on: “go.” against “stay.”",
        ),
    ],
)
def test_the_verdict_says_how_fast_whether_the_same_and_whether_that_is_sure(first: Side, second: Side, said: str):
    assert verdict(first, second) == said


@pytest.mark.parametrize("tokens", [12, 20, 24, 48, 200])
@pytest.mark.parametrize("even", [True, False])
def test_what_is_sure_in_the_header_is_sure_side_by_side(tokens: int, *, even: bool):
    """One rule: the same rounds have an arrow there, and are called faster here, or neither."""
    slow, fast = (rounds if even else uneven(rounds) for rounds in (plain(tokens), drafted(tokens)))
    meter = SpeedMeter()
    for one in (*slow, None, *fast):
        if one is None:
            meter.restart()
        else:
            meter.observe(drafted=one.drafted, tokens=len(one.tokens), milliseconds=one.draft_ms + one.verify_ms)
    header, heading = gain(meter.speedup, meter.band).plain, verdict(side(ways.PLAIN, slow), side(DRAFTS, fast))
    assert ("▲" in header) == ("faster" in heading) == ("too few to be sure" not in heading)


def test_what_only_the_clock_says_is_not_sure():
    """The rounds were as fast, and the whole answer took half the time: something else ran during the other."""
    first, second = side(ways.PLAIN, plain(200)), side(DRAFTS, [*plain(160), *drafted(40)])
    stats = first.tally.stats
    first.tally.add(Done("stop", msgspec.structs.replace(stats, predicted_ms=1.05 * stats.predicted_ms)))
    assert verdict(first, second).startswith("×1.14 faster")
    second = side(DRAFTS, [*plain(160), *drafted(40, slow=True)])
    assert verdict(side(ways.PLAIN, plain(200)), second).startswith("×0.95: slower")
    first.tally.add(Done("stop", msgspec.structs.replace(stats, predicted_ms=1.1 * stats.predicted_ms)))
    assert verdict(first, second).endswith("200 tokens, too few to be sure")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 30)])
@pytest.mark.parametrize("way", ["f6", "/compare"])
async def test_one_question_twice_side_by_side(way: str, size: tuple[int, int]):
    slow = answer(*(step(word, accepted=0) for word in ("Hello", " there", ", world", ".", " Bye", ".")))
    engine = ScriptedEngine(HELLO, slow, HELLO)
    async with open_chat(engine, size=size, system="Be brief.") as stage:
        await answered(stage)
        before = stage.chat.status.stats
        await (stage.pilot.press("f6") if way == "f6" else stage.send("/compare"))
        await sees(stage, "×– · same text · 6 tokens", "plain", "guide-draft", "50.0 tok/s", "80.0 tok/s")
        plain, drafted = stage.app.screen.query(Side)
        assert (plain.region.y == drafted.region.y) == (size[0] >= 80)
        assert shown(stage).count("Hello there") == 2
        assert stage.app.screen.query_one("#verdict").region.y < plain.region.y, "the verdict is the heading"
        for side in (plain, drafted):
            assert side._body.region.y == side.words.content_region.y, "text begins at the top of its column"
        first, second = engine.requests[1:]
        assert (first.speculate, second.speculate) == (False, True)
        assert first.messages == second.messages == engine.requests[0].messages
        assert first.sampling == second.sampling
        assert first.sampling.seed is not None
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert [(said.role, said.text) for said in stage.chat.conversation.branch] == [
            ("user", "hi"),
            ("assistant", "Hello there, world. Bye."),
        ]
        assert [type(widget) for widget in stage.chat.transcript.children] == [Question, Answer]
        assert stage.chat.status.stats == before
        assert stage.chat.prompt.has_focus
        assert stage.chat.state.phase == "idle"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("spec", "typed", "names", "exits"),
    [
        (READY.spec, "early-exit:4", ("guide-draft", "early-exit:4"), [None, 4]),
        (READY.spec, "off", ("plain", "guide-draft"), [None, None]),
        (SpecCard("off", reason="none is known"), "early-exit:4", ("plain", "early-exit:4"), [None, 4]),
        (SpecCard("early-exit", "layers 1-4", exit_layer=4), "EARLY-EXIT:4", ("plain", "layers 1–4"), [None, None]),
    ],
)
async def test_two_drafters_are_compared_where_neither_must_be_loaded(
    spec: SpecCard, typed: str, names: tuple[str, str], exits: list[int | None]
):
    engine = ScriptedEngine(HELLO, PLAIN, HELLO, opening=[Ready(READY.model, spec, READY.memory)])
    async with open_chat(engine, size=(120, 24)) as stage:
        await answered(stage)
        await stage.send(f"/compare {typed}")
        await sees(stage, f"{names[1]}", "×– · the texts differ")
        assert [side.way.name.split(" k=")[0] for side in stage.app.screen.query(Side)] == [
            name.split(" k=")[0] for name in names
        ]
        assert [request.exit_layer for request in engine.requests[1:]] == exits
        assert [request.speculate for request in engine.requests[1:]] == [names[0] != "plain", True]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("qwen", "'qwen' is not loaded. If it is a drafter: /draft qwen, then /compare."),
        ("early-exit", "Write /compare early-exit:E"),
        ("early-exit:x", "'x' is not an exit layer."),
        ("early-exit:12", "outside guide, which has 12 layers. Use early-exit:E with E from 1 to 11."),
    ],
)
async def test_what_cannot_be_compared_is_said_in_a_sentence(typed: str, sentence: str):
    async with open_chat(ScriptedEngine(HELLO), size=(150, 24)) as stage:
        await answered(stage)
        await stage.asks(f"/compare {typed}", sentence)
        assert len(stage.engine.requests) == 1


async def test_texts_that_part_are_shown_where():
    other = answer(step("Hello", " there"), step(", you", "."))
    async with open_chat(ScriptedEngine(HELLO, PLAIN, other), size=(120, 24)) as stage:
        await answered(stage)
        await stage.pilot.press("f6")
        await sees(
            stage,
            "Hello there, world.",
            "Hello there, you.",
            "the texts differ from character 14 on:",
            "“world.” against “you.”",
        )


async def test_it_streams_and_esc_stops_it_and_the_chat_goes_on():
    engine = ScriptedEngine(HELLO, PLAIN, HELLO, paused=True)
    async with kept_chat(engine) as stage:
        engine.permit(1 + len(HELLO))
        await answered(stage)
        await stage.pilot.press("f6")
        await sees(stage, "one after the other", "reading prompt", "waiting")
        engine.permit(3)
        await sees(stage, "Hello there", "50.0 tok/s · 2 tok")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat and stage.chat.state.phase == "idle")
        assert len(engine.requests) == 2  # the second was never asked
        engine.permit()
        await stage.send("next")
        await stage.until(lambda: len(engine.requests) == 3 and stage.chat.state.phase == "idle")
        assert [message.content for message in engine.requests[2].messages or ()][::2] == ["hi", "next"]
    assert [said.content for said in recall().branch][::2] == ["hi", "next"]
    assert len(recall().branch) == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dies", [False, True])
async def test_a_failure_is_told_and_the_chat_is_as_it_was(dies: bool):
    engine = ScriptedEngine(HELLO, [PLAIN[1], Failure("engine", "The model failed.", "Ask again.")], HELLO, paused=dies)
    async with open_chat(engine) as stage:
        engine.permit(1 + len(HELLO))
        await answered(stage)
        await stage.pilot.press("f6")
        if dies:
            await sees(stage, "reading prompt")
            engine.die()
            engine.permit()
        await sees(stage, "Nothing was compared.", "is gone" if dies else "The model failed. Ask again.")
        await stage.pilot.press("escape")
        await stage.until(
            lambda: stage.app.screen is stage.chat and stage.chat.state.phase == ("gone" if dies else "idle")
        )
        assert len(stage.chat.conversation.branch) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("closed", [False, True])
async def test_another_model_ends_a_comparison_and_the_next_answer_is_the_chats(closed: bool):
    first, second = ScriptedEngine(HELLO, PLAIN, paused=True), ScriptedEngine(answer(step("Another", ".")))
    async with open_chat(first, second, tuning=Tuning(catalog=Catalog.load())) as stage:
        first.permit(1 + len(HELLO))
        await answered(stage)
        await stage.pilot.press("f6")
        await sees(stage, "reading prompt")
        stage.engine.cancel = lambda: None  # type: ignore[method-assign]  # it takes a while
        if closed:
            await stage.pilot.press("escape")
            await stage.until(lambda: stage.app.screen is stage.chat)
        stage.chat.models.choose("guide", "off")
        await stage.until(lambda: len(stage.engines) == 2 and stage.chat.state.phase == "idle")
        if not closed:
            await sees(stage, "Another engine is being loaded.", "Nothing was compared.")
            await stage.pilot.press("escape")
            await stage.until(lambda: stage.app.screen is stage.chat)
        assert stage.chat.state.phase == "idle"
        await stage.asks("next", "Another.", "idle")


async def test_there_must_be_something_to_compare():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(3)
        await stage.ready()
        await stage.pilot.press("f6")
        await stage.sees("no answered question")
        await stage.send("hi")
        await stage.sees("Hello there")
        await stage.pilot.press("f6")
        await stage.sees(speculation.BUSY)
        engine.permit()
        await stage.sees("Bye.", "idle")
        assert not isinstance(stage.app.screen, CompareScreen)


def test_a_seed_of_the_users_own_is_kept():
    for seed in (None, 7):
        request = GenerateRequest((Message("user", "hi"),), sampling=SamplingOptions(temperature=1.0, seed=seed))
        sides = [way.asks(request) for way in (ways.PLAIN, ways.early_exit(4))]
        assert [side.sampling.seed for side in sides] == [seed or ways.SEED] * 2
        assert [side.sampling.temperature for side in sides] == [1.0, 1.0]


@pytest.mark.parametrize(("one", "other", "place"), [("abc", "abd", 2), ("ab", "abc", 2), ("", "x", 0), ("é", "e", 0)])
def test_texts_part_at_the_first_place_that_differs(one: str, other: str, place: int):
    assert parting(one, other) == parting(other, one) == place


# --- the terminal's title


async def test_the_terminal_is_told_the_state_and_the_chats_title():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        assert stage.app.title == "loading · localspec"
        engine.permit(1)
        await stage.ready()
        assert stage.app.title == "idle · localspec"
        engine.permit(2)
        await stage.send("What is\nthat?")
        await stage.until(lambda: stage.app.title == "generating · What is")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.title == "stopped · What is")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: stage.app.title == "idle · localspec")
