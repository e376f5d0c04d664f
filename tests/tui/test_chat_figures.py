"""What the screen says of an answer and of the settings around it, in words that fit, and never by colour alone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from textual.widget import Widget

from localspec.config.tables import Config
from localspec.core.blocks import column
from localspec.core.events import DraftLength, Mode, Proposal, Ready, SpecCard, Stats, Step
from localspec.core.requests import SamplingOptions
from localspec.engine.drafters.table import EARLY_EXIT, spelling
from localspec.runtime.local_models import ListedModel
from localspec.tui.app import ChatApp
from localspec.tui.chat import explained as explained_signs
from localspec.tui.chat import hints
from localspec.tui.chat.draft_length import LONG, RECENT, drafter, drafting, explained, length_now, why_off, words
from localspec.tui.chat.explained import (
    ACCEPTED,
    CERTAIN,
    CONTEXT,
    GAIN,
    LAYERS,
    PROBES,
    RIBBON,
    ROUND,
    SPEED,
    WHAT_YOU_SEE,
)
from localspec.tui.chat.gain import NOT_YET, UNSTEADY, against, gain
from localspec.tui.chat.info import ChatInfo, info
from localspec.tui.control.tuning import Tuning
from localspec.tui.panels.speed_panel import SpeedReading, panel
from localspec.tui.panels.stats_line import summary
from localspec.tui.screens.help import HelpScreen
from localspec.tui.transcript import legend
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.ribbon import PLAIN as PLAIN_CELL
from localspec.tui.transcript.ribbon import Ribbon, caption
from localspec.tui.transcript.sources import ALL
from localspec.tui.transcript.speaker import clock
from localspec.tui.transcript.token_view import TokenView, choice
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

STATS = Stats(
    predicted_n=398,
    predicted_ms=9660.0,
    ttft_ms=210.0,
    draft_kind="model",
    draft_rounds=100,
    plain_rounds=17,
    draft_n_accepted=312,
    draft_n_rejected=128,
    baseline_tps=22.4,
    speedup=1.84,
    context_used=1204,
    context_max=8192,
    finish_reason="stop",
)
PLAIN = step("a ", accepted=0)
COSTLY = msgspec.structs.replace(PLAIN, drafted=3, rejected=(Proposal(7, "x"),) * 3, draft_ms=0.6 * PLAIN.verify_ms)
COSTS = "a round with a draft brought 1.0 tokens, but took as long as 1.6 plain ones"
SLOW = answer(*[COSTLY] * 4, *[PLAIN] * LONG)
FAST = answer(*[PLAIN] * 10, *(step("a ", "b ", "c ") for _ in range(20)))
AUTO = SpecCard("model", "small", "auto")
BOTH = SpecCard("early-exit", "early exit 8", exit_layer=8, lookup=True)


def changed(**values: object) -> Stats:
    return msgspec.structs.replace(STATS, **values)


def top(stage: Stage) -> str:
    return stage.seen.splitlines()[0]


async def told(stage: Stage) -> None:
    await stage.send("hi")
    await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")


# --- the line under an answer


def test_the_line_under_an_answer_says_what_the_header_does_not():
    assert summary(STATS) == "398 tokens · first token 0.21 s · 71 % of 440 drafted accepted"
    assert summary(Stats(predicted_n=1)) == "1 token"


def test_a_stop_text_that_ended_an_answer_is_named():
    stopped = changed(finish_reason="stop", stop_text="###\x1b[2J")
    assert summary(stopped).startswith("ended by the stop text “###␛[2J” · 398 tokens")
    blank = changed(finish_reason="stop", stop_text="\n\n")
    assert summary(blank).startswith(r"ended by the stop text “\n\n” · ")


def test_a_speed_up_below_one_beside_a_high_acceptance_says_why_where_the_figure_is():
    """Nearly all drafts accepted, and slower: what a round takes says why."""
    reason = "×0.83, not faster: a round brings 3.4 tokens, but takes as long as 4.1 plain ones"
    slow = changed(speedup=0.83, draft_n_accepted=418, draft_n_rejected=22)
    assert summary(slow, 0.06).endswith(f"95 % of 440 drafted accepted · {reason}")
    assert against(slow, 0.06, 12).endswith(f"(measured in 12 rounds without a draft). {reason}.")
    assert "not faster" not in summary(changed(speedup=1.05), 0.01)


@pytest.mark.parametrize(("speedup", "band"), [(0.69, 0.58), (0.7, None), (0.999, 0.01)])
def test_nothing_is_said_of_a_speed_up_below_one_whose_interval_shows_nothing(speedup: float, band: float | None):
    unsure = changed(speedup=speedup)
    assert "not faster" not in summary(unsure, band)
    assert "not faster" not in against(unsure, band, 12)


@pytest.mark.parametrize(
    ("reason", "first"), [("cancelled", "stopped"), ("context", "the context is full"), ("length", "cut at the")]
)
def test_an_answer_that_did_not_end_by_itself_says_so_first(reason: str, first: str):
    assert summary(changed(finish_reason=reason)).startswith(first)


def test_without_a_drafter_it_says_nothing_of_drafts():
    said = summary(changed(draft_kind="off", draft_n_accepted=0, draft_n_rejected=0, speedup=None))
    assert said == "398 tokens · first token 0.21 s"


# --- the header


async def test_the_header_says_who_drafts_and_how_fast():
    async with open_chat(ScriptedEngine(FAST), size=(100, 24)) as stage:
        await stage.ready()
        assert "tok/s" not in top(stage)
        await told(stage)
        await stage.until(lambda: "⇐ guide-draft, auto · cpu" in top(stage) and "tok/s" in top(stage))
        assert top(stage).rstrip().endswith("tok/s   ×2.00 ▲")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: "tok/s" not in top(stage) and "⇐ guide-draft, auto · cpu" in top(stage))


async def test_below_80_columns_it_is_the_model_and_the_figures():
    async with open_chat(ScriptedEngine(FAST), size=(79, 24)) as stage:
        await told(stage)
        await stage.until(lambda: "tok/s   ×" in top(stage))
        assert top(stage).split() == ["guide", "100.0", "tok/s", "×2.00", "▲"]
        await stage.pilot.resize_terminal(80, 24)
        await stage.until(lambda: top(stage).startswith(" localspec · guide"))


async def test_a_model_without_a_template_is_said_to_complete_texts():
    base = msgspec.structs.replace(READY.model, chat=False)
    async with open_chat(ScriptedEngine(opening=[Ready(base, READY.spec, READY.memory)])) as stage:
        await stage.sees("guide · int8 · completion mode ⇐")


async def test_the_headers_tooltip_says_what_the_speed_up_is_measured_against(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ChatApp, "TOOLTIP_DELAY", 0.01)
    async with open_chat(ScriptedEngine(FAST), tooltips=True) as stage:
        await told(stage)
        await stage.until(lambda: "×2.00" in top(stage))
        await stage.pilot.hover(offset=(70, 0))
        await stage.sees("about 50 tokens per second", "in 10 rounds")


@pytest.mark.parametrize(
    ("speedup", "band", "words"),
    [(1.84, 0.06, "×1.84 ▲"), (0.8, 0.06, "×0.80 ▼"), (1.03, 0.06, "×1.03"), (1.84, None, "×1.84"), (None, None, "×–")],
)
def test_an_arrow_says_what_the_colour_says(speedup: float | None, band: float | None, words: str):
    assert gain(speedup, band).plain == words


def test_what_it_is_measured_against():
    assert against(msgspec.structs.replace(STATS, predicted_ms=96.6), 0.06, 12) == (
        "×1.84 ±0.06 ▲: times as fast as without drafting, with its 95 % interval. Without drafting it would be about"
        " 2,239 tokens per second (measured in 12 rounds without a draft)."
    )
    assert against(changed(speedup=None, baseline_tps=None), None, 0) == NOT_YET
    assert against(changed(speedup=None), None, 12) == UNSTEADY


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/models/small/SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1"),
        ("small/big-00001-of-00002.gguf", "big"),
        ("./drafts/small/", "small"),
        ("~/models/small", "small"),
        ("org/small", "org/small"),
        ("org/small-GGUF:small.Q4_1.gguf", "org/small-GGUF:small.Q4_1.gguf"),
        ("small", "small"),
    ],
)
def test_a_draft_model_by_its_path_has_the_name_of_its_folder_or_file(name: str, shown: str):
    """As the target has it; /draft takes the path."""
    spec = SpecCard("model", name)
    assert drafter(spec) == shown
    assert drafting(msgspec.structs.replace(spec, lookup=True)) == f"look-up + draft model {shown}, auto"
    assert explained(spec).startswith(f"{shown}: a smaller model")
    assert spelling(spec) == name


# --- how far drafts go, and why they do not


def test_the_length_is_that_of_most_of_the_last_drafts():
    long, short = step("a", "b", "c", "d"), step("a", "b")
    assert length_now([]) is None
    assert length_now([short] * 30 + [PLAIN] + [long] * 9) == 4
    assert length_now([PLAIN, PLAIN, long] * 9) == 4, "every third round is not hardly any"
    assert length_now([PLAIN] * (RECENT - 1)) is None
    assert length_now([*[PLAIN] * (RECENT - 2), long, PLAIN]) == 0
    assert words(AUTO, [long]) == "auto, 4 at a time"
    assert words(AUTO) == "auto"
    assert words(msgspec.structs.replace(AUTO, mode="on", k=5), []) == "on, 5 at a time"
    assert words(msgspec.structs.replace(AUTO, mode="off"), [long]) == "off"


def test_why_auto_does_not_draft():
    drafted, plain = [COSTLY] * 4, [PLAIN] * RECENT
    assert why_off(AUTO, [*drafted, *plain]) == COSTS
    assert why_off(AUTO, [*plain, *drafted * 4]) == ""
    assert why_off(AUTO, plain) == "", "nothing was drafted: nothing is known"
    assert why_off(msgspec.structs.replace(AUTO, mode="off"), [*drafted, *plain]) == "", "the user's own choice"
    assert why_off(SpecCard("off", reason="no drafter\x1b[2J")) == "no drafter␛[2J"
    assert why_off(None) == ""


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (step("a", "b", "c"), 4),  # it brings more than it takes: something else ended it
        (msgspec.structs.replace(PLAIN, drafted=3, rejected=(Proposal(7, "x"),) * 3), 4),  # that cost no time
        (COSTLY, 3),  # of few rounds nothing is said
    ],
)
def test_figures_that_do_not_make_the_point_are_not_said(kind: Step, count: int):
    assert why_off(AUTO, [*[kind] * count, *[PLAIN] * RECENT]) == ""


def test_a_drafter_that_is_always_right_and_as_slow_as_the_model_is_explained():
    own = msgspec.structs.replace(step("a", "b", "c"), draft_ms=3 * PLAIN.verify_ms, rejected=())
    assert why_off(AUTO, [*[own] * 4, *[PLAIN] * RECENT]) == (
        "a round with a draft brought 3.0 tokens, but took as long as 4.0 plain ones"
    )


async def test_when_auto_drafts_no_more_for_long_it_says_why():
    async with open_chat(ScriptedEngine(SLOW), size=(120, 24)) as stage:
        await stage.send("hi")
        await stage.hints(f"Drafting is paused, as it saves too little now: {COSTS}. It is tried again by itself.")
        await stage.until(lambda: stage.chat.state.phase == "idle")
        stage.chat.status.end_hint()
        await stage.sees("⇐ guide-draft, paused · cpu")


async def test_a_short_pause_is_not_worth_a_sentence():
    short = answer(*[COSTLY] * 4, *[PLAIN] * RECENT)
    async with open_chat(ScriptedEngine(short), size=(120, 24)) as stage:
        await told(stage)
        await stage.sees("⇐ guide-draft, paused · cpu")
        assert "Drafting is paused" not in stage.seen
        await stage.send("/why")
        await stage.sees("Now: guide-draft, paused (a round with a draft brought 1.0 tokens")


async def test_what_has_just_been_loaded_is_not_paused_for_what_was_before():
    """However it comes to be loaded; the answer's own figures and rounds stay."""
    async with open_chat(ScriptedEngine(SLOW), ScriptedEngine(SLOW), size=(120, 24)) as stage:
        await stage.send("hi")
        await stage.sees("⇐ guide-draft, paused · cpu")
        await stage.ready()
        await stage.chat.models.unload()
        stage.chat.engine.load()
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        await stage.sees("⇐ guide-draft, auto · cpu")
        assert stage.chat.state.rounds
        await stage.send("hi")
        await stage.sees("⇐ guide-draft, paused · cpu")


# --- the state line


def test_the_state_line_says_the_context_and_what_was_chosen():
    assert info(ChatInfo("balanced", 7), STATS, 99).plain == "ctx 1,204/8,192 15 % · preset balanced · seed 7"
    assert info(ChatInfo(), STATS, 99).plain == "ctx 1,204/8,192 15 %"
    assert info(ChatInfo(seed=0), STATS, 99).plain == "ctx 1,204/8,192 15 % · seed 0"


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "ctx 1,204/8,192 15 % · preset balanced · seed 7 · ↓ 3 %"),
        (45, "ctx 1,204/8,192 15 % · preset balanced · ↓ 3 %"),
        (30, "ctx 1,204/8,192 15 % · ↓ 3 %"),
        (20, "↓ 3 %"),
        (3, ""),
    ],
)
def test_what_does_not_fit_is_left_out_and_a_download_last(width: int, said: str):
    assert info(ChatInfo("balanced", 7, "↓ 3 %"), STATS, width + 1).plain == said


def test_a_context_that_is_nearly_full_is_a_warning_in_words_too():
    found = info(ChatInfo(), changed(context_used=6554), 99)
    assert found.plain.startswith("ctx 6,554/8,192 80 % full")
    assert {str(span.style) for span in found.spans if span.start == 0} == {"bold $text-warning"}


async def test_preset_and_seed_follow_what_is_set():
    tuning = Tuning(Config(), chosen=SamplingOptions(seed=3))
    async with open_chat(ScriptedEngine(HELLO), tuning=tuning) as stage:
        await stage.ready()
        await stage.sees("seed 3")
        assert "preset" not in stage.seen
        await stage.send("/preset balanced")
        await stage.sees("From the next question on")
        stage.chat.status.end_hint()
        await stage.sees("preset balanced")
        assert "seed" not in stage.seen


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (AUTO, "small: a smaller model guesses the next tokens. The model checks every guess."),
        (
            BOTH,
            "look-up: it copies what followed the last words earlier in the text; layers 1–8: the model's own first"
            " layers guess the next tokens. The model checks every guess.",
        ),
        (msgspec.structs.replace(AUTO, mode="off"), ""),
        (SpecCard("off", reason="no drafter"), ""),
    ],
)
def test_what_drafts_is_explained(spec: SpecCard, said: str):
    assert explained(spec) == said


async def hover(stage: Stage, where: Widget | None, x: int, said: str) -> None:
    """The mouse comes from elsewhere: Textual hides a tooltip when it moves on in the same widget."""
    await stage.pilot.hover(stage.chat.prompt)
    await stage.pilot.hover(where, offset=(x, 0))
    await stage.sees(said)


async def test_the_mouse_on_what_the_chat_shows_says_what_it_is_in_the_words_of_the_help(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ChatApp, "TOOLTIP_DELAY", 0.01)
    async with open_chat(ScriptedEngine(FAST), size=(150, 36), tooltips=True) as stage:
        await told(stage)
        await stage.until(lambda: "×2.00" in top(stage))
        await hover(stage, None, top(stage).index("guide-draft"), "guide-draft: a smaller model guesses")
        shown = stage.chat.query_one(Answer)
        await hover(stage, shown.query_one(Ribbon), 2, f"{RIBBON.sign}: ")
        await hover(stage, shown.query(".figures").last(), 2, "Tokens written; seconds to the first")
        await hover(stage, stage.chat.status, stage.chat.status.size.width - 4, "ctx: tokens that the model")
        await stage.pilot.press("f3")
        await stage.until(lambda: stage.chat.legend.display)
        await hover(stage, stage.chat.legend, 1 + legend.WORDS.plain.index("bonus"), "bonus: the model's extra")
        await stage.pilot.hover(stage.chat.status, offset=(1, 0))
        await stage.until(lambda: "bonus: " not in stage.seen)


async def test_the_help_begins_with_what_is_seen_and_the_marks_of_tokens():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 40)) as stage:
        await stage.ready()
        await stage.pilot.press("f1")
        await stage.sees("What you see", "Who wrote a token, as F3 shows it")
        page = " ".join(stage.seen.replace("│", " ").split())
    for one in (*WHAT_YOU_SEE, *((look.word, look.meaning) for look in ALL)):
        assert " ".join(one) in page
    assert page.index("What you see") < page.index("Who wrote") < page.index("F2 An answer's main figures")


def test_the_signs_in_the_help_are_those_of_the_screen():
    """Whoever changes what is shown changes what explains it."""
    layers = SpecCard("early-exit", "early exit 2", exit_layer=2)
    assert drafting(layers) == f"{LAYERS.sign}, auto"
    assert EARLY_EXIT.summary("2") == LAYERS.sign, "as ls and the models screen name it"
    assert gain(1.5, 0.1, shows_band=True).plain == f"{GAIN.sign} {CERTAIN.sign.split()[0]}"
    assert gain(0.5, 0.1).plain.endswith(CERTAIN.sign.split()[1])
    assert gain(None, None).plain == explained_signs.NOT_YET.sign
    assert {column(0), column(0.5), column(1), PLAIN_CELL, " "} >= {*RIBBON.sign}
    assert info(ChatInfo(), STATS, 99).plain.startswith(f"{CONTEXT.sign} ")
    said = panel(SpeedReading(STATS, 0.06, 12), 60, 30).plain
    assert all(one.sign in said for one in (SPEED, ACCEPTED, explained_signs.PLAIN, PROBES))
    assert all(word in said + caption(2, 1) for word in ROUND.sign.split(", "))


async def test_where_nothing_drafts_the_header_says_so_quietly_and_nothing_else_does():
    opening = [Ready(READY.model, SpecCard("off", reason="[/nope]"), READY.memory)]
    script = answer(*[PLAIN] * 30)
    async with open_chat(ScriptedEngine(script, opening=opening), size=(150, 24)) as stage:
        await stage.sees("guide · int8 · no draft model · F5: why? · cpu")
        await told(stage)
        await stage.until(lambda: "tok/s" in top(stage))
        assert "×" not in stage.seen
        assert stage.seen.count("draft") == 1
        assert "warning" not in {str(span.style) for span in stage.chat.header.line.spans}


async def test_the_header_names_both_that_draft():
    opening = [Ready(READY.model, BOTH, READY.memory)]
    async with open_chat(ScriptedEngine(opening=opening), size=(150, 24)) as stage:
        await stage.sees("guide · int8 ⇐ look-up + layers 1–8, auto · cpu")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (AUTO, "small, auto"),
        (msgspec.structs.replace(AUTO, mode="off"), "speculation off"),
        (SpecCard("off", reason="you turned it off"), "speculation off"),
        (SpecCard("off", reason="it failed"), "the draft model failed"),
        (SpecCard("off", reason="no drafter is known for this model"), "no draft model"),
        (SpecCard("model", "a\x1b[2J"), "a␛[2J, auto"),
        (BOTH, "look-up + layers 1–8, auto"),
        (SpecCard("lookup", "look-up"), "look-up, auto"),
        (SpecCard("early-exit", "early exit 1", exit_layer=1), "layer 1, auto"),
        (SpecCard("model", "small", lookup=True), "look-up + draft model small, auto"),
        (
            SpecCard("model", "small", lookup=True, translated=True),
            "look-up + draft model small (other tokenizer), auto",
        ),
    ],
)
def test_the_state_of_drafting_in_words(spec: SpecCard, words: str):
    assert drafting(spec) == words


def test_an_answer_for_which_drafts_no_longer_pay_says_so():
    assert drafting(AUTO, [PLAIN] * RECENT) == "small, paused"
    assert drafting(msgspec.structs.replace(AUTO, mode="on", k=3), [PLAIN] * RECENT) == "small, 3 at a time"


@pytest.mark.parametrize(
    ("mode", "k", "rounds", "said"),
    [
        ("auto", "auto", [], "auto"),
        ("auto", "auto", [step("a", "b")], "auto, 2 at a time"),
        ("auto", "auto", [PLAIN] * RECENT, "auto, paused"),
        ("on", 5, [step("a", "b")], "on, 5 at a time"),
        ("off", 5, [step("a", "b")], "off"),
    ],
)
def test_how_far_drafts_go_in_words(mode: Mode, k: DraftLength, rounds: list[Step], said: str):
    assert words(msgspec.structs.replace(AUTO, mode=mode, k=k), rounds) == said


# --- the panel


def test_the_panel_says_how_much_of_the_memory_is_held_and_how_it_is_drafted():
    held = changed(target_bytes=6_400_000_000, kv_bytes=500_000_000)
    reading = SpeedReading(held, 0.06, 12, (step("a", "b"),), AUTO, "cuda:0", 8_000_000_000)
    lines = panel(reading, 28, 20).plain.splitlines()
    assert "VRAM     ███████░ 6.9/8.0 GB" in lines
    assert "drafts   auto, 2 at a time" in lines
    assert "RAM      ███████░ 6.9/8.0 GB" in panel(replace(reading, device="cpu"), 28, 20).plain.splitlines()
    assert "RAM" not in panel(replace(reading, device_bytes=0), 28, 20).plain


async def test_the_panel_shows_both_in_the_chat():
    memory = msgspec.structs.replace(READY.memory, device_bytes=16_000_000_000)
    opening = [Ready(READY.model, READY.spec, memory)]
    async with open_chat(ScriptedEngine(HELLO, opening=opening), size=(150, 30)) as stage:
        await told(stage)
        await stage.pilot.press("f2")
        await stage.sees("RAM      ░", "0.1/16.0 GB", "drafts   auto, 2 at a time")


# --- the line above a message


async def test_a_question_says_when_it_was_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.tui.chat.conversation.now", lambda: "2026-03-10T12:00:00Z")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await told(stage)
        line = next(line for line in stage.seen.splitlines() if "You" in line)
        assert line.rstrip().endswith(clock("2026-03-10T12:00:00Z"))
        assert "2026-03-1" in line


def test_the_day_is_said_where_it_was_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.tui.transcript.speaker.when", lambda at: at)
    monkeypatch.setattr("localspec.tui.transcript.speaker.date", type("Day", (), {"today": lambda: "2026-03-10"}))
    assert [clock(at) for at in ("2026-03-10 09:41", "2026-03-09 09:41", "")] == ["09:41", "2026-03-09 09:41", ""]


@pytest.mark.slow
async def test_a_click_on_the_switch_shows_one_answer_by_token():
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await told(stage)
        await told(stage)
        await stage.sees("[md] tok")
        first, second = stage.chat.query(Answer)
        await stage.pilot.click(first.speaker, offset=(3, 0))
        assert first.view == "markdown", "the name is no switch"
        await stage.pilot.click(first.speaker, offset=(first.speaker.size.width - 2, 0))
        await stage.sees("md [tok]", "[md] tok", "Hello there, world. Bye.")
        assert (first.view, second.view) == ("tokens", "markdown")
        assert stage.chat.focused is stage.chat.prompt
        await stage.pilot.press("f3")
        await stage.until(lambda: stage.seen.count("md [tok]") == 2)


async def test_there_is_no_switch_where_there_are_no_tokens_to_show():
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.chat.feedback.show(Answer("guide", "From before."))
        await stage.sees("From before.")
        assert "[md]" not in stage.seen


async def test_what_stands_at_the_right_of_a_name_is_not_copied_with_it():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await told(stage)
        stage.chat.text_select_all()
        copied = stage.chat.get_selected_text() or ""
        assert "Hello there, world. Bye." in copied
        assert "guide" in copied
        assert "tok]" not in copied
        assert "] tok" not in copied


# --- the tooltip of a fix


def test_the_tooltip_of_a_fix_says_both_words_and_both_probabilities():
    fix = step("so", " a").tokens[-1]
    assert choice(fix) == 'draft wanted "x" · target chose " a"'
    odds = msgspec.structs.replace(fix, alt=Proposal(7, "the\n", 0.61, 0.22))
    assert choice(odds) == 'draft wanted "the↵" · target chose " a" (p .61 vs .22)'
    assert choice(step("so", accepted=0).tokens[0]) == ""


async def test_the_mouse_on_a_token_says_more_of_it_and_elsewhere_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ChatApp, "TOOLTIP_DELAY", 0.01)
    odd = step("Hello", " [/nope]")
    fix = msgspec.structs.replace(odd.tokens[-1], alt=Proposal(7, "[/nope]", 0.61, 0.22))
    script = answer(msgspec.structs.replace(odd, tokens=(odd.tokens[0], fix)))
    async with open_chat(ScriptedEngine(script), tooltips=True) as stage:
        await told(stage)
        await stage.pilot.press("f3")
        await stage.sees("md [tok]", "Hello [/nope]")
        shown = stage.chat.query_one(TokenView)
        await stage.pilot.hover(shown, offset=(8, 0))
        await stage.sees('draft wanted "[/nope]" ·', "(p .61 vs .22)")
        await stage.pilot.hover(stage.chat.prompt)
        await stage.until(lambda: "draft wanted" not in stage.seen)
        await stage.pilot.hover(shown, offset=(2, 0))
        await stage.sees("drafted: token 1 of its draft")
        await stage.pilot.hover(shown, offset=(40, 0))
        await stage.until(lambda: "drafted: token" not in stage.seen)
        assert shown.tooltip is None


# --- the legend


@pytest.mark.slow
async def test_the_legend_is_there_three_times_whatever_the_starts_and_then_in_the_help():
    assert legend.TIMES == 3
    for times in range(legend.TIMES + 1):
        async with open_chat(ScriptedEngine(HELLO), size=(80, 60)) as stage:
            await told(stage)
            await stage.pilot.press("f3")
            await stage.sees("md [tok]", "Hello there")
            await stage.until(lambda times=times: hints.STORE.read().get("legend") == times + 1)
            await stage.until(lambda: not any(w.group == "legend" for w in stage.app.workers))
            assert stage.chat.legend.display == (times < legend.TIMES)
            await stage.pilot.press("shift+f3", "f1")
            await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
            await stage.sees("look-up", "bonus", "the model's own where a guess was wrong")
            assert hints.STORE.read() == {"legend": times + 1}, "another view of tokens is not another time"


@pytest.mark.parametrize("content", [b"", b"{", b'{"legend": "x"}', b'{"legend": -9}', b"\xff", b"[" * 99_999])
def test_a_damaged_count_begins_again(content: bytes):
    hints.count("legend")
    hints.paths.hints_file().write_bytes(content)
    assert (hints.count("legend"), hints.count("legend")) == (1, 2)


def test_where_nothing_can_be_kept_it_is_always_the_first_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.core.json_store.write_whole", lambda *_: (_ for _ in ()).throw(OSError("full")))
    assert (hints.count("legend"), hints.count("legend")) == (1, 1)


# --- the palette


async def test_the_palette_lists_models_and_loads_the_one_that_is_chosen(monkeypatch: pytest.MonkeyPatch):
    models = [ListedModel("[/nope]", "[b]", 1, "fits", ()), ListedModel("qwen7b", "bf16", 1, "too large", ())]
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: models)
    chosen: list[str] = []
    async with open_chat(ScriptedEngine(), size=(80, 140)) as stage:
        await stage.ready()
        monkeypatch.setattr(stage.chat.models, "choose", chosen.append)
        await stage.pilot.press("ctrl+p")
        await stage.sees("Model [/nope] · [b] · fits", "Model qwen7b · bf16 · too large", "Load this model")
        await stage.pilot.press(*"qwen")
        await stage.until(lambda: "[/nope]" not in stage.seen and "Model qwen7b" in stage.seen)
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: chosen == ["qwen7b"])


# --- what goes on


async def test_the_terminals_title_has_the_same_words_as_the_state_line():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("hi")
        await stage.sees("reading 12 of 12 tokens")
        assert stage.app.title == "reading 12 of 12 tokens · hi"


async def test_a_warning_and_an_error_differ_from_a_note_without_colours():
    assert str(Note("one").content) == "one"
    assert str(Note("two", level="warning").content) == "! two"
    assert str(Note("three", level="error").content) == "✗ three"


async def test_a_wide_line_of_keys_has_speculation_and_chats():
    async with open_chat(ScriptedEngine(), size=(150, 30)) as stage:
        await stage.sees("F5 Speculation", "^B Chats")
