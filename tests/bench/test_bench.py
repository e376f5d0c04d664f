"""The benchmark: fair turns, right medians, one truth in three formats, and a row that says when a drafter failed."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from localspec.bench import drafters, options, plots, progress, transformers_peer
from localspec.bench.drafters import usable
from localspec.bench.machine import describe_machine
from localspec.bench.measure import gather, interleave, measure
from localspec.bench.prompts import KINDS, QUESTIONS, BenchPrompt, prompts_for
from localspec.bench.report import BenchReport, BenchRow, Key, TimedRun, Way, interval, same
from localspec.bench.transformers_peer import PeerMode
from localspec.cli.main import main, outcome
from localspec.core import processor
from localspec.core.calibration import remember
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, NotDownloaded, UsageError
from localspec.core.events import DraftLength, Loading, Notice, Stats
from localspec.core.requests import LoadRequest
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.runtime.bench_table import bench_table, conclusion, which_counts
from localspec.runtime.open import open_target
from localspec.runtime.open_target import swept_key
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like, wordpiece_like

pytestmark = pytest.mark.heavy

MODULE = sys.modules[measure.__module__]  # the package has a function of this name
TWO = tuple(BenchPrompt("guide", question) for question in QUESTIONS[:2])
STATS = Stats(predicted_n=8, predicted_ms=4.0, read_bytes=12_000_000, bandwidth_peak_gbs=33.0, plain_rounds=8)


@dataclass
class Scripted:
    """A contender that only writes down when it was asked what. It falls at the question after `last`."""

    way: Way
    log: list[tuple[str, str]]
    last: int = 1000
    failed: bool = False
    fault: str = ""
    notes: list[str] = field(default_factory=list)

    def answer(self, question: str, max_tokens: int) -> TimedRun:
        self.log.append((self.way.name, question))
        self.last -= 1
        self.fault = "" if self.last >= 0 else "It fell."
        return TimedRun((1,) * max_tokens, 1.0)


def way(name: str, quant: str = "fp32", engine: str = "localspec", kind: str = "") -> Way:
    return Way(name, 0, quant, kind or name, engine)


def turns(names: str, repeats: int) -> tuple[list[list[tuple[str, str]]], dict[str, dict[Key, TimedRun]]]:
    """Who was asked what, a list for the warm-up and one for every turn; and the runs."""
    log: list[tuple[str, str]] = []
    runs = interleave([Scripted(way(name), log) for name in names], 8, repeats, lambda _share: None)
    turns = [log[at : at + len(names)] for at in range(0, len(log), len(names))]
    return turns, {one.name: found for one, found in runs.items()}


def test_every_contender_answers_a_prompt_before_any_sees_the_next():
    (_, *asked), runs = turns("abc", 2)
    assert [sorted(turn) for turn in asked] == [[(name, prompt) for name in "abc"] for prompt in QUESTIONS * 2]
    keys = {(place, repeat) for place in range(len(QUESTIONS)) for repeat in range(2)}
    assert [set(runs[name]) for name in "abc"] == [keys] * 3


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
def test_the_order_turns_with_every_prompt(names: str):
    (_, *asked), _ = turns(names, 2)
    firsts = [turn[0][0] for turn in asked]
    assert firsts == [names[turn % len(names)] for turn in range(2 * len(QUESTIONS))]
    assert {len({name for name, _ in turn}) for turn in asked} == {len(names)}


def test_the_warm_up_is_not_counted():
    (warm, *asked), runs = turns("ab", 1)
    assert warm == [("a", QUESTIONS[0]), ("b", QUESTIONS[0])]
    assert len(asked) == len(runs["a"]) == len(QUESTIONS)


def test_who_falls_is_asked_no_more_and_has_no_runs():
    log: list[tuple[str, str]] = []
    kept, fallen = Scripted(way("kept"), log), Scripted(way("fallen"), log, last=3)
    runs = interleave([kept, fallen], 8, 1, lambda _share: None)
    assert list(runs) == [kept.way]
    assert [name for name, _ in log].count("fallen") == 4


def timed(*seconds: float, stats: Stats | None = None, ids: int = 8) -> dict[Key, TimedRun]:
    return {(place, 0): TimedRun(tuple(range(ids)), took, stats) for place, took in enumerate(seconds)}


def report(runs: dict[str | Way, dict[Key, TimedRun]], **more: Any) -> BenchReport:
    ways = {one if isinstance(one, Way) else way(one): found for one, found in runs.items()}
    return BenchReport("tiny", "fp32", 8, 1, {"cores": "2"}, ways, **more)


def test_speeds_are_medians_with_half_their_interval():
    """The median is between the lowest and the highest of six in 96.9 % of samples, between the next in 78.1 %."""
    row = report({"plain": timed(*(1 / speed for speed in (80, 88, 96, 104, 112, 120)))}).rows()[0]
    assert (row.tokens_per_second, row.speedup, row.speedup_spread) == (pytest.approx(800), 1.0, 0.0)
    assert row.tokens_per_second_spread == pytest.approx(160 - 64 * 0.5 / 1.4)
    few = report({"plain": timed(1.0, 2.0, 8.0)}).rows()[0]
    assert (few.tokens_per_second, few.tokens_per_second_spread, few.speedup_spread) == (4.0, None, None)


@pytest.mark.parametrize("count", [6, 8, 24, 48])
def test_the_interval_has_the_median_in_95_of_100_samples(count: int):
    """Skewed ones too. 2.5 points are five times the standard error of a share of 2,000: less than one false alarm in a
    million."""
    chance = random.Random(7)
    samples = [[chance.lognormvariate(0, 0.5) for _ in range(count)] for _ in range(2_000)]
    found = [low <= 1 <= high for low, high in filter(None, map(interval, samples))]
    assert len(found) == 2_000
    assert sum(found) / len(found) == pytest.approx(0.95, abs=0.025)


def test_a_speed_up_is_the_ratio_on_the_same_prompt_and_repeat():
    """A machine that slows down for everybody changes no ratio, though it changes every speed."""
    plain, fast = timed(1.0, 10.0, 100.0, 1, 1, 1), timed(0.5, 5.0, 25.0, 0.5, 0.5, 0.5)
    row = report({"plain": plain, "fast": dict(reversed(fast.items()))}).rows()[1]
    assert (row.speedup, row.tokens_per_second) == (2.0, 16.0)
    slower = timed(0.5, 5.0, 50.0, 0.5, 0.5, 0.5)
    assert report({"plain": plain, "fast": slower}).rows()[1].speedup_spread == 0.0


BUSY = {  # the second half of the answers on half the machine, and a drafter that brings a fifth whenever
    "plain": timed(*(1.0 if key < 3 else 2.0 for key in range(8))),
    "early exit 2": timed(*(0.8 if key < 5 else 1.65 for key in range(8))),
}


@pytest.mark.parametrize("form", ["to_text", "to_markdown"])
def test_a_table_whose_columns_do_not_fit_says_which_counts(form: str):
    """The tester's: 2345.6 and 3370.1 tok/s beside ×1.21, on a machine that changed its speed."""
    made = report(BUSY)
    assert made.rows()[1].speedup == pytest.approx(1.25)
    assert made.rows()[1].tokens_per_second == 10.0
    said = "The tok/s of early exit 2 does not fit × plain: the machine's speed changed"
    assert said in getattr(made, form)()
    steady = report({"plain": timed(*[1.0] * 8), "look-up": timed(*[0.8] * 8), "slow": timed(*[1.25] * 8)})
    assert "does not fit" not in getattr(steady, form)()


def test_too_few_answers_say_nothing():
    few = [ROW, BenchRow("auto", "auto", "int8", 1, 20.0, None, 2.0, None)]
    assert conclusion(few) == "Which is fastest is not known yet: there are too few answers."
    assert "×2.00  " in bench_table(few)
    assert which_counts(few) == ""


def test_acceptance_and_tokens_per_round_are_of_all_answers_together():
    """A short answer counts for less: 1 of 2 and 9 of 10 make 10 of 12."""
    short = Stats(predicted_n=2, draft_n_accepted=1, draft_n_rejected=1, draft_rounds=1)
    long = Stats(predicted_n=14, draft_n_accepted=9, draft_n_rejected=1, draft_rounds=3, plain_rounds=1)
    runs = {(0, 0): TimedRun((1,), 1.0, short), (1, 0): TimedRun((1,), 1.0, long)}
    row = report({"plain": runs}).rows()[0]
    assert (row.acceptance, row.tokens_per_round) == (10 / 12, 16 / 5)


def test_bandwidth_is_the_median_beside_the_machines_best():
    """One best for all rows, the highest that was seen: a loading that was disturbed flatters nobody."""
    disturbed = msgspec.structs.replace(STATS, bandwidth_peak_gbs=20.0, read_bytes=8_000_000)
    runs = {"plain": timed(1.0, 2.0, stats=STATS), "fast": timed(1.0, 2.0, stats=disturbed), "peer": timed(1.0, 2.0)}
    plain, fast, peer = report(runs).rows()
    assert [(row.read_gbs, row.peak_gbs) for row in (plain, fast, peer)] == [(3.0, 33.0), (2.0, 33.0), (None, 33.0)]
    assert (peer.ttft_ms, peer.acceptance, peer.tokens_per_round) == (None,) * 3
    assert "| 3.0 of 33.0 |" in report(runs).to_markdown()


def test_on_a_terminal_it_is_a_table_of_80_columns_with_what_follows_from_it_last():
    """Whatever names and differences there are."""
    long, theirs = way("draft model org/a-rather-long-name-of-a-model"), way("theirs", engine="theirs", kind="plain")
    other = {(place, 0): TimedRun((9,), 1.0) for place in range(2)}
    ways = {way("plain"): timed(1.0, 2.0), way("plain", "int8"): timed(1.0, 1.0), long: other, theirs: timed(0.1, 0.1)}
    text = report(ways, notes=("A note.",)).to_text()
    drawn = text.split("\n\n")[1].splitlines()
    assert len(drawn) == 5
    assert all(len(line) <= 80 for line in drawn)
    assert text.startswith("tiny · fp32 · greedy · 8 tokens · 1 repeat\ncores 2\n\nmethod")
    assert "draft model org/a-" in drawn[3]
    assert "0/2, first at 0" in drawn[3]
    assert text.endswith("A note.\nAll columns, and each kind of prompt: -o md\n" + conclusion(report(ways).rows()[:3]))


ROW = BenchRow("plain", 0, "int8", 1, 10.0, 0.0, 1.0, 0.0)


def measured(name: str, speedup: float, spread: float, k: DraftLength = "auto", quant: str = "int8") -> BenchRow:
    return BenchRow(name, k, quant, 1, 10.0, 0.0, speedup, spread)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ""),
        ([measured("auto", 1.35, 0.17)], "auto, ×1.35 ±0.17. localspec uses it unless you choose another."),
        ([measured("look-up", 1.35, 0.17)], "look-up, ×1.35 ±0.17."),
        ([measured("auto", 1.35, 0.17, 4)], "auto, ×1.35 ±0.17."),
        (
            [measured("early exit 2", 1.4, 0.1), measured("auto", 1.3, 0.1)],
            "early exit 2, ×1.40 ±0.10. localspec uses auto, ×1.30 ±0.10, within the measuring error of it, unless you "
            "choose another.",
        ),
        (
            [measured("early exit 2", 1.4, 0.1), measured("auto", 1.1, 0.05)],
            "early exit 2, ×1.40 ±0.10. localspec uses auto, ×1.10 ±0.05, unless you choose another.",
        ),
        ([measured("auto", 1.15, 0.17)], "plain and auto, ×1.15 ±0.17: the difference is within the measuring error."),
        ([measured("auto", 0.8, 0.1)], "plain; the next is auto, ×0.80 ±0.10."),
        ([measured("auto", 1.35, 0.17, quant="int4")], "auto in int4, ×1.35 ±0.17."),
    ],
)
def test_the_conclusion_claims_no_more_than_the_spread_allows(rows: list[BenchRow], said: str):
    assert conclusion([ROW, *rows]) == (f"Fastest here: {said}" if said else "")


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((1, 2, 3), (1, 2, 3), "1/1"),
        ((1, 9, 3), (1, 2, 3), "0/1, first at 1"),
        ((1, 2), (1, 2, 3), "0/1, first at 2"),
        ((1, 2, 3), (1, 2), "0/1, first at 2"),
        ((), (1,), "0/1, first at 0"),
    ],
)
def test_same_names_the_first_place_that_differs_and_an_end_is_one(
    left: tuple[int, ...], right: tuple[int, ...], said: str
):
    assert same({(0, 0): TimedRun(left, 1.0)}, {(0, 0): TimedRun(right, 1.0)}) == said


def test_same_counts_answers_and_names_the_earliest_difference():
    plain = {(place, 0): TimedRun((1, 2, 3), 1.0) for place in range(3)}
    other = {(0, 0): TimedRun((1, 2, 4), 1.0), (1, 0): TimedRun((1, 2, 3), 1.0), (2, 0): TimedRun((1, 5, 3), 1.0)}
    assert same(other, plain) == "1/3, first at 1"


def table(text: str) -> list[dict[str, str]]:
    """The rows of a Markdown table."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]]


def test_the_three_formats_parse_and_say_the_same():
    seconds = {"plain": (1.0, 2.0), "early exit 1": (0.5, 1.0), "peer": (3.0, 3)}
    runs = {one: timed(*took * 3, stats=None if one == "peer" else STATS) for one, took in seconds.items()}
    faults = {way("theirs", engine="theirs"): "It fell."}
    made = report(runs, failed=frozenset({way("early exit 1")}), faults=faults, notes=("early exit 1: It failed.",))
    rows, told = json.loads(made.to_json())["rows"], made.to_markdown()
    as_csv = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows] == [
        {name: value for name, value in row.items() if name != "model"} for row in as_csv
    ]
    assert [row["method"] for row in table(told)] == [row["method"] for row in rows]
    ratios = [f"{row['speedup']:.2f} ± {row['speedup_spread']:.2f}" for row in rows[:-1]]
    assert [row["× plain"] for row in table(told)] == [*ratios, "–"]
    assert rows[-1]["method"] == "theirs (failed: It fell.)"
    assert rows[-1]["tokens_per_second"] is None
    assert told.endswith("\n\nearly exit 1: It failed.")
    assert json.loads(made.to_json())["notes"] == ["early exit 1: It failed."]


def test_every_format_has_its_own_plain_and_is_compared_with_theirs_in_the_same_format_or_their_fastest():
    """And × plain is over the first row in all, so that the table has one yardstick."""
    plain, drafted = way("plain", "int8"), way("early exit 1", "int8")
    plain_fp32, drafted_fp32 = way("plain"), way("early exit 1")
    theirs = way("theirs plain", engine="theirs", kind="plain")
    assisted = way("theirs exit", engine="theirs", kind="early exit 1")
    assisted_bf16 = way("theirs exit", "bf16", engine="theirs", kind="early exit 1")
    seconds = {plain: 1, drafted: 0.5, plain_fp32: 4, drafted_fp32: 1, theirs: 8, assisted: 4, assisted_bf16: 2}
    rows = report({one: timed(took, took) for one, took in seconds.items()}).rows()
    assert [row.speedup for row in rows] == [1, 2, 0.25, 1, 0.125, 0.25, 0.5]
    assert [row.times_own_plain for row in rows] == [1, 2, 1, 4, 1, 2, None]
    assert [row.times_theirs for row in rows] == [8, 4, 2, 4, None, None, None]
    assert [row.quant for row in rows] == ["int8", "int8", "fp32", "fp32", "fp32", "fp32", "bf16"]


def test_same_is_with_own_plain_and_of_a_plain_with_the_first():
    first, other = timed(1.0, 1.0), timed(1.0, 1.0, ids=4)
    ways = {way("plain", "int8"): first, way("plain"): other, way("early exit 1"): other}
    assert [row.same for row in report(ways).rows()] == ["2/2", "0/2, first at 4", "2/2"]


def test_where_their_plain_failed_their_others_are_compared_with_ours_alone():
    exits = way("theirs exit", "bf16", engine="theirs", kind="early exit 1")
    ways = {way("plain", "int8"): timed(1.0), way("plain"): timed(4.0), exits: timed(2.0)}
    row = report(ways, faults={way("theirs plain", "bf16", "theirs", "plain"): "It fell."}).rows()[2]
    assert (row.speedup, row.times_own_plain, row.same) == (0.5, None, "1/1")


def test_columns_that_compare_nothing_are_left_out():
    head = report({"plain": timed(1.0), "early exit 1": timed(1.0)}).to_markdown().splitlines()[3]
    assert "× plain" in head
    assert "own" not in head
    assert "theirs" not in head


def test_the_first_tokens_acceptance_is_of_drafted_rounds():
    stats = Stats(accepted_counts=(1, 2, 1))
    assert report({"plain": timed(1.0, stats=stats)}).rows()[0].first_accepted == 0.75


def test_a_bar_in_a_name_keeps_the_table_whole():
    assert r"draft model a\|b" in report({"plain": timed(1.0), "draft model a|b": timed(1.0)}).to_markdown()


def test_every_answer_brings_the_end_nearer():
    """Those of the warm-up, too, and those of a contender that has fallen."""
    told: list[float] = []
    interleave([Scripted(way("kept"), []), Scripted(way("fallen"), [], last=3)], 8, 1, told.append)
    answers = 2 * (1 + len(QUESTIONS))
    assert told == [done / answers for done in range(answers + 1)]


def test_what_is_measured_and_how_far_it_is_are_events(monkeypatch: pytest.MonkeyPatch):
    clock = iter([10.0, 12.0, 14.0])
    monkeypatch.setattr("localspec.bench.progress.perf_counter", lambda: next(clock))
    told: list[Loading] = []
    tell = progress.shares(told.append, "plain, early exit 2")
    for share in (0.0, 0.25, 1.0):
        tell(share)
    assert [(event.done, event.eta_s) for event in told] == [(0, None), (25, 6.0), (100, 0.0)]
    assert {(event.stage, event.total, event.unit) for event in told} == {("plain, early exit 2", 100, "percent")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_snapshot(made / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>", hidden_size=64)
    save_snapshot(made / "base", gpt2_like(), eos="<|endoftext|>", hidden_size=64)
    save_snapshot(made / "other", wordpiece_like(), seed=2)
    return made


def bench(model: Path | str, **given: Any) -> BenchReport:
    """On two questions, unless it is given others."""
    options = {name: given.pop(name) for name in ("formats", "against", "warn", "prompts") if name in given}
    asked = {"prompts": TWO, "max_tokens": 8, "repeats": 1, **options}
    return measure(LoadRequest.of(str(model), threads=1, **given), **asked)


@pytest.mark.usefixtures("verified")
def test_a_model_without_a_known_draft_model_is_measured_with_look_up_and_told_how_to_find_one(folder: Path):
    warned: list[Notice] = []
    made = bench(folder / "tiny", warn=warned.append)
    assert [row.method for row in made.rows()] == ["plain", "look-up"]
    assert made.rows()[1].same == "2/2"
    assert warned == []
    key = folder / "tiny"
    told = [
        "No draft model is known for tiny.",
        f"Try: localspec bench {key} --sweep exit-layer",
        f"Try: localspec pair {key} --hub",
    ]
    assert [line for line in made.to_markdown().splitlines() if line][-3:] == told
    assert "\n".join(told) in made.to_text(), "a command is on a line of its own"


@pytest.mark.usefixtures("verified")
def test_a_model_that_cannot_roll_back_is_measured_plain_and_said_so(folder: Path, monkeypatch: pytest.MonkeyPatch):
    warned: list[Notice] = []
    monkeypatch.setattr(drafters, "can_draft", lambda _: False)
    monkeypatch.setattr(MODULE, "can_draft", lambda _: False)
    made = bench(folder / "tiny", warn=warned.append)
    assert [row.method for row in made.rows()] == ["plain"]
    (notice,) = warned
    assert "tiny cannot be drafted for, since its state cannot be rolled back" in notice.message


@pytest.mark.usefixtures("verified")
def test_kinds_are_rows_with_speed_gain_and_acceptance_and_stand_in_json(folder: Path):
    asked = (BenchPrompt("chat", "hello there"), BenchPrompt("code", "again"), BenchPrompt("chat", "general"))
    made = bench(folder / "tiny", draft="early-exit:1", k=2, prompts=asked)
    (head, _, chat, code) = [
        line for line in made.to_markdown().splitlines() if re.match(r"\| (tok/s|chat|code) |\|-", line)
    ][-4:]
    assert head == "| tok/s | plain | early exit 1 |"
    assert re.fullmatch(r"\| chat \| [\d.]+ \| [\d.]+ ×[\d.]+ \d+% \|", chat)
    assert code.startswith("| code |")
    rows = json.loads(made.to_json())["kinds"]
    assert [(row["kind"], row["method"]) for row in rows] == [
        (kind, method) for kind in ("chat", "code") for method in ("plain", "early exit 1")
    ]
    assert [row["times_own_plain"] is None for row in rows] == [True, False] * 2


def test_figures_of_a_kind_are_of_its_prompts_alone():
    plain, fast = timed(1.0, 4.0, 1.0), timed(0.5, 2.0, 0.25)
    made = report({way("plain", kind="plain"): plain, "fast": fast}, kinds=("chat", "code", "chat"))
    found = {(row.kind, row.method): (row.tokens_per_second, row.times_own_plain) for row in made.kind_rows()}
    assert found == {
        ("chat", "plain"): (8.0, None), ("chat", "fast"): (24.0, 3.0),
        ("code", "plain"): (2.0, None), ("code", "fast"): (4.0, 2.0),
    }  # fmt: skip


def test_one_kind_needs_no_table_of_its_own_and_is_one_group_in_a_plot():
    made = report({"plain": timed(1.0), "fast": timed(0.5)}, kinds=("guide",))
    assert made.kind_rows() == []
    assert made.speeds() == {"all": {"plain": 8.0, "fast": 16.0}}


def test_the_kinds_are_drawn_the_same_every_time(tmp_path: Path):
    pytest.importorskip("matplotlib")
    speeds = {"chat": {"plain": 8.0, "look-up": 9.0}, "code": {"plain": 7.0, "look-up": 16.0}}
    for name in ("a.svg", "b.svg"):
        plots.draw_groups(speeds, "tiny, int8", tmp_path / name)
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text()
    assert {"chat", "code", "plain", "look-up", "tokens/s", "tiny, int8"} <= set(re.findall("<!-- (.*?) -->", drawn))


def test_every_kind_is_asked_once_and_the_guide_its_own_questions():
    assert [prompt.kind for prompt in prompts_for("mine")] == list(KINDS)
    assert [prompt.text for prompt in prompts_for("guide")] == list(QUESTIONS)


@pytest.mark.usefixtures("verified")
def test_every_drafter_that_a_model_can_use_is_measured():
    """The guide has an early exit and a draft model, and `auto` mixes."""
    opened = drain(open_target(LoadRequest.of("guide", quant="fp32", threads=1)))
    assert usable(opened, "auto") == [
        ("plain", "off"),
        ("look-up", "lookup"),
        ("early exit 2", "early-exit:2"),
        ("draft model small", "small"),
        ("auto", "auto"),
    ]
    assert usable(opened, "off") == [("plain", "off")]
    assert usable(opened, "lookup+early-exit:3")[1:] == [("look-up + early exit 3", "lookup+early-exit:3")]
    remember(swept_key(opened), exit_layer=4)
    assert ("early exit 4", "early-exit:4") in usable(opened, "auto")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("device", ["cpu", "cpu and disk", "cuda", "cuda and main memory"])
def test_a_figure_belongs_to_the_device_that_computed(device: str):
    expected = "A GPU" if device.startswith("cuda") else processor.name()
    assert describe_machine(1, device)["processor"] == expected


@pytest.mark.usefixtures("verified", "gpu")
def test_what_was_measured_on_a_cpu_beside_a_gpu_is_the_cpus(folder: Path):
    assert bench(folder / "tiny", draft="off", device="cpu").machine["processor"] == processor.name()


@pytest.mark.usefixtures("verified")
def test_who_asked_for_plain_is_not_told_of_drafters(folder: Path):
    assert bench(folder / "tiny", draft="off").notes == ()


@pytest.mark.usefixtures("verified")
def test_early_exit_of_a_folder_is_measured_beside_plain(folder: Path):
    """With the warning that a load would give, and every answer the same."""
    made = bench(folder / "tiny", draft="early-exit:1", k=3)
    plain, drafted = made.rows()
    assert [(plain.method, plain.k), (drafted.method, drafted.k)] == [("plain", 0), ("early exit 1", 3)]
    assert [row["k"] for row in json.loads(made.to_json())["rows"]] == ["0", "3"], "text, as in other versions"
    assert [row["k"] for row in csv.DictReader(io.StringIO(made.to_csv()))] == ["0", "3"]
    assert (plain.same, drafted.same) == ("2/2", "2/2")
    assert plain.acceptance is None
    assert drafted.acceptance is not None
    assert made.notes == (
        "early exit 1: 'tiny' may not be trained for early exit; drafts from layer 1 may be accepted rarely.",
    )


@pytest.mark.usefixtures("verified")
def test_a_model_without_a_chat_template_continues_the_questions(folder: Path):
    assert bench(folder / "base", draft="early-exit:2").rows()[1].same == "2/2"


@pytest.mark.usefixtures("verified")
def test_a_drafter_that_fails_while_answering_loses_its_label(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no more memory")

    monkeypatch.setattr(EarlyExitDrafter, "draft", broken)
    made = bench(folder / "tiny", draft="early-exit:1", k=3)
    row = made.rows()[1]
    assert (row.method, row.same) == ("early exit 1 (failed: decoded plain)", "2/2")
    assert made.notes[-1] == "early exit 1: The drafter failed (no more memory); decoding continues without it."
    assert "early exit 1 (failed: decoded plain)" in made.to_csv()


@pytest.mark.usefixtures("verified")
def test_a_known_drafter_that_cannot_draft_is_left_out_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """And `auto` is look-up alone, which its note says."""
    catalogue = folder / "models.toml"
    catalogue.write_text(
        f'schema_version = 1\n[models.mine]\npath = "{folder / "tiny"}"\n'
        f'[models.mine.draft]\nkind = "model"\nmodel = "{folder / "absent"}"\n'
    )
    monkeypatch.setattr("localspec.core.paths.packaged", lambda name: folder / name)
    made = bench("mine")
    assert [row.method for row in made.rows()] == ["plain", "look-up", "auto"]
    assert made.notes[0].startswith("draft model is left out: ")
    assert "absent" in made.notes[0]


@pytest.mark.usefixtures("verified")
def test_a_drafter_that_the_user_names_and_that_cannot_draft_is_an_error(folder: Path):
    with pytest.raises(NotDownloaded):
        bench(folder / "tiny", draft=str(folder / "absent"))


@pytest.mark.usefixtures("verified")
def test_several_formats_are_measured_side_by_side(folder: Path):
    made = bench(folder / "tiny", draft="early-exit:1", formats=("fp32", "bf16"))
    assert [(row.method, row.quant) for row in made.rows()] == [
        (method, quant) for quant in ("fp32", "bf16") for method in ("plain", "early exit 1")
    ]
    assert made.to_markdown().startswith("tiny · fp32 and bf16 · greedy")


@pytest.mark.usefixtures("verified")
def test_beside_a_peer_ours_runs_in_fp32_too_where_the_format_is_left_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transformers_peer, "contenders", lambda *_: [])
    made = bench(folder / "tiny", draft="off", against="transformers")
    assert [row.quant for row in made.rows()] == ["int8", "fp32"]
    assert [row.quant for row in bench(folder / "tiny", draft="off", quant="int8", against="transformers").rows()] == [
        "int8"
    ]


@pytest.mark.usefixtures("verified")
def test_fp32_that_does_not_fit_beside_the_peer_is_left_out_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def short_of_memory(request: LoadRequest) -> Any:
        if request.weights.weight_format == "fp32":
            raise DoesNotFit("Not enough memory for tiny in fp32.")
        return open_target(request)

    monkeypatch.setattr(MODULE, "open_target", short_of_memory)
    monkeypatch.setattr(transformers_peer, "contenders", lambda *_: [])
    made = bench(folder / "tiny", draft="off", against="transformers")
    assert [row.quant for row in made.rows()] == ["int8"]
    assert made.notes == ("localspec in fp32 is left out: Not enough memory for tiny in fp32.",)


@pytest.fixture
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_peer, "TRIALS", 1)
    monkeypatch.setattr(transformers_peer, "TRIAL_TOKENS", 2)


THEIRS = ("plain", "assistant_early_exit 1", "prompt_lookup_num_tokens 10")


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("short_trials")
@pytest.mark.parametrize("name", ["tiny", "base"])
def test_transformers_writes_our_plain_answers_in_all_its_ways(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    given: list[list[Any]] = []
    monkeypatch.setattr(MODULE, "gather", lambda *asked: given.append(gather(*asked)[0]) or (given[0], []))
    made = bench(folder / name, draft="early-exit:1", against="transformers", quant="fp32")
    theirs = [f"transformers {mode}" for mode in THEIRS]
    assert [row.method for row in made.rows()] == ["plain", "early exit 1", *theirs]
    assert [row.same for row in made.rows()] == ["2/2"] * 5
    assert {(row.quant, row.threads) for row in made.rows()} == {("fp32", 1)}, "as many threads as were asked for"
    assert [row.times_theirs is None for row in made.rows()] == [False, False, True, True, True]
    ours, _, plain, *_ = given[0]
    assert plain.answer(QUESTIONS[3], 40).ids == ours.answer(QUESTIONS[3], 40).ids
    assert made.notes[-1] == transformers_peer.NOTE


@pytest.mark.usefixtures("short_trials")
def test_beside_int8_transformers_runs_in_its_faster_format_and_with_a_draft_model(folder: Path):
    made = bench(folder / "tiny", draft=str(folder / "base"), against="transformers", quant="int8")
    theirs = [row for row in made.rows() if row.method.startswith("transformers")]
    assert [row.method for row in theirs][1] == f"transformers assistant_model {folder / 'base'}"
    assert {row.quant for row in theirs} <= {"fp32", "bf16"}
    assert len(theirs) == 3


@pytest.mark.usefixtures("verified")
def test_their_early_exit_leaves_where_ours_does_also_where_a_sweep_found_the_layer(folder: Path):
    opened = drain(open_target(LoadRequest.of(str(folder / "tiny"), quant="fp32", threads=1)))
    remember(swept_key(opened), exit_layer=2)
    *_, exits, lookup = transformers_peer.modes(opened, [("early exit", "auto")])
    assert (exits.arguments, exits.kind) == ({"assistant_early_exit": 2}, "early exit")
    assert lookup.arguments == {"prompt_lookup_num_tokens": 10}


@pytest.mark.usefixtures("verified")
def test_beside_each_format_their_early_exit_leaves_where_ours_of_that_format_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Their int8 is none: beside it the first of their other formats is taken, where all are as fast."""
    monkeypatch.setattr(transformers_peer.Transformers, "try_out", lambda _: None)
    requests = [LoadRequest.of(str(folder / "tiny"), quant=quant, threads=1) for quant in ("fp32", "bf16", "int8")]
    targets = [drain(open_target(request)) for request in requests]
    for layer, opened in enumerate(targets, start=1):
        remember(swept_key(opened), exit_layer=layer)
    found = transformers_peer.contenders([(opened, [("early exit", "auto")]) for opened in targets], 1)
    exits = [one for one in found if one.way.kind == "early exit"]
    assert [(one.way.quant, one.mode.arguments["assistant_early_exit"]) for one in exits] == [
        ("fp32", 1), ("bf16", 2), ("fp32", 3)
    ]  # fmt: skip
    assert [one.way.quant for one in found if one.way.kind == "plain"] == ["fp32", "bf16"]


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("fastest", [("fp32", 1), ("fp32", 2), ("bf16", 1), ("bf16", 2)])
def test_each_way_of_theirs_runs_in_the_format_and_with_the_threads_that_were_fastest_for_it(
    folder: Path, fastest: tuple[str, int], monkeypatch: pytest.MonkeyPatch
):
    def tried(one: transformers_peer.Transformers) -> None:
        one.trial_seconds = 1.0 if (one.way.quant, one.way.threads) == fastest else 2.0

    monkeypatch.setattr(transformers_peer.Transformers, "try_out", tried)
    monkeypatch.setattr(transformers_peer, "fitting", lambda _: ["bf16", "fp32"])
    monkeypatch.setattr(processor, "physical_cores", lambda: 2)
    opened = drain(open_target(LoadRequest.of(str(folder / "tiny"), quant="int8", threads=1)))
    found = transformers_peer.contenders([(opened, [("early exit 1", "early-exit:1")])])
    assert [(one.mode.name, one.way.quant, one.way.threads) for one in found] == [(name, *fastest) for name in THEIRS]


@pytest.mark.usefixtures("verified")
def test_beside_the_guide_they_speculate_in_all_their_ways():
    opened = drain(open_target(LoadRequest.of("guide", quant="fp32", threads=1)))
    found = list(transformers_peer.modes(opened, usable(opened, "auto")[1:-1]))
    assert [mode.name.split()[0] for mode in found] == [
        "plain", "assistant_early_exit", "assistant_model", "prompt_lookup_num_tokens"
    ]  # fmt: skip
    assert [mode.drafter and mode.drafter.parts[-2:] for mode in found] == [None, None, ("guide", "draft"), None]


def test_what_transformers_needs_for_a_gguf_file_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Of a folder it reads the weights without it."""
    monkeypatch.setattr(transformers_peer, "find_spec", lambda _: None)
    monkeypatch.setattr(options, "measure", lambda *_, **__: pytest.fail("measured"))
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(sys, "argv", ["localspec", "bench", str(file), "--against", "transformers"])
    assert outcome() == UsageError.exit_code
    assert "accelerate, which is not installed. Run: pip install 'localspec[against]'" in capsys.readouterr().err
    transformers_peer.check(tmp_path)


def test_a_way_of_theirs_that_fails_says_so_in_words_and_harms_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Its early exit, when it fails, leaves the model with fewer layers."""

    def broken(*_: object) -> list[PeerMode]:
        return [PeerMode("assistant_early_exit 1", "early exit 1", arguments={"assistant_early_exit": "x"}), plain]

    plain = PeerMode("plain", "plain", 0)
    monkeypatch.setattr(transformers_peer, "modes", broken)
    rows = bench(folder / "tiny", draft="early-exit:1", against="transformers", quant="fp32").rows()
    assert [row.method for row in rows[:3]] == ["plain", "early exit 1", "transformers plain"]
    assert rows[2].same == "2/2"
    assert rows[3].method.startswith("transformers assistant_early_exit 1 (failed: ")
    assert rows[3].tokens_per_second is None


@pytest.mark.parametrize(("words", "markdown"), [([], False), (["-o", "md"], True)])
def test_the_command_prints_the_table_on_a_terminal_unless_a_form_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], markdown: bool
):
    monkeypatch.setattr("localspec.cli.io.columns_of_stdout", lambda: 80)
    asked = ["bench", str(folder / "tiny"), "--draft", "early-exit:1", "-n", "8", "-r", "1", "--threads", "1", *words]
    monkeypatch.setattr(sys, "argv", ["localspec", *asked])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert ("| plain |" in said) is markdown
    assert ("Fastest here: " in said) is not markdown


def test_the_command_prints_what_parses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["bench", str(folder / "tiny"), "--draft", "early-exit:1", "-n", "8", "-r", "1", "-o", "jsonl"]
    monkeypatch.setattr(sys, "argv", ["localspec", *words, "--threads", "1"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    *events, said = map(json.loads, capsys.readouterr().out.splitlines())
    measuring = [event["done"] for event in events if event["stage"] == "plain, early exit 1"]
    assert (measuring[0], measuring[-1]) == (0, 100)
    assert {event["type"] for event in events} == {"loading"}
    assert (said["model"], said["max_tokens"], said["repeats"]) == ("tiny", 8, 1)
    assert [row["method"] for row in said["rows"]] == ["plain", "early exit 1"]
    assert [row["same"] for row in said["rows"]] == [f"{len(QUESTIONS)}/{len(QUESTIONS)}"] * 2
