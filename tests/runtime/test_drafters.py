"""DRAFTERS: what --draft takes, and that a drafter is its file and one row, from --draft to the history."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import localspec
from localspec.bench.drafters import drafts, usable
from localspec.core.drain import drain
from localspec.core.errors import CatalogError, NotDownloaded, UsageError
from localspec.core.events import SpecCard, Token
from localspec.core.requests import DraftModel, DraftRequest, EarlyExit, LoadRequest
from localspec.engine.drafters import table
from localspec.engine.drafters.empty import empty
from localspec.engine.drafters.row import DrafterRow, Suggestion, refuse_argument
from localspec.engine.drafters.table import DRAFTERS, MODEL
from localspec.engine.protocols import Choice, Draft, Offer, Resident
from localspec.engine.session import Session
from localspec.models.catalog import Catalog, DraftEntry, Entry
from localspec.runtime.api import load
from localspec.runtime.draft_choice import check, check_entry, requested
from localspec.runtime.local_models import drafters
from localspec.runtime.open import open_target
from localspec.runtime.other_programs import OtherPair, printed
from localspec.runtime.prospects import prospects
from localspec.tui.chat.draft_length import drafter, explained
from localspec.tui.transcript.token_view import about
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like


class Repeat:
    """Drafts the last token again, at most `most` times."""

    def __init__(self, most: int) -> None:
        self.most = most

    def prefill(self, session: Session) -> None:
        pass

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        return (Offer("repeat", min(most, self.most)),)

    def draft(self, session: Session, choice: Choice) -> Draft:
        count = min(choice.k, self.most)
        return (
            Draft(torch.tensor(session.tokens[-1:] * count), drafters=("repeat",) * count)
            if count > 0
            else empty(session)
        )

    def crop(self, length: int) -> None:
        pass


def make(argument: str, target: Resident, own: Resident | None) -> Repeat:  # noqa: ARG001
    assert own is None
    return Repeat(int(argument or 1))


ROW = DrafterRow(
    name="repeat",
    make=make,
    usage="repeat[:N]",
    label=lambda most: f"repeat {most}".strip(),
    summary=lambda _: "the last token again",
    spelling=lambda _: "repeat",
    parse=lambda argument: argument or "",
    suggest=lambda _: Suggestion("2", "needs text that repeats itself"),
)


HELP = """
from dataclasses import replace
from localspec.engine.drafters.table import DRAFTERS, LOOKUP
DRAFTERS["echo"] = replace(LOOKUP, name="echo", usage="echo")
from localspec.cli.main import cli
cli(["chat", "--help"])
"""


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRAFTERS, ROW.name, ROW)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "target"
    save_snapshot(folder, gpt2_like(), template=CHATML, eos="<|im_end|>")
    return folder


@pytest.mark.heavy
@pytest.mark.usefixtures("verified", "row")
def test_a_drafter_of_one_row_drafts_for_a_chat_with_the_text_of_plain_decoding(target: Path):
    check(LoadRequest(str(target), draft="repeat:3"), Catalog.load())
    texts = []
    for draft in ("repeat:3", "off"):
        with load(str(target), draft=draft, k=4, quant="fp64", threads=1) as llm:
            answer = llm.chat().stream("hello there general").result()
            texts.append([token.id for token in answer.tokens])
            if draft != "off":
                card = llm.ready.spec
                assert (card.kind, answer.stats.draft_kind) == ("repeat", "repeat")
                assert 0 < answer.stats.draft_n <= 3 * answer.stats.draft_rounds
                assert table.spelling(card) == "repeat"  # what the history keeps
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("row")
def test_a_row_is_all_that_help_lists_the_benchmark_and_the_chat_need(tmp_path: Path):
    assert "repeat[:N]" in table.usages()
    assert "repeat:N" in table.spellings()
    assert table.parse("lookup+repeat:2") == DraftRequest("repeat", "2", lookup=True)
    assert "repeat" in table.names()
    entry = Entry("x", "x", tmp_path, draft=DraftEntry("repeat"))
    check_entry(entry)
    assert drafters(entry) == (("auto", "the last token again"), ("off", "decode plain"))
    assert drafts(entry, "auto") == [("plain", "off"), ("repeat", "repeat")]
    assert drafts(entry, "repeat:2")[1][0] == "repeat 2"
    card = SpecCard("repeat")
    assert drafter(card) == "repeat"
    assert explained(card) == "repeat: it guesses the next tokens. The model checks every guess."
    assert about(Token(1, "word", "draft", pos=0, drafter="repeat")) == "repeat: token 1 of its draft"
    with pytest.raises(UsageError, match="Only localspec drafts for guide by repeat 2: vllm cannot"):
        printed(OtherPair("guide", "repeat:2"), "vllm")


@pytest.mark.usefixtures("row", "verified")
def test_a_row_is_among_what_could_draft_and_what_is_measured():
    opened = drain(open_target(LoadRequest.of("guide", quant="fp32", threads=1)))
    found = list(prospects(opened.entry, opened.snapshot, opened.catalog, "fp32"))
    assert [one.draft for one in found][:3] == ["lookup", "lookup+early-exit:2", "lookup+repeat:2"]
    assert (found[2].name, found[2].detail, found[2].suits) == (
        "look-up + the last token again",
        "needs text that repeats itself",
        True,
    )
    assert [name for name, _ in usable(opened, "auto")] == [
        "plain",
        "look-up",
        "early exit 2",
        "draft model small",
        "repeat 2",
        "auto",
    ]


def test_a_row_is_in_the_help_of_draft():
    """Help is made when the command line is imported."""
    shown = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True).stdout
    assert "Drafter: auto, off, early-exit[:E], lookup, echo, or a smaller model" in " ".join(shown.split())


def test_without_its_row_it_is_the_name_of_a_draft_model():
    assert table.parse("repeat") == DraftRequest("model", "repeat")


@pytest.mark.parametrize(
    ("written", "request_"),
    [
        ("auto", DraftRequest("auto")),
        ("off", DraftRequest("off")),
        ("early-exit", DraftRequest("early-exit")),
        ("early-exit:03", DraftRequest("early-exit", "3")),
        ("lookup", DraftRequest("lookup")),
        ("model", DraftRequest("model", "model")),
        ("ollama:qwen3:8b", DraftRequest("model", "ollama:qwen3:8b")),
        ("./early-exit", DraftRequest("model", "./early-exit")),
        (EarlyExit(), DraftRequest("early-exit")),
        (EarlyExit(3, greedy=True), DraftRequest("early-exit", "3", greedy=True)),
        (DraftModel("off", greedy=True), DraftRequest("model", "off", greedy=True)),
    ],
)
def test_what_draft_takes(written: str | EarlyExit | DraftModel, request_: DraftRequest):
    assert requested(written) == request_


@pytest.mark.parametrize(
    "text", ["early-exit:", "early-exit:x", "early-exit:-1", "early-exit:1.5", "lookup:", "lookup:2"]
)
def test_what_draft_does_not_take(text: str):
    with pytest.raises(UsageError):
        requested(text)


def test_a_drafter_without_an_argument_takes_none():
    assert refuse_argument(None) == ""
    with pytest.raises(UsageError):
        refuse_argument("")


@pytest.mark.parametrize(
    ("card", "spelling"),
    [
        (SpecCard("off", reason="you turned it off"), None),
        (SpecCard("early-exit", "early exit 3", exit_layer=3), "early-exit:3"),
        (SpecCard("lookup", "look-up"), "lookup"),
        (SpecCard("model", "guide-draft"), "guide-draft"),
    ],
)
def test_the_history_keeps_a_drafter_as_draft_takes_it(card: SpecCard, spelling: str | None):
    assert table.spelling(card) == spelling


SHIPPED = "schema_version = 1\n[models.x]\npath = '.'\n"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("[models.x.draft]\nkind = 'magic'", "of kind 'magic'; there are early-exit, lookup, model, off"),
        ("[models.x.draft]\nkind = 'lookup'\nexit_layer = 1", "has an exit_layer"),
        ("[models.x.draft]\nkind = 'off'\nexit_layer = 1", "has an exit_layer"),
        ("[models.x.draft]\nkind = 'model'\nmodel = 'y'\nexit_layer = 1", "has an exit_layer"),
        ("[models.x.draft]\nkind = 'model'", "needs a model if, and only if"),
        ("[models.x.draft]\nkind = 'early-exit'\nmodel = 'y'", "needs a model if, and only if"),
        ("[models.x.drafts.y]\nkind = 'early-exit'", "named draft 'y'"),
        ("[models.x.drafts.y]\nkind = 'off'", "named draft 'y'"),
    ],
)
def test_a_draft_in_models_toml_that_cannot_be_one_is_refused(lines: str, fault: str, tmp_path: Path):
    file = tmp_path / "models.toml"
    file.write_text(SHIPPED + lines)
    with pytest.raises(CatalogError, match=fault) as caught:
        check_entry(Catalog.load(file).resolve("x"))
    assert caught.value.message.startswith("models.toml: ")
    assert caught.value.hint


def test_a_drafters_name_is_spelled_in_its_row_and_its_file():
    """And where a room below the engine, or beside it, has a word of its own for one: Python's records, the section
    [lookup], and a mark in the history."""
    root = Path(localspec.__file__).parent
    others = {"config/tables.py", "core/requests.py", "history/text/marks.py"}
    spelled = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in {*DRAFTERS} - {MODEL.name}
    }
    assert {file for file in spelled if not file.startswith("engine/drafters/")} == others


@pytest.mark.parametrize("typed", ["qwen/QWEN3-0.6B", "Qwen/Qwen3-0.6B/", "https://huggingface.co/Qwen/Qwen3-0.6B"])
def test_a_draft_model_is_named_as_a_target_is(typed: str) -> None:
    with pytest.raises(NotDownloaded) as caught:
        check(LoadRequest.of("Guide", draft=typed), Catalog.load())
    assert str(caught.value) == "'Qwen/Qwen3-0.6B' is not on this machine. Fetch it: localspec pull Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    "text", ["auto", "off", "early-exit", "early-exit:3", "lookup", "org/small", "lookup+early-exit:3", "lookup+x"]
)
def test_what_draft_takes_is_spelled_as_it_is_parsed(text: str):
    assert table.spelled(table.parse(text)) == text
