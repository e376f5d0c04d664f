"""The benchmark: fair turns, right medians, one truth in three formats, and a row that says when a drafter failed."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.bench.measure import Bar, gather, interleave, measure
from localspec.bench.peers import Transformers
from localspec.bench.prompts import PROMPTS
from localspec.bench.report import Key, Report, Run, same
from localspec.cli import main
from localspec.engine.drafters.early_exit import EarlyExit
from localspec.errors import IncompatiblePair
from localspec.events import Stats
from tests.models_made_here import save_snapshot
from tests.tokenizers_made_here import CHATML, gpt2_like, llama3_like

MODULE = sys.modules[measure.__module__]  # the package has a function of this name
STATS = Stats(predicted_n=8, predicted_ms=4.0, read_bytes=12_000_000, bandwidth_peak_gbs=33.0, plain_rounds=8)


@dataclass
class Scripted:
    """A contender that only writes down when it was asked what."""

    name: str
    log: list[tuple[str, str]]
    k: str = "0"
    failed: bool = False
    notes: list[str] = field(default_factory=list)

    def answer(self, question: str, max_tokens: int) -> Run:
        self.log.append((self.name, question))
        return Run((1,) * max_tokens, 1.0)


def turns(names: str, repeats: int) -> tuple[list[list[tuple[str, str]]], dict[str, dict[Key, Run]]]:
    """Who was asked what, a list for the warm-up and one for every turn; and the runs."""
    log: list[tuple[str, str]] = []
    runs = interleave([Scripted(name, log) for name in names], 8, repeats, lambda _share: None)
    return [log[at : at + len(names)] for at in range(0, len(log), len(names))], runs


def test_every_contender_answers_a_prompt_before_any_sees_the_next():
    (_, *asked), runs = turns("abc", 2)
    assert [sorted(turn) for turn in asked] == [[(name, prompt) for name in "abc"] for prompt in PROMPTS * 2]
    keys = {(place, repeat) for place in range(len(PROMPTS)) for repeat in range(2)}
    assert [set(runs[name]) for name in "abc"] == [keys] * 3


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
def test_the_order_turns_with_every_prompt(names: str):
    (_, *asked), _ = turns(names, 2)
    firsts = [turn[0][0] for turn in asked]
    assert firsts == [names[turn % len(names)] for turn in range(2 * len(PROMPTS))]
    assert {len({name for name, _ in turn}) for turn in asked} == {len(names)}


def test_the_warm_up_is_not_counted():
    (warm, *asked), runs = turns("ab", 1)
    assert warm == [("a", PROMPTS[0]), ("b", PROMPTS[0])]
    assert len(asked) == len(runs["a"]) == len(PROMPTS)


def timed(*seconds: float, stats: Stats | None = None, ids: int = 8) -> dict[Key, Run]:
    return {(place, 0): Run(tuple(range(ids)), took, stats) for place, took in enumerate(seconds)}


def report(runs: dict[str, dict[Key, Run]], **more: Any) -> Report:
    return Report("tiny", "fp32", 8, 1, {"cores": "2"}, tuple((name, "0") for name in runs), runs, **more)


def test_speeds_are_medians_with_the_median_deviation():
    row = report({"plain": timed(1.0, 2.0, 8.0)}).rows()[0]  # 8, 4 and 1 tokens per second
    assert (row.tokens_per_second, row.tokens_per_second_spread) == (4.0, 3.0)
    assert (row.speedup, row.speedup_spread) == (1.0, 0.0)


def test_a_speed_up_is_the_ratio_on_the_same_prompt_and_repeat():
    """A machine that slows down for everybody changes no ratio, though it changes every speed."""
    plain, fast = timed(1.0, 10.0, 100.0), timed(0.5, 5.0, 25.0)
    row = report({"plain": plain, "fast": dict(reversed(fast.items()))}).rows()[1]
    assert (row.speedup, row.speedup_spread) == (2.0, 0.0)


def test_acceptance_and_tokens_per_round_are_of_all_answers_together():
    """A short answer counts for less: 1 of 2 and 9 of 10 make 10 of 12."""
    short = Stats(predicted_n=2, draft_n_accepted=1, draft_n_rejected=1, draft_rounds=1)
    long = Stats(predicted_n=14, draft_n_accepted=9, draft_n_rejected=1, draft_rounds=3, plain_rounds=1)
    runs = {(0, 0): Run((1,), 1.0, short), (1, 0): Run((1,), 1.0, long)}
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
    assert same({(0, 0): Run(left, 1.0)}, {(0, 0): Run(right, 1.0)}) == said


def test_same_counts_answers_and_names_the_earliest_difference():
    plain = {(place, 0): Run((1, 2, 3), 1.0) for place in range(3)}
    other = {(0, 0): Run((1, 2, 4), 1.0), (1, 0): Run((1, 2, 3), 1.0), (2, 0): Run((1, 5, 3), 1.0)}
    assert same(other, plain) == "1/3, first at 1"


def table(text: str) -> list[dict[str, str]]:
    """The rows of a Markdown table."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [dict(zip(lines[0], cells, strict=True)) for cells in lines[1:]]


def test_the_three_formats_parse_and_say_the_same():
    runs = {"plain": timed(1.0, 2.0, stats=STATS), "early exit 1": timed(0.5, 1.0, stats=STATS), "peer": timed(3.0, 3)}
    made = report(runs, failed=frozenset({"early exit 1"}), notes=("early exit 1: It failed.",))
    rows, told = json.loads(made.to_json())["rows"], made.to_markdown()
    as_csv = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows] == [
        {name: value for name, value in row.items() if name not in ("model", "quant")} for row in as_csv
    ]
    assert [row["method"] for row in table(told)] == [row["method"] for row in rows]
    ratios = [f"{row['speedup']:.2f} ± {row['speedup_spread']:.2f}" for row in rows]
    assert [row["× plain"] for row in table(told)] == ratios
    assert told.endswith("\n\nearly exit 1: It failed.")
    assert json.loads(made.to_json())["notes"] == ["early exit 1: It failed."]


def test_a_bar_in_a_name_keeps_the_table_whole():
    assert r"draft model a\|b" in report({"plain": timed(1.0), "draft model a|b": timed(1.0)}).to_markdown()


def test_the_bar_ends_its_line_when_all_is_measured(capsys: pytest.CaptureFixture[str]):
    bar = Bar()
    bar(0.5)
    bar(1.0)
    assert capsys.readouterr().err == f"\rmeasuring {'█' * 15}{'░' * 15}  50%\rmeasuring {'█' * 30} 100%\n"


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers takes seconds to import; test_admission.py is about it."""
    monkeypatch.setattr("localspec.opening.admit", lambda _: None)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "PROMPTS", PROMPTS[:2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_snapshot(made / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>", hidden_size=64)
    save_snapshot(made / "base", gpt2_like(), eos="<|endoftext|>", hidden_size=64)
    save_snapshot(made / "other", llama3_like(), seed=2)
    return made


def bench(model: Path, **given: Any) -> Report:
    return measure(str(model), max_tokens=8, repeats=1, threads=1, **given)


@pytest.mark.usefixtures("admitted", "few")
def test_a_model_that_nobody_knows_a_drafter_for_is_measured_plain_and_told_so(folder: Path):
    made = bench(folder / "tiny")
    assert [row.method for row in made.rows()] == ["plain"]
    assert "No drafter is known for tiny: name one with --draft" in made.to_markdown().splitlines()[-1]


@pytest.mark.usefixtures("admitted", "few")
def test_who_asked_for_plain_is_not_told_of_drafters(folder: Path):
    assert bench(folder / "tiny", draft="off").notes == ()


@pytest.mark.usefixtures("admitted", "few")
def test_early_exit_of_a_folder_is_measured_beside_plain(folder: Path):
    """With the warning that a load would give, and every answer the same."""
    made = bench(folder / "tiny", draft="early-exit:1", k="3")
    plain, drafted = made.rows()
    assert [(plain.method, plain.k), (drafted.method, drafted.k)] == [("plain", "0"), ("early exit 1", "3")]
    assert (plain.same, drafted.same) == ("2/2", "2/2")
    assert plain.acceptance is None
    assert drafted.acceptance is not None
    assert made.notes == (
        "early exit 1: 'tiny' may not be trained for early exit; drafts from layer 1 may be accepted rarely.",
    )


@pytest.mark.usefixtures("admitted", "few")
def test_a_model_without_a_chat_template_continues_the_questions(folder: Path):
    assert bench(folder / "base", draft="early-exit:2").rows()[1].same == "2/2"


@pytest.mark.usefixtures("admitted", "few")
def test_a_drafter_that_fails_while_answering_loses_its_label(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no more memory")

    monkeypatch.setattr(EarlyExit, "draft", broken)
    made = bench(folder / "tiny", draft="early-exit:1", k="3")
    row = made.rows()[1]
    assert (row.method, row.same) == ("early exit 1 (failed: decoded plain)", "2/2")
    assert made.notes[-1] == "early exit 1: The drafter failed (no more memory); decoding goes on without it."
    assert "early exit 1 (failed: decoded plain)" in made.to_csv()


@pytest.mark.usefixtures("admitted", "few")
def test_a_known_drafter_that_cannot_draft_loses_its_label(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The catalogue's own choice becomes plain decoding with a Notice; the row may not pass for a drafter's."""
    catalogue = folder / "models.toml"
    catalogue.write_text(
        f'schema_version = 1\n[models.mine]\npath = "{folder / "tiny"}"\n'
        f'[models.mine.draft]\nkind = "model"\nmodel = "{folder / "other"}"\n'
    )
    monkeypatch.setattr("localspec.paths.packaged", lambda name: folder / name)
    made = measure("mine", max_tokens=8, repeats=1, threads=1)
    assert [(row.method, row.k) for row in made.rows()] == [
        ("plain", "0"),
        ("draft model (failed: decoded plain)", "0"),
    ]
    assert "cannot draft for" in made.notes[0]


@pytest.mark.usefixtures("admitted")
def test_a_drafter_that_the_user_names_and_that_cannot_draft_is_an_error(folder: Path):
    with pytest.raises(IncompatiblePair):
        bench(folder / "tiny", draft=str(folder / "other"))


@pytest.mark.heavy
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["tiny", "base"])
def test_transformers_writes_our_plain_answers(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """All contenders at once: plain, early exit and transformers."""
    given: list[list[Any]] = []
    monkeypatch.setattr(MODULE, "gather", lambda *asked: given.append(gather(*asked)) or given[0])
    made = bench(folder / name, draft="early-exit:1", against="transformers", quant="fp32")
    assert [row.method for row in made.rows()] == ["plain", "early exit 1", Transformers.name]
    assert [row.same for row in made.rows()] == ["2/2"] * 3
    ours, _, theirs = given[0]
    assert theirs.answer(PROMPTS[3], 40).ids == ours.answer(PROMPTS[3], 40).ids


@pytest.mark.heavy
def test_the_command_prints_what_parses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["bench", str(folder / "tiny"), "--draft", "early-exit:1", "-n", "8", "-r", "1", "-o", "json"]
    monkeypatch.setattr(sys, "argv", ["localspec", *words, "--threads", "1"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["model"], said["max_tokens"], said["repeats"]) == ("tiny", 8, 1)
    assert [row["method"] for row in said["rows"]] == ["plain", "early exit 1"]
    assert [row["same"] for row in said["rows"]] == [f"{len(PROMPTS)}/{len(PROMPTS)}"] * 2
