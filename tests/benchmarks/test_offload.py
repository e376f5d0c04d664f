"""The benchmark of layers that come and go: at the rate that was stated, in turn with plain, and labelled."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch

from benchmarks.offload import main
from benchmarks.program import run
from benchmarks.shapes.forwards import Plan
from benchmarks.shapes.layer_offload import Rate, offloaded
from benchmarks.shapes.measure import ShapeRequest, measure_shape
from benchmarks.shapes.random_weights import SHAPES, Shape, make_decoder, random_tensors
from localspec.core.weight_formats import ListedFormat

pytestmark = pytest.mark.heavy

MINI = Shape(num_layers=4, hidden_size=128, intermediate_size=192, num_heads=2, num_kv_heads=1, vocab_size=256)
PLAN = Plan(widths=(1, 5), depths=(128,), prefill=0)


@pytest.fixture(autouse=True)
def mini(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "mini", MINI)


def request(rate: Rate, *formats: ListedFormat) -> ShapeRequest:
    return ShapeRequest(
        "mini",
        formats=formats,
        agree=(0.9,),
        max_tokens=8,
        repeats=1,
        threads=1,
        plan=PLAN,
        lengths=("4",),
        offload=rate,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rate", [Rate(10**9), Rate()], ids=["stated", "real"])
def test_both_kinds_of_weights_are_measured_and_say_what_they_are(
    rate: Rate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    report = measure_shape(request(rate, "int8", "bf16"))
    names = [row.method for row in report.texts()]
    expected = [f"{kind} offloaded {way}" for kind in ("int8", "bf16") for way in ("plain", "early exit")]
    assert names == expected
    assert [row.same for row in report.texts() if row.method.startswith("int8")] == ["1/1", "1/1"]
    assert all(row.times_plain for row in report.texts() if row.k == "4")
    assert "1 of 4 layers are in memory" in report.to_markdown()
    assert str(rate) in report.to_markdown()
    left = list((tmp_path / "cache" / "packed").rglob("*"))
    assert left == [], "what the benchmark wrote stays behind"


def test_a_layer_takes_as_long_as_the_rate_says():
    whole = make_decoder(MINI.arch(64), random_tensors(MINI, 0), "fp32", context=64, threads=1)
    num_bytes = whole.layer_bytes[0]
    target = offloaded(whole, 1, Rate(20 * num_bytes).carry(num_bytes))  # twenty layers a second, three a forward
    target.forward(torch.tensor([1]))
    started = perf_counter()
    for _ in range(3):
        target.forward(torch.tensor([1]))
    assert perf_counter() - started >= (3 * 3 - 2) / 20  # two may have been there
    target.close()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["fast", "--shape", "tiny"], "'fast' is not a rate. Try: 2GB/s, or real"),
        (["2GB/s", "--shape", "tiny", "--k", "8,99"], "takes lengths up to"),
        (["2GB/s", "--shape", "tiny", "--k", ","], "takes lengths up to"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    arguments: list[str], word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["benchmarks.offload", *arguments])
    code, said = run(main), capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert word in said


def test_the_command_line_measures_several_draft_lengths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(SHAPES, "tiny", MINI)
    options = ["1GB/s", "--k", "2,4", "--agree", "0.9", "-n", "8", "-r", "1", "-o", "json"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.offload", "--shape", "tiny", "--threads", "1", *options])
    assert run(main) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["k"]) for row in told["forced_agreement"]] == [
        ("int8 offloaded plain", "0"),
        ("int8 offloaded early exit", "2"),
        ("int8 offloaded early exit", "4"),
    ]
    assert {row["rows"] for row in told["forwards"]} == {1, 3, 5}
