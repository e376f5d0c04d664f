"""`localspec run --batch`: results in order, a file that is gone on with, and what is wrong said before all else."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from localspec.cli import batch
from localspec.cli.batch_lines import WORDS, BatchDefaults, BatchRequest, ask, digest, read_batch
from localspec.cli.batch_results import ResultsFile
from localspec.cli.io import STREAM
from localspec.core.errors import UsageError
from localspec.core.events import Loading
from localspec.core.requests import GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.runtime.api import LLM, load
from localspec.runtime.result import Gathered
from tests.conftest import Program
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

LINES: list[dict[str, Any]] = [
    {"prompt": "hello there", "id": "a", "max_tokens": 9},
    {"messages": [{"role": "user", "content": "hello there general"}], "max_tokens": 3, "temperature": 0.9, "seed": 4},
    {"prompt": "The quick brown fox", "id": 7},
    {"prompt": "a b a b", "max_tokens": 2},
]
OPTIONS = ("--draft", "early-exit:2", "--quant", "fp32", "--threads", "1", "--ctx", "128", "--temperature", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return write(tmp_path / "asked.jsonl", *LINES)


@pytest.fixture
def run(localspec: Program, folder: Path) -> Any:
    def start(file: Path, *more: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
        return localspec("run", folder, "--batch", file, *OPTIONS, "--max-tokens", "5", *more, stdin=stdin)

    return start


def write(file: Path, *lines: dict[str, Any]) -> Path:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def requests_of(file: Path) -> list[BatchRequest]:
    return ask(read_batch(file), BatchDefaults(GenerateRequest()), LoadRequest(), SamplingOptions())


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_results_are_in_order_and_each_is_what_run_answers(run: Any, asked: Path, folder: Path):
    code, out, err = run(asked, "--parallel", "2")
    assert code == 0
    found = records(out)
    assert [(one["index"], one.get("id")) for one in found] == [(0, "a"), (1, None), (2, 7), (3, None)]
    assert [(one["finish_reason"], one["tokens"]) for one in found] == [("length", n) for n in (9, 3, 5, 2)]
    assert all(one["prompt_tokens"] > 0 for one in found)
    assert "Answered 4 of 4: 19 tokens" in err
    with load(folder, draft="off", quant="fp32", threads=1, ctx=128) as llm:
        for line, one in zip(LINES, found, strict=True):
            turns = line.get("messages") or [{"role": "user", "content": line["prompt"]}]
            given = {name: line[name] for name in ("temperature", "seed") if name in line} or {"temperature": 0}
            assert llm.generate(turns, max_tokens=one["tokens"], **given).text == one["text"]


def test_a_bar_shows_how_many_are_done(run: Any, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also those that the file had before."""
    shown, file = list[Loading](), tmp_path / "results"
    monkeypatch.setattr(batch.ProgressBar, "show", lambda _, event: shown.append(event))
    assert run(asked, "--output", file)[0] == 0
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
    assert run(asked, "--output", file)[0] == 0
    counts = [(event.done, event.total, event.eta_s) for event in shown if event.stage == "answering"]
    assert [done for done, _, _ in counts] == [0, 1, 2, 3, 4, 3, 4]
    assert {total for _, total, _ in counts} == {4}
    assert [eta is None for _, _, eta in counts] == [True, *[False] * 4, True, False]
    assert counts[4][2] == 0


def test_a_file_of_results_is_gone_on_with(run: Any, asked: Path, tmp_path: Path):
    """Half a line at its end is dropped, and what it has is not answered again."""
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    assert run(asked, "--output", whole)[0] == 0
    assert [one["index"] for one in records(whole.read_text())] == [0, 1, 2, 3]
    lines = whole.read_bytes().splitlines(keepends=True)
    kept = json.loads(lines[2])
    kept["text"] = "as it was"
    part.write_bytes(json.dumps(kept).encode() + b"\n" + lines[0][:20])
    code, out, err = run(asked, "--output", part)
    assert (code, out) == (0, "")
    answered = sum(one["tokens"] for one in records(whole.read_text()) if one["index"] != 2)
    assert f"Answered 3 of 4: {answered} tokens in " in err
    assert err.endswith(" a second); 1 was there already.\n")
    found = records(part.read_text())
    assert found[2]["text"] == "as it was"
    del found[2]["text"]
    assert found == [
        {name: value for name, value in one.items() if one["index"] != 2 or name != "text"}
        for one in records(whole.read_text())
    ]
    before = part.read_bytes()
    code, _, err = run(asked, "--output", part)
    assert (code, part.read_bytes()) == (0, before)
    assert "has all 4 results already" in err


def test_lines_may_be_piped_in_and_results_out(run: Any, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`-` names no file, on either side; a file of results is gone on with when the same lines come again."""
    monkeypatch.chdir(tmp_path)
    piped, file = asked.read_bytes(), tmp_path / "results"
    code, printed, _ = run(asked)
    assert code == 0
    assert run(STREAM, stdin=piped)[:2] == run(STREAM, "--output", "-", stdin=piped)[:2] == (0, printed)
    assert run(STREAM, "--output", file, stdin=piped)[0] == 0
    assert records(file.read_text()) == records(printed)
    code, _, err = run(STREAM, "--output", file, stdin=piped)
    assert (code, f"{file} has all 4 results already." in err) == (0, True)
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b'{"prompt": "a"}\n{"id": 1}\n', "Line 2 of the piped input: it has neither "),
        (b"\n", "The piped input has no requests. "),
    ],
)
def test_what_is_piped_in_wrong_is_named(localspec: Program, stdin: bytes, message: str):
    code, out, err = localspec("run", "guide", "--batch", "-", stdin=stdin)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")


def test_a_terminal_is_no_pipe(monkeypatch: pytest.MonkeyPatch):
    """It would wait for lines that nobody knows to type."""
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))
    with pytest.raises(UsageError, match=r"Nothing is piped in\. Try: localspec run MODEL --batch - < FILE\.jsonl"):
        read_batch(STREAM)


def test_a_request_that_fails_has_its_error_and_the_others_their_answers(run: Any, tmp_path: Path):
    """Which the same command says again of a file that has them all."""
    asked, file = (
        write(tmp_path / "asked", LINES[0], {"prompt": "a b " * 200, "id": "long"}, LINES[3]),
        tmp_path / "got",
    )
    code, _, err = run(asked, "--output", file)
    assert code == 1
    first, failed, last = records(file.read_text())
    assert (failed["id"], failed["error"]["code"]) == ("long", "context_overflow")
    assert first["text"]
    assert last["text"]
    assert "Answered 2 of 3: " in err
    assert "1 of 3 failed" in err
    code, _, err = run(asked, "--output", file)
    assert code == 1
    assert "1 of 3 failed" in err


def test_ctrl_c_keeps_what_is_ready_and_says_how_to_go_on(
    run: Any, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(self: LLM, requests: Any, **more: Any) -> Iterator[tuple[int, Gathered]]:
        for one in plainly(self, requests, **more):
            yield one
            os.kill(os.getpid(), signal.SIGINT)

    plainly = LLM.answer_many
    file = tmp_path / "results.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(LLM, "answer_many", interrupted)
        code, _, err = run(asked, "--output", file, "--parallel", "1")
    assert code == 130
    assert len(records(file.read_text())) == 1
    assert f"{file} has 1 of 4. The same command goes on." in err
    assert run(asked, "--output", file)[0] == 0
    assert [one["index"] for one in records(file.read_text())] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[1]", 'it is JSON, but not an object such as {"prompt": …}'),
        (b'{"promt": "a"}', f"there is no field 'promt', only {', '.join(WORDS)}"),
        (b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}', "it has both a prompt and messages"),
        (b'{"id": 1}', "it has neither a prompt nor messages"),
        (b'{"prompt": " "}', "its prompt is empty"),
        (b'{"prompt": 1}', "'prompt' is not a text"),
        (b'{"messages": []}', f"'messages' is not {WORDS['messages']}"),
        (b'{"messages": [{"role": "tool", "content": "a"}]}', f"'messages' is not {WORDS['messages']}"),
        (b'{"prompt": "a", "temperature": 101}', "'temperature' is not a number from 0 to 100"),
        (b'{"prompt": "a", "max_tokens": 0}', "'max_tokens' is not a whole number from 1 to 1,048,576"),
        (b'{"prompt": "a", "id": 1.5}', "'id' is not a text or a whole number"),
        (b'{"prompt": "a", "stop": [1]}', "'stop' is not a text or a list of texts"),
    ],
    ids=range(15),
)
def test_a_wrong_line_is_named_before_anything_is_loaded(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, reason: str
):
    monkeypatch.setattr(batch, "open_quietly", lambda *_: pytest.fail("it is loaded"))
    file = tmp_path / "asked.jsonl"
    file.write_bytes(b'{"prompt": "a"}\n\n' + line + b"\n")
    code, out, err = run(file)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: Line 3 of '{file}': {reason}. A line is e.g. ")
    assert err.count("\n") == 1


def test_results_of_another_batch_and_what_is_no_file_are_refused(run: Any, asked: Path, tmp_path: Path):
    for content in (b'{"index": 0, "id": "b"}\n', b'{"index": 4}\n', b"no JSON\n", b"[]\n", b'{"index": true}\n'):
        results = tmp_path / "results.jsonl"
        results.write_bytes(content)
        code, _, err = run(asked, "--output", results)
        assert (code, results.read_bytes()) == (2, content)
        assert f"'{results}' has results of another batch (line 1)." in err
    for file in (tmp_path, tmp_path / "not there"):
        assert run(file)[0] == 2
    assert run(write(tmp_path / "empty"))[0] == 2
    assert run(asked, "--output", tmp_path)[0] == 2
    assert run(asked, "--output", tmp_path / "no folder" / "results")[0] == 2


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ({"prompt": "hello general"}, ()),
        ({"max_tokens": 8}, ()),
        ({"temperature": 0.1}, ()),
        ({}, ("--temperature", "0.5")),
        ({}, ("--system", "Be brief.")),
        ({}, ("--quant", "fp64")),
        ({}, ("--keep-head",)),
        ({}, ("--int8-threshold", "0")),
        ({}, ("--no-folding",)),
        ({}, ("--raw",)),
    ],
)
def test_an_answer_to_what_has_changed_is_not_taken_for_the_answer(
    run: Any, tmp_path: Path, line: dict[str, Any], more: tuple[str, ...]
):
    """Under the same id, at the same position. How fast it is written may change."""
    file = tmp_path / "results"
    first, second = LINES[0], LINES[2]
    assert run(write(tmp_path / "asked", first, second), "--output", file)[0] == 0
    before = file.read_bytes()
    code, _, err = run(write(tmp_path / "asked", {**first, **line}, second), "--output", file, *more)
    assert (code, file.read_bytes()) == (2, before)
    assert err == (
        f"error: Line 1 of '{file}' answers what was asked before its prompt, the model or an option changed. "
        "Choose another file with --output, or delete that line to ask again.\n"
    )
    code, _, err = run(write(tmp_path / "asked", first, second), "--output", file, "--draft", "off", "--parallel", "1")
    assert (code, "has all 2 results already" in err) == (0, True)


class LaterSampling(SamplingOptions, frozen=True):
    mirostat: int | None = None


class LaterRequest(GenerateRequest, frozen=True, tag="ask"):
    grammar: str = ""


class LaterLoad(LoadRequest, frozen=True):
    lora: dict[str, float] = msgspec.field(default_factory=dict)


def test_what_a_later_version_adds_changes_no_digest():
    """As long as it is at its default: or an upgrade would refuse every file of results."""
    messages = (Message("user", "hi"),)
    now = digest(GenerateRequest(messages, sampling=SamplingOptions(0.5)), LoadRequest("m"), SamplingOptions(seed=1))
    later = LaterRequest(messages, sampling=LaterSampling(0.5)), LaterLoad("m"), LaterSampling(seed=1)
    assert digest(*later) == now
    assert digest(replace(later[0], grammar="a | b"), *later[1:]) != now
    assert digest(replace(later[0], sampling=LaterSampling(0.5, mirostat=2)), *later[1:]) != now
    assert now == "eb5ca848facdde6a"  # results of earlier versions are gone on with


def test_results_are_put_in_order_when_all_are_there(asked: Path, tmp_path: Path):
    requests, file = requests_of(asked), tmp_path / "results"
    for order in ((3, 1), (0, 2)):
        kept = ResultsFile.open(file, requests)
        for index in order:
            kept.write(requests[index].record(text=f"text {index}"))
        kept.close()
    assert [one["index"] for one in records(file.read_text())] == [0, 1, 2, 3]
    assert file.stat().st_mode & 0o077 == 0


def test_a_file_that_another_writes_is_refused(asked: Path, tmp_path: Path):
    """Two would write over each other's results."""
    requests, file = requests_of(asked), tmp_path / "results"
    kept = ResultsFile.open(file, requests)
    with pytest.raises(UsageError, match="Another localspec writes"):
        ResultsFile.open(file, requests)
    kept.write(requests[2].record(text="two"))
    kept.close()
    with closing(ResultsFile.open(file, requests)) as kept:
        assert kept.has(2)


@pytest.mark.parametrize("more", [("--json",), ("--jsonl",), ("--stats",), ("--trace", "x"), ("PROMPT",)])
def test_what_does_not_go_with_a_batch_is_refused(localspec: Program, asked: Path, more: tuple[str, ...]):
    code, _, err = localspec("run", "guide", "--batch", asked, *more)
    assert code == 2
    assert f"{more[0]} and --batch cannot be combined" in err


@pytest.mark.parametrize("count", ["0", "65", "x", "-1", "2.5"])
def test_a_count_that_is_none_is_refused(localspec: Program, asked: Path, count: str):
    code, _, err = localspec("run", "guide", "--batch", asked, "--parallel", count)
    assert code == 2
    assert f"'{count}' is neither auto nor a number from 1 to 64" in err


@pytest.mark.parametrize("more", [("--output", "x"), ("--parallel", "2")])
def test_what_goes_with_a_batch_alone_is_refused_without(localspec: Program, more: tuple[str, str]):
    code, _, err = localspec("run", "guide", "hi", *more)
    assert code == 2
    assert f"{more[0]} needs --batch" in err
