"""`make measure`: what it needs, what it writes, and that a figure which was not measured is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.shapes.agreement import Writing, time_writers
from benchmarks.shapes.forwards import Plan, Work, time_forwards
from benchmarks.shapes.measure import ShapeRequest, Watch, check
from benchmarks.shapes.random_weights import SHAPES, USUAL, Shape, make_decoder, random_tensors
from benchmarks.shapes.transformers_forwards import TransformersForwards
from benchmarks.survey import __main__ as survey
from benchmarks.survey import parts as survey_parts
from benchmarks.survey.__main__ import PATIENCE, Clock, Outcome, OutOfTimeError, conduct, section
from benchmarks.survey.early_exit import Ours, Race, Theirs, contenders, table
from benchmarks.survey.parts import Part, Survey
from localspec.core.errors import UsageError
from localspec.core.weight_formats import LISTED
from localspec.loading.sources import StateDictSource
from tests.benchmarks.test_shapes import Scripted

pytestmark = pytest.mark.heavy

MINI = Shape(num_layers=4, hidden_size=128, intermediate_size=192, num_heads=2, num_kv_heads=1, vocab_size=256)
ROOT = Path(__file__).parents[2]


class Hours:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def small(device: str = "cpu", watch: Watch | None = None) -> Survey:
    return Survey("tiny", device, 1, StateDictSource({}), watch or Watch())


# --- what it needs

BARE = """
import sys
for name in ("click", "textual", "rich", "psutil", "platformdirs", "numba", "llvmlite", "tomlkit", "jinja2", "pynvml"):
    sys.modules[name] = None
for name in sys.argv[1:]:
    sys.modules[name] = None
from benchmarks.survey import __main__ as survey
from benchmarks.survey import parts as survey_parts
from benchmarks.shapes.random_weights import SHAPES, Shape
SHAPES["mini"] = Shape(4, 128, 192, 2, 1, 256)
survey_parts.WIDTHS, survey_parts.TURNS = (1, 2), 1
survey_parts.TOKENS = survey_parts.OFFLOADED_TOKENS = 8
code = survey.main(["--shape", "mini", "--device", "cpu", "--threads", "1", "--budget", "100000"])
assert not [name for name in ("click", "textual", "psutil", "numba", "platformdirs") if sys.modules.get(name)]
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("absent", [["accelerate"], pytest.param([], marks=pytest.mark.slow)])
def test_it_runs_where_there_is_neither_click_nor_textual_nor_a_compiler(absent: list[str]):
    """On a machine with a GPU only torch, transformers and what they bring is there, and bitsandbytes carried along;
    transformers' own nf4 takes accelerate too."""
    done = subprocess.run([sys.executable, "-c", BARE, *absent], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    text = done.stdout
    assert re.match(r"## \d{4}-\d\d-\d\d · mini on ", text)
    for part in survey_parts.PARTS:
        shown = f"### {part.title}\n" in text
        assert shown == (part.device == "cpu"), done.stderr[-1000:]
    assert "Unmeasured: int8. The CPU engine needs numba, which is not installed." in text
    assert "| bf16 offloaded early exit | 16 | 90% |" in text
    assert "| nf4 ms" in text
    assert ("transformers nf4 ms" in text) == (not absent)
    assert ("Left out: transformers nf4. It needs accelerate" in text) == bool(absent)


def test_importing_it_imports_no_command_line_and_no_screen():
    code = "import sys; from benchmarks.survey import __main__, early_exit, parts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert not packages & {"click", "textual", "rich", "psutil", "platformdirs", "numba", "transformers", "tokenizers"}


# --- the budget


def parts(monkeypatch: pytest.MonkeyPatch, *runs: Callable[[Survey], str]) -> None:
    made = tuple(Part(f"part {place}", "cpu", 1, run) for place, run in enumerate(runs))
    monkeypatch.setattr(survey, "PARTS", made)


def quiet(_what: str) -> None:
    pass


def test_what_was_not_reached_is_listed_and_has_no_figure(monkeypatch: pytest.MonkeyPatch):
    hours = Hours()
    clock = Clock(100, hours)

    def long(_survey: Survey) -> str:
        hours.now += 98.5
        return "| 1 |"

    parts(monkeypatch, long, lambda _: "| 2 |")
    found = conduct(small(), clock, quiet)
    assert found == [Outcome("part 0", "| 1 |"), Outcome("part 1", unmeasured="there was no time left")]
    text = section(small(), found, "python -m it", clock.spent)
    assert "### part 0\n\n| 1 |" in text
    assert "### Unmeasured\n\n- part 1: there was no time left." in text
    assert "| 2 |" not in text


def test_a_part_is_stopped_where_the_budget_ends(monkeypatch: pytest.MonkeyPatch):
    hours = Hours()
    clock = Clock(100, hours)

    def endless(_survey: Survey) -> str:
        while True:
            hours.now += 7
            clock.check()

    parts(monkeypatch, endless)
    (found,) = conduct(small(), clock, quiet)
    assert found.unmeasured == "there was no time left"
    assert hours.now == 105


def test_a_part_that_is_too_slow_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch):
    hours = Hours()
    clock = Clock(100, hours)

    def endless(_survey: Survey) -> str:
        while True:
            hours.now += 1
            clock.check()

    parts(monkeypatch, endless, endless, endless, lambda _: "| 4 |")
    found = conduct(small(), clock, quiet)
    assert [bool(one.unmeasured) for one in found] == [True, True, True, False]
    assert found[-1].text == "| 4 |"


def test_a_part_may_take_its_share_and_the_next_one_has_what_it_left(monkeypatch: pytest.MonkeyPatch):
    hours, dues = Hours(), []
    clock = Clock(100, hours)

    def part(_survey: Survey) -> str:
        assert not clock.late()
        dues.append(clock.due)
        hours.now += 10
        return "x"

    parts(monkeypatch, part, part, part, part)
    conduct(small(), clock, quiet)
    assert dues == [25.0, 40.0, 60.0, pytest.approx(30 + 70 / PATIENCE)]
    hours.now = 101
    assert clock.late()
    with pytest.raises(OutOfTimeError):
        clock.check()


def test_the_last_part_may_end_the_turn_that_it_has_begun(monkeypatch: pytest.MonkeyPatch):
    """A turn takes as long as may be; it was stopped in the middle of one, with all that it had measured."""
    hours = Hours()
    clock = Clock(100, hours)

    def turns(_survey: Survey) -> str:
        while not clock.late():
            for _ in range(30):
                hours.now += 1
                clock.check()
        return "| turns |"

    parts(monkeypatch, turns)
    (found,) = conduct(small(), clock, quiet)
    assert found.text == "| turns |"


def test_whatever_a_part_raises_is_what_its_line_says_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch):
    def broken(_survey: Survey) -> str:
        raise RuntimeError("CUDA error: [/nope]\nsecond line")

    def refused(_survey: Survey) -> str:
        raise UsageError("There is not enough memory for it.", hint="Try another.")

    parts(monkeypatch, broken, refused, lambda _: "| 3 |")
    found = conduct(small(), Clock(100, Hours()), quiet)
    assert [one.unmeasured for one in found] == [
        "RuntimeError: CUDA error: [/nope]",
        "There is not enough memory for it.",
        "",
    ]


@pytest.mark.slow
def test_the_other_device_is_listed_as_unmeasured():
    every = conduct(Survey("tiny", "cuda", 1, StateDictSource({}), Watch()), Clock(0, Hours()), quiet)
    assert [one.title for one in every if "this run is of the GPU" in one.unmeasured] == [
        part.title for part in survey_parts.PARTS if part.device == "cpu"
    ]
    every = conduct(small(), Clock(0, Hours()), quiet)
    assert [one.title for one in every if "no CUDA device" in one.unmeasured] == [
        part.title for part in survey_parts.PARTS if part.device == "cuda"
    ]
    assert not any(one.text for one in every)


def test_once_it_is_late_what_has_one_figure_gets_no_more():
    log: list[Any] = []
    plan, done = Plan(widths=(1, 2), depths=(16, 32), prefill=0), list[float]()
    times = time_forwards([Scripted("a", log), Scripted("c", log)], plan, 5, done.append, lambda: len(done) > 1)
    for name in "ac":
        assert {work: len(found) for work, found in times[name].items()} == {
            **dict.fromkeys(plan.works, 1),
            Work("early exit", 1, 16): 1,
        }


def test_once_it_is_late_texts_end_with_the_turn_that_counts():
    class Writes:
        def __init__(self) -> None:
            self.turns: list[int] = []

        def write(self, turn: int) -> Writing:
            self.turns.append(turn)
            return Writing((1,), 1.0, 1)

    both: list[Any] = [Writes(), Writes()]
    found = time_writers(both, 9, lambda _: None, lambda: True)
    assert [one.turns for one in both] == [[0, 1], [0, 1]]
    assert [len(texts) for texts in found] == [1, 1]


# --- what it writes


def test_the_section_says_when_where_with_what_and_how():
    text = section(small(), [Outcome("A part", "| 1 |")], "python -m benchmarks.survey --shape tiny", 12.3)
    head, about, *_ = text.split("\n\n")
    assert re.fullmatch(r"## \d{4}-\d\d-\d\d · tiny on .+, measured by `make measure`", head)
    for said in ("torch ", "transformers ", "python ", "localspec 0.", "seed 0", "12 s in all"):
        assert said in about
    assert "`python -m benchmarks.survey --shape tiny`" in about
    assert text.endswith("| 1 |\n")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_head_names_what_computed(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert ("tiny on A GPU, measured" in section(small(device), [], "it", 1.0)) is (device == "cuda")


def test_a_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    parts(monkeypatch, lambda _: "| 1 |")
    out = tmp_path / "section.md"
    assert survey.main(["--shape", "tiny", "--device", "cpu", "--out", str(out)]) == 0
    assert out.read_text().startswith("## ")
    assert capsys.readouterr().out == ""


def test_a_survey_that_measured_nothing_says_so_by_its_exit_code(monkeypatch: pytest.MonkeyPatch):
    def broken(_survey: Survey) -> str:
        raise RuntimeError("no")

    parts(monkeypatch, broken)
    assert survey.main(["--shape", "tiny", "--device", "cpu"]) == 1


@pytest.mark.parametrize(("device", "large", "small"), [("cpu", "llama-1b", "135m"), ("cuda", "llama2-7b", "llama-1b")])
def test_the_shape_is_one_that_fits(device: str, large: str, small: str, monkeypatch: pytest.MonkeyPatch):
    for free, shape in ((12 * SHAPES[large].num_weights, large), (12 * SHAPES[large].num_weights - 1, small)):
        monkeypatch.setattr(survey, "free_memory", lambda _, free=free: free)
        assert survey.usual_shape(device) == shape

    def nobody_knows(_: str) -> int:
        raise ImportError("psutil")

    monkeypatch.setattr(survey, "free_memory", nobody_knows)
    assert survey.usual_shape(device) == small


# --- the race against transformers' early exit


@pytest.fixture(scope="module")
def racers() -> list[Any]:
    return contenders(Race(MINI, random_tensors(MINI, 0), 1, 4, 24, 1), ("bf16", "nf4"))


def test_every_draft_is_right_for_both_and_both_say_what_they_say_plain(racers: list[Any]):
    texts = {one.way.name: one.write(1) for one in racers}
    assert {type(one) for one in racers} == {Ours, Theirs}
    for way in (one.way for one in racers):
        found = texts[way.name]
        assert len(found.ids) == 24
        assert found.ids == texts[way.plain].ids, way.name
        rounds = -(-24 // 5) if way.k else 24
        assert rounds <= found.rounds <= rounds + 1, way.name
    assert texts["bf16 plain"].ids == texts["transformers bf16 plain"].ids


def test_the_table_compares_texts_of_the_same_turn(racers: list[Any]):
    texts = [[Writing((1, 2), seconds, 1 + (one.way.k == 0)) for seconds in (1.0, 2.0)] for one in racers]
    made = table(racers, texts)
    assert len({len(line) for line in made}) == 1
    assert made[1][:4] == ["transformers bf16 plain", "0", "2.0", "1.00"]
    assert made[4][0] == "bf16 early exit 1"
    assert made[4][4:7] == ["1.00 ± 0.00"] * 3
    assert made[4][-1] == "2/2"


def test_the_config_is_whole_again_after_their_early_exit_fails(racers: list[Any], monkeypatch: pytest.MonkeyPatch):
    theirs = next(one for one in racers if isinstance(one, Theirs) and one.way.k)

    def fails(*_: Any, **__: Any) -> Any:
        theirs.model.config.num_hidden_layers = 1
        raise RuntimeError("no")

    monkeypatch.setattr(theirs.model, "generate", fails)
    with pytest.raises(RuntimeError):
        theirs.write(1)
    assert theirs.model.config.num_hidden_layers == MINI.num_layers


# --- formats


def test_transformers_nf4_is_the_same_weights_in_four_bits():
    """Against ours in nf4: the head is in 16 bits there, the rest differs by rounding."""
    source = random_tensors(MINI, 0)
    theirs = TransformersForwards(MINI, source, 64, kind="nf4")
    ours = make_decoder(MINI.arch(64), source, "nf4", context=64, threads=1)
    ids = torch.arange(9) * 7919 % MINI.vocab_size
    with torch.inference_mode():
        there = theirs.model(ids[None]).logits[0].float()
    here = ours.forward(ids)
    assert float(torch.nn.functional.cosine_similarity(here, there).min()) > 0.98
    assert any("4bit" in type(module).__name__ for module in theirs.model.modules())


def test_formats_by_device_are_formats():
    assert {kind for kinds in USUAL.values() for kind in kinds} <= set(LISTED)
    assert "int4" not in USUAL["cuda"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (ShapeRequest("tiny", ("int4",), device="cuda"), "run on a CPU only"),
        (ShapeRequest("tiny", against=("llama-cpp",), device="cuda"), "compared on a CPU"),
        (ShapeRequest("tiny", ("nf4",), offload=survey_parts.Rate(10)), "do not come from disk"),
    ],
)
def test_what_cannot_be_measured_is_refused(request_: ShapeRequest, said: str):
    with pytest.raises(UsageError, match=said):
        check(request_)
