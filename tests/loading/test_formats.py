"""A new weight format is one row of the table and what computes it; no other file names formats."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import localspec
from localspec.core import weight_formats
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import FORMATS, LISTED, ROWS, WeightFormat, find_format
from localspec.loading.footprint import footprint, packed_format
from localspec.loading.kernels import KERNELS
from localspec.loading.plan import make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

ROOT = Path(localspec.__file__).parent
NAME = re.compile(r"(?<![\w.-])(int8|int4|nf4|fp4|fp32|bf16|fp64)(?![\w-])")

# The table; the kernels, which know their own codecs; readers of files that are in a format already.
MAY_NAME_FORMATS = {
    "bench/transformers_peer.py",
    "cli/options.py",  # flags that are about one format
    "core/weight_formats.py",
    "engine/cpu/tables.py",
    "engine/cpu/formats.py",
    "engine/cpu/kernels.py",
    "engine/cpu/linears.py",
    "engine/cpu/pack.py",
    "engine/linear.py",
    "models/prequantised/stored_format.py",
    "runtime/local_models.py",  # what a file's own header says
}

TOYS = {
    "fp16": WeightFormat("fp16", "cpu", "torch", "float16", 2, can_offload=True),
    "q4": replace(find_format("int4"), name="q4"),
    "nf4-again": replace(find_format("nf4"), name="nf4-again"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "tiny"
    return save_snapshot(where, gpt2_like(), template=CHATML, eos="<|im_end|>")


@pytest.mark.parametrize("name", TOYS)
def test_a_format_of_one_row_plans_loads_passes_its_self_check_and_answers(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path))  # where verdicts are remembered
    monkeypatch.setitem(FORMATS, (name, "cpu"), TOYS[name])
    verified = list[str]()
    kernel = KERNELS[TOYS[name].kernel]

    def verify(config: dict[str, object], plan: object) -> Iterator[object]:
        verified.append(name)
        return kernel.verify(config, plan)  # type: ignore[arg-type]

    monkeypatch.setitem(KERNELS, TOYS[name].kernel, replace(kernel, verify=verify))
    assert make_plan(open_snapshot(folder), PlanRequest(WeightOptions(name))).weight_format == TOYS[name]
    with load(str(folder), quant=name, device="cpu", draft="off", threads=1, ctx=64) as llm:
        assert llm.ready.model.quant == name
        assert llm.generate("a b c", max_tokens=4, temperature=0).stats.predicted_n > 0
    assert verified == [name]


def test_a_row_that_is_offloadable_can_be_offloaded(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FORMATS, ("q4", "cpu"), TOYS["q4"])
    plan = make_plan(open_snapshot(folder), PlanRequest(WeightOptions("q4", "offload")))
    assert (str(plan), plan.resident) == ("q4 with layers from disk", 1)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.is_read_only], ids=lambda row: f"{row}-{row.device}")
def test_every_row_has_a_size_and_a_kernel(row: WeightFormat, folder: Path):
    assert row.kernel in KERNELS
    assert row.is_packed == (packed_format(row) is not None)
    assert footprint(open_snapshot(folder), row, 64).whole > 0
    assert not row.smaller or (row.smaller, row.device) in FORMATS or row.smaller in LISTED


def test_no_name_is_twice_on_a_device():
    assert len(FORMATS) == len(ROWS)


def literals(file: Path) -> Iterator[tuple[int, str]]:
    """Strings of a program that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_no_other_file_names_formats():
    found = [
        f"{where}:{line}: {text}"
        for file in sorted(ROOT.rglob("*.py"))
        if (where := file.relative_to(ROOT).as_posix()) not in MAY_NAME_FORMATS
        for line, text in literals(file)
        if NAME.search(text)
    ]
    assert found == []


def test_every_file_that_may_name_formats_does():
    idle = {name for name in MAY_NAME_FORMATS if not any(NAME.search(text) for _, text in literals(ROOT / name))}
    assert idle == set()


def test_the_table_imports_nothing_heavy():
    """Help texts, `ls` and plans read it."""
    names = {
        node.module
        for node in ast.walk(ast.parse(Path(weight_formats.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert names == {"__future__", "dataclasses", "typing"}
