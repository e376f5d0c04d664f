"""Every door of the chat, alone: what strangers write comes through it clean, and never as markup (F1, F2)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from textual.content import Content
from textual.widgets import Static

from localspec.core.events import Loading, ModelCard, Proposal, SpecCard, Stats, Token
from localspec.history import Attachment
from localspec.hub.queue import Download
from localspec.hub.records import Access, DraftOffer, Licence, PullPlan, PullRequest, Repository, SearchRow
from localspec.loading.fit import FitReport, FormatFit
from localspec.runtime.local_models import ListedModel
from localspec.runtime.pairs import DrafterCandidate
from localspec.tui.chat.attachments import from_paste
from localspec.tui.chat.draft_length import drafting, words
from localspec.tui.chat.file_names import Begun, Named
from localspec.tui.chat.info import ChatInfo, info
from localspec.tui.chat.plan_lines import choices, plan_lines
from localspec.tui.keys.palette import shown as shown_model
from localspec.tui.markdown.parser import parser
from localspec.tui.panels.completion import path_offer
from localspec.tui.panels.download_rows import listed as listed_downloads
from localspec.tui.panels.download_rows import percent_line
from localspec.tui.panels.header import Header
from localspec.tui.panels.hub_rows import Listing, detail, listed
from localspec.tui.panels.lines import Lines
from localspec.tui.panels.pills import Pills
from localspec.tui.panels.speed_panel import SpeedReading, panel
from localspec.tui.panels.stats_line import loading_words
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.speaker import clock
from localspec.tui.transcript.token_view import choice, mark, rejected
from tests.core.test_sanitize import FORBIDDEN, fuzzed

pytestmark = pytest.mark.heavy

SCREEN = Path(__file__).parents[2] / "localspec" / "tui"
FEW = 10_000
COUNTS = [FEW, pytest.param(10 * FEW, marks=pytest.mark.slow)]


def plain(*widgets: Static) -> str:
    """What widgets show; a string that they would take for markup is an error."""
    for widget in widgets:
        assert isinstance(widget.content, Content) or not widget._render_markup, widget
    return "\n".join(str(widget.content) for widget in widgets)


def header(text: str) -> str:
    shown = Header()
    shown.show(ModelCard(text, text, text, 9, True), SpecCard("off", reason=text))
    first = str(shown.names(60)) + str(shown.names(200))
    shown.show(ModelCard(text, text, text, 9, True), SpecCard("model", text, text))
    return first + str(shown.names(200))


def state(text: str) -> str:
    return str(info(ChatInfo(text, 1, text), Stats(), 10**6))


def panel_line(text: str) -> str:
    spec = SpecCard("model", f"org-{text}", "auto", reason=text)  # no path, which would be cut to its end
    reading = SpeedReading(Stats(draft_kind="model"), spec=spec, device=text)
    return f"{panel(reading, 10**6, 99)}{drafting(spec)}{words(spec)}"


def tooltip(text: str) -> str:
    return choice(Token(1, text, "fix", alt=Proposal(2, text, 0.5, 0.5)))


def model_row(text: str) -> str:
    return str(shown_model(ListedModel(text, text, 1, text, ())))


def question(text: str) -> str:
    attached = (Attachment(text, text=text), from_paste(text))
    return plain(*(part for part in Question(text, attachments=attached).compose() if isinstance(part, Static)))


def answer(text: str) -> str:
    return str(Answer(text).speaker.name_line) + clock(text)


def pills(text: str) -> str:
    shown = Pills(lambda _: None)
    shown.add(Attachment(text, text=text))
    return plain(shown)


def token(text: str) -> str:
    marks = (mark(Token(1, text, "draft", pos=0)), *rejected(Proposal(1, text, 0.5, 0.5)))
    return "".join(one.text for one in marks)


def markdown(text: str) -> str:
    tokens = parser().parse(text)
    return "".join(part.content for found in tokens for part in (found.children or [found]))


def of_the_hub(text: str) -> str:
    """A row of a search, all about it, and the question before its download."""
    licence, report = (
        Licence(text, link=text),
        FitReport(text, text, 4096, 2, (FormatFit(text, "fits", 1, 1, 1, 1),), text, text),
    )
    found = Listing(
        SearchRow(text, 1, text, licence, "", 1, 1, text, text, text), report, DrafterCandidate(text, 1, False)
    )
    rows = (found, replace(found, row=structs.replace(found.row, note="")))
    access = Access("no-request", text, text, by_hand=True)
    kept = Repository(text, text, text, (), licence, Access(), 1, text, text)
    plans = (
        PullPlan(one, kept, DraftOffer("model", text, source=text, detail=text), report, 9, 1, text)
        for one in (kept, structs.replace(kept, access=access))
    )
    asked = (line for plan in plans for line in (*plan_lines(plan), *(words for _, words in choices(plan))))
    return "".join((*(str(line) for one in rows for line in (*listed([one], 500), detail(one))), *asked))


def downloads(text: str) -> str:
    item = Download(PullRequest(text, draft=f"{text}/"), 1, "failed", 1, 2, text, reason=text)
    running = structs.replace(item, state="downloading")
    return "".join(map(str, (*listed_downloads([item, running], {}, 500), percent_line(running))))


DOORS: dict[str, Callable[[str], str]] = {
    "a note, an error, a notice": lambda text: plain(Note(text, level="error")),
    "a question and its attachments": question,
    "the speaker of an answer": answer,
    "the header": header,
    "the state line": state,
    "the panel's line on drafts": panel_line,
    "the tooltip of a fix": tooltip,
    "a model in the palette": model_row,
    "the state while a model loads": lambda text: loading_words(Loading(text, 1, 2, unit="steps")),
    "the pills": pills,
    "a file in the list of paths": lambda text: path_offer(Begun("", mention=True), Named(text, False, 0), "").usage,
    "the lines of a file": lambda text: "\n".join(Lines(text).lines),
    "a search of the hub": of_the_hub,
    "the downloads": downloads,
    "a token": token,
    "Markdown": markdown,
}


COSTLY = (
    "the lines of a file",
    "a question and its attachments",
    "the speaker of an answer",
    "the header",
    "the pills",
    "Markdown",
    "a search of the hub",
    "the downloads",
)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", DOORS)
def test_nothing_forbidden_comes_through(name: str, count: int):
    """0 of 100,000 fuzzed strings; a tenth of them in make test, a hundredth where each costs."""
    door, costly = DOORS[name], count == FEW and name in COSTLY
    for text in fuzzed(11, count // 10 if costly else count):
        shown = door(text)
        assert FORBIDDEN.isdisjoint(shown), ascii(text)
        assert "[/nope]" in shown or "[/nope]" not in text or door in (markdown, pills), ascii(text)


CLEANERS = {"Static", "Label", "OptionList"}


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Constructors of widgets that take markup, those of subclasses too, and toasts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & CLEANERS:
            own = [part for part in node.body if not isinstance(part, ast.ClassDef)]
            inner = (call for part in own for call in ast.walk(part) if isinstance(call, ast.Call))
            yield from ((call, node.name) for call in inner if ast.unparse(call.func) == "super().__init__")
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CLEANERS or name.endswith(".notify"):
                yield node, name


@pytest.mark.parametrize("file", sorted(SCREEN.glob("*.py")), ids=lambda file: file.stem)
def test_no_widget_takes_markup(file: Path):
    """Text in brackets would be read as markup, and a chat titled [/nope] would end the program."""
    for call, name in calls(ast.parse(file.read_text(encoding="utf-8"))):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given.get("markup") == "False", f"{file.name}:{call.lineno}: {name}"


def assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What is assigned to what; of a tuple, each to each."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, its in zip(target.elts, value.elts, strict=True):
            yield from assigned(part, its)
    elif isinstance(target, ast.Tuple):
        yield from ((ast.unparse(part), value) for part in target.elts)
    else:
        yield ast.unparse(target), value


def titles(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = (pair for target in node.targets for pair in assigned(target, node.value))
            yield from (value for name, value in pairs if name.endswith(("border_title", "border_subtitle")))


def is_ours(title: ast.expr) -> bool:
    said = ast.unparse(title)
    return isinstance(title, ast.Constant) or said.isupper() or said.startswith("Content(")  # a constant's name


@pytest.mark.parametrize("file", sorted(SCREEN.glob("*.py")), ids=lambda file: file.stem)
def test_titles_of_borders_are_ours(file: Path):
    """A string is always markup there."""
    for title in titles(ast.parse(file.read_text(encoding="utf-8"))):
        assert is_ours(title), f"{file.name}:{title.lineno}"


@pytest.mark.parametrize("line", ["a.border_title = x", "a.b, c.border_title = 1, x", "a.b = c.border_subtitle, d = x"])
def test_a_title_is_found_wherever_it_is_assigned(line: str):
    assert [is_ours(title) for title in titles(ast.parse(line))] == [False]
