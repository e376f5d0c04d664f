"""A sweep finds the fastest early exit, shows it, remembers it, and `auto` uses it; nothing else is overruled by it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.bench import plots, sweep
from localspec.bench.measure import measure
from localspec.bench.plots import Curve, Point
from localspec.bench.report import BenchReport, TimedRun, Way
from localspec.cli.main import outcome
from localspec.core import calibration
from localspec.core.calibration import Calibration
from localspec.core.drain import drain
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import DraftLength
from localspec.core.requests import EarlyExit, LoadRequest
from localspec.models.catalog import Catalog, DraftEntry
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import draft_choice
from localspec.runtime.open import open_model, open_target
from localspec.runtime.open_target import OpenTarget, swept_key
from tests.cli.test_cli import complaints

GUIDE = LoadRequest.of("guide", quant="fp32", threads=1)
CATALOG = Catalog.load()
ENTRY = CATALOG.resolve("guide")

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]


def curve(*speedups: float, setting: str = "exit layer") -> Curve:
    points = [Point(str(i), 1000 * x, 5.0, x, 0.5 + i / 20) for i, x in enumerate(speedups, start=1)]
    return Curve(setting, tuple(points), 1000.0)


# --- what is asked for


@pytest.mark.parametrize(
    ("words", "setting", "values"),
    [
        ("exit-layer", "exit-layer", ()),
        ("k", "k", ()),
        ("exit-layer=2:8:2", "exit-layer", (2, 4, 6, 8)),
        ("exit-layer=3:3", "exit-layer", (3,)),
        ("k=1:4", "k", (1, 2, 3, 4)),
    ],
)
def test_a_setting_and_its_values(words: str, setting: str, values: tuple[int, ...]):
    assert sweep.axis(words) == sweep.Axis(setting, values)  # type: ignore[arg-type]


def test_the_usual_values():
    assert sweep.axis("exit-layer").exit_layers(12) == list(range(1, 12))
    assert sweep.axis("exit-layer").exit_layers(2) == [1]
    with pytest.raises(UsageError, match="one layer has no early exit"):
        sweep.axis("exit-layer").exit_layers(1)
    deep = sweep.axis("exit-layer").exit_layers(80)
    assert len(deep) <= sweep.MOST_LAYERS
    assert deep[0] == 1
    assert sweep.axis("k").lengths() == list(sweep.LENGTHS)


@pytest.mark.parametrize(
    "options",
    [
        ["--sweep", "exit_layer"],
        ["--sweep", "exit-layer=9"],
        ["--sweep", "exit-layer=8:2"],
        ["--sweep", "exit-layer=0:3"],
        ["--sweep", "exit-layer=1:12"],
        ["--sweep", "k=0:3"],
        ["--sweep", "k=1:17"],
        ["--sweep", "k=1:99999999999"],
        ["--sweep", "k", "--sweep", "k=1:2"],
        ["--sweep", "k", "--k", "4"],
        ["--sweep", "exit-layer", "--k", "0"],
        ["--sweep", "exit-layer", "--draft", "early-exit:2"],
        ["--sweep", "k", "--draft", "small"],
        ["--sweep", "k", "--draft", "off"],
        ["--sweep", "k", "--against", "transformers"],
        ["--sweep", "k", "--format", "int8,int4"],
        ["--sweep", "k", "--plot", "plot.txt"],
        ["--sweep", "k", "--plot", "no/such/folder/plot.svg"],
    ],
)
def test_what_cannot_be_swept_is_one_sentence(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sweep, "interleave", None)  # nothing is measured before it is refused
    monkeypatch.setattr(sys, "argv", ["localspec", "bench", "guide", *options])
    assert outcome() == UsageError.exit_code
    (said,) = complaints(capsys.readouterr().err.encode())
    assert said.startswith("error: ")


# --- what it measures and keeps


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[sweep.Tried]]:
    """Nothing is timed: the speed-up of an early exit is highest at layer 3, and grows with the draft length."""
    asked: list[list[sweep.Tried]] = []

    def figures(_opened: OpenTarget, tried: list[sweep.Tried], *_: Any, **__: Any) -> BenchReport:
        asked.append(tried)
        return gains({(layer, k): (2 - abs(layer - 3) / 4) * (1 if k == "auto" else int(k) / 4) for layer, k in tried})

    monkeypatch.setattr(sweep, "measured", figures)
    return asked


def gains(tried: dict[sweep.Tried, float], *, failed: tuple[int, ...] = ()) -> BenchReport:
    """One answer of each way beside plain's, with these speed-ups; `failed`: exit layers."""
    ways = {place: Way(f"early exit {place[0]}", place[1], "fp32") for place in tried}
    runs = {Way("plain", 0, "fp32"): {(0, 0): TimedRun((1,) * 16, 1.0)}}
    runs |= {ways[place]: {(0, 0): TimedRun((1,) * round(16 * gain), 1.0)} for place, gain in tried.items()}
    fell = frozenset(way for (layer, _), way in ways.items() if layer in failed)
    return BenchReport("guide", "fp32", 8, 1, {}, runs, fell)


@pytest.mark.parametrize(("failed", "best"), [((), "2"), ((2,), "3"), ((1, 2, 3), None)])
def test_what_failed_is_never_the_best_and_is_drawn_as_failed(failed: tuple[int, ...], best: str | None):
    """It decoded plain, so that its speed-up is noise."""
    tried = {(1, "auto"): 1.0, (2, "auto"): 1.5, (3, "auto"): 1.25}
    found = sweep.curve_of("exit-layer", list(tried), gains(tried, failed=failed))
    assert (found.best and found.best.value) == best
    lines = plots.bars(found)
    assert [line.split()[0] for line in lines if "◂" in line] == ([best] if best else [])
    assert [line.split()[0] for line in lines if "(failed)" in line] == [str(layer) for layer in failed]
    assert max(map(len, lines)) <= 80


def test_a_layer_that_failed_is_not_remembered_however_fast_it_seemed(monkeypatch: pytest.MonkeyPatch):
    measured = gains({(1, "auto"): 1.0, (2, "auto"): 1.5}, failed=(2,))
    monkeypatch.setattr(sweep, "measured", lambda *_, **__: measured)
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=1:2")])
    assert (found.best, calibration.recall(swept_key(drain(open_target(GUIDE)))).exit_layer) == (None, None)


def test_draft_lengths_are_tried_at_the_best_exit_layer(measured: list[list[sweep.Tried]]):
    found = sweep.sweep(GUIDE, [sweep.axis("k=2:6:2"), sweep.axis("exit-layer=1:5:2")])
    assert measured[0] == [(1, "auto"), (3, "auto"), (5, "auto"), (2, "auto")], "the last is models.toml's"
    assert measured[1] == [(3, 2), (3, 4), (3, 6), (3, "auto")]
    assert found.best == sweep.BestExit(3, 6, 3.0, remembered=True)
    ready = drain(open_model(GUIDE)).ready
    assert (ready.spec.kind, ready.spec.exit_layer, ready.spec.k) == ("early-exit", 3, 6)
    ready = drain(open_model(LoadRequest.of("guide", draft="early-exit:2", k=1, quant="fp32", threads=1))).ready
    assert (ready.spec.exit_layer, ready.spec.k) == (2, 1)


def test_one_setting_alone_keeps_the_other(measured: list[list[sweep.Tried]]):
    assert sweep.sweep(LoadRequest.of("guide", k=4, quant="fp32", threads=1), [sweep.axis("exit-layer=1:3")]).best
    assert measured.pop() == [(1, 4), (2, 4), (3, 4), (2, "auto")]
    asked = LoadRequest.of("guide", draft="early-exit:5", quant="fp32", threads=1)
    assert sweep.sweep(asked, [sweep.axis("k=8:8")]).best == sweep.BestExit(5, 8, 3.0, remembered=True)
    assert measured.pop() == [(5, 8), (3, 4)]
    assert sweep.sweep(GUIDE, [sweep.axis("k=10:10")]).best == sweep.BestExit(5, 10, 3.75, remembered=True)
    assert measured.pop() == [(5, 10), (5, 8)], "where auto leaves since the sweep before"


def test_what_was_remembered_is_measured_too_and_stays_where_nothing_new_is_faster(
    measured: list[list[sweep.Tried]],
):
    best = sweep.sweep(GUIDE, [sweep.axis("exit-layer=3:3")]).best
    assert best == sweep.BestExit(3, "auto", 2.0, remembered=True)
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=4:5")])
    assert measured[-1] == [(4, "auto"), (5, "auto"), (3, "auto")]
    assert found.best == best
    assert [point.value for point in found.curves[0].points] == ["4", "5", "3"]
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=4:5"), sweep.axis("k=2:3")])
    assert measured[-1] == [(3, 2), (3, 3), (3, "auto")]
    assert found.best == best
    assert calibration.recall(swept_key(drain(open_target(GUIDE)))) == Calibration(exit_layer=3)


def test_a_value_measured_with_another_of_the_other_setting_says_so():
    tried = {(1, 4): 1.0, (3, 4): 1.5, (3, 8): 1.25}
    assert [one.value for one in sweep.curve_of("exit-layer", list(tried), gains(tried)).points] == ["1", "3", "3 k 8"]
    assert [one.value for one in sweep.curve_of("k", list(tried), gains(tried)).points] == ["4", "4 at 3", "8 at 3"]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("draft", [DraftEntry("off"), DraftEntry("model", model="assets/guide/draft")])
def test_where_models_toml_has_another_drafter_auto_is_not_said_to_use_what_was_found(
    draft: DraftEntry, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Catalog, "resolve", lambda *_: replace(ENTRY, draft=draft))
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=3:3")])
    assert found.best == sweep.BestExit(3, "auto", 2.0, remembered=False, overruled=True)
    assert "--draft auto does not use it: models.toml has another drafter, or none" in found.sentence


@pytest.mark.usefixtures("measured")
def test_an_exit_layer_stays_found_where_no_draft_length_beats_plain():
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=3:3"), sweep.axis("k=1:1")])
    assert found.best == sweep.BestExit(3, "auto", 2.0, remembered=True)


@pytest.mark.usefixtures("measured")
def test_where_plain_decoding_is_fastest_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch):
    sweep.sweep(GUIDE, [sweep.axis("k=4:4")])
    assert drain(open_model(GUIDE)).ready.spec.k == 4
    monkeypatch.setattr(sweep, "measured", lambda _, tried, *__, **___: gains(dict.fromkeys(tried, 0.5)))
    found = sweep.sweep(GUIDE, [sweep.axis("k=1:1")])
    assert found.best is None
    assert "Plain decoding is fastest" in found.sentence
    assert drain(open_model(GUIDE)).ready.spec.k == "auto"


@pytest.mark.slow
def test_a_real_sweep_and_its_three_outputs(tmp_path: Path):
    found = sweep.sweep(GUIDE, [sweep.axis("exit-layer=1:3:2")], max_tokens=8, repeats=1)
    assert [point.label for point in found.curves[0].points] == ["1", "3", "2"]
    assert all(
        run.ids == found.reports[0].first[key].ids
        for runs in found.reports[0].runs.values()
        for key, run in runs.items()
    )
    assert "early exit 3" in found.to_markdown()
    assert json.loads(found.to_json())["sweeps"][0]["rows"][2]["method"] == "early exit 3"
    assert len(found.to_csv().splitlines()) == 1 + 4
    found.draw(tmp_path / "sweep.svg")
    assert "exit layer" in (tmp_path / "sweep.svg").read_text()


@pytest.mark.slow
def test_the_bench_measures_the_layer_that_was_found_and_auto_with_its_length():
    assert calibration.remember(swept_key(drain(open_target(GUIDE))), exit_layer=2, k=3)
    rows = measure(GUIDE, max_tokens=8, repeats=1).rows()
    assert {("early exit 2", "auto"), ("auto", 3)} <= {(row.method, row.k) for row in rows}


def test_a_result_belongs_to_these_weights_whatever_the_count_of_threads(tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(ENTRY.path, folder)
    requests = [LoadRequest.of(str(folder), quant="fp32", threads=n) for n in (1, 2)]
    one, two = (drain(open_target(request)) for request in requests)
    before = swept_key(one)
    assert before == swept_key(two)
    os.utime(folder / "model.safetensors", (1, 1))
    assert swept_key(drain(open_target(requests[0]))) != before


# --- who is overruled


def chosen(asked: str | EarlyExit, draft: DraftEntry | None, known: Calibration) -> draft_choice.DrafterChoice:
    return draft_choice.choose(asked, replace(ENTRY, draft=draft), open_snapshot(ENTRY.path, "guide"), CATALOG, known)


def test_auto_uses_what_was_found_also_for_a_model_that_the_catalogue_does_not_know():
    for draft in (ENTRY.draft, None):
        choice = chosen("auto", draft, Calibration(exit_layer=5, k=2))
        assert (choice.kind, choice.exit_layer, choice.k, choice.notice) == ("early-exit", 5, 2, None)


@pytest.mark.parametrize("draft", [DraftEntry("model", model="assets/guide/draft"), DraftEntry("off")])
def test_another_kind_of_drafter_in_models_toml_stays(draft: DraftEntry):
    assert chosen("auto", draft, Calibration(exit_layer=5)).kind == draft.kind or draft.kind == "model"
    assert chosen("auto", draft, Calibration(exit_layer=5)).exit_layer == 0


@pytest.mark.parametrize("layer", [0, -1, 12, 99])
def test_a_layer_that_the_model_does_not_have_is_as_if_nothing_was_known(layer: int):
    assert chosen("auto", ENTRY.draft, Calibration(exit_layer=layer)) == chosen("auto", ENTRY.draft, Calibration())


def kept(folder: Path, k: str) -> Calibration:
    """What is read of a file with this draft length."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calibration.json").write_text(f'{{"a": {{"exit_layer": 5, "k": {k}}}}}')
    return calibration.recall("a")


@pytest.mark.parametrize("k", ['""', '"x"', "-1", "17", '"17"', "2.5", "9" * 5000])
def test_a_draft_length_that_there_is_not_is_as_if_it_was_not_known(k: str, own_state_folder: Path):
    assert chosen("auto", ENTRY.draft, kept(own_state_folder, k)).k == "auto"


@pytest.mark.parametrize(
    ("k", "length"), [("2", 2), ("0", 0), ('"auto"', "auto"), ('"heuristic"', "heuristic"), ('"2"', 2)]
)
def test_a_draft_length_is_read_as_it_was_kept_by_earlier_versions_as_text(
    k: str, length: DraftLength, own_state_folder: Path
):
    assert kept(own_state_folder, k) == Calibration(exit_layer=5, k=length)
    assert chosen("auto", ENTRY.draft, Calibration(exit_layer=5, k=length)).k == length


def test_what_was_asked_for_stays():
    assert chosen("early-exit:2", ENTRY.draft, Calibration(exit_layer=5)).exit_layer == 2
    assert chosen("off", ENTRY.draft, Calibration(exit_layer=5)).kind == "off"


def test_what_is_known_of_a_model_is_kept_together():
    assert calibration.remember("a", exit_layer=3)
    assert calibration.remember("a", k=4)
    assert calibration.remember("b", exit_layer=1)
    assert calibration.recall("a") == Calibration(3, 4)
    assert calibration.recall("c") == Calibration()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 2.5}', b'{"a": {"exit_layer": "x"}}', b"\xff"])
def test_a_damaged_file_is_an_empty_one(content: bytes, own_state_folder: Path):
    own_state_folder.mkdir(parents=True, exist_ok=True)
    (own_state_folder / "calibration.json").write_bytes(content)
    assert calibration.recall("a") == Calibration()
    assert calibration.remember("a", exit_layer=1)
    assert calibration.recall("a").exit_layer == 1


def test_what_cannot_be_written_is_not_called_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path / "file" / "below"))
    assert not calibration.remember("a", exit_layer=1)


# --- pictures


def test_bars_fit_a_narrow_terminal_and_mark_the_best():
    lines = plots.bars(curve(0.8, 1.25, 1.1, setting="draft length"))
    assert max(map(len, lines)) <= 80
    assert [line.strip()[0] for line in lines if "◂" in line] == ["2"]
    lengths = [line.count("█") for line in plots.bars(curve(0.5, 1.0))]
    assert lengths[1] - lengths[2] < 0, "a longer bar is faster"


def test_nothing_accepted_and_nothing_known_can_be_drawn():
    point = Point("1", 0.0, 0.0, 0.0, None)
    assert "–" in plots.bars(Curve("k", (point,), 1.0))[1]


def test_a_picture_is_the_same_every_time(tmp_path: Path):
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg", "c.PNG"):
        plots.draw([curve(1.0, 1.2), curve(1.1, setting="draft length")], "guide, int8", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "draft length" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "c.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_a_full_disk_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("matplotlib")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    file = tmp_path / "a.svg"
    with pytest.raises(LocalspecError) as fault:
        plots.draw([curve(1.0, 1.2)], "guide, int8", file)
    assert str(fault.value) == f"The plot cannot be written to '{file}' (No space left on device)."


@pytest.mark.usefixtures("measured")
def test_the_command_prints_the_table_and_writes_the_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("matplotlib")
    file = tmp_path / "sweep.svg"
    sweeps = ["--sweep", "exit-layer=1:3", "--sweep", "k=2:4:2", "--plot", str(file)]
    monkeypatch.setattr(sys, "argv", ["localspec", "bench", "guide", "--quant", "fp32", "--threads", "1", *sweeps])
    assert outcome() == 0
    assert "Fastest: --draft early-exit:3" in capsys.readouterr().out
    assert all(title in file.read_text() for title in ("exit layer", "draft length"))


@pytest.mark.usefixtures("measured")
def test_a_picture_that_cannot_be_written_costs_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The table is printed before, and the best is remembered."""

    def full(_: sweep.SweepReport, file: Path) -> None:
        raise LocalspecError(f"The plot cannot be written to '{file}' (No space left on device).")

    monkeypatch.setattr(plots, "check", lambda _: None)
    monkeypatch.setattr(sweep.SweepReport, "draw", full)
    words = ["--threads", "1", "--sweep", "exit-layer=1:3", "--plot", str(tmp_path / "sweep.svg")]
    monkeypatch.setattr(sys, "argv", ["localspec", "bench", "guide", "--quant", "fp32", *words])
    assert outcome() == LocalspecError.exit_code
    said = capsys.readouterr()
    assert "Fastest: --draft early-exit:3" in said.out
    assert len(complaints(said.err.encode())) == 1
    assert calibration.recall(swept_key(drain(open_target(GUIDE)))) == Calibration(exit_layer=3)


def test_without_matplotlib_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"needs matplotlib.*localspec\[plots\]"):
        plots.check(tmp_path / "plot.svg")
