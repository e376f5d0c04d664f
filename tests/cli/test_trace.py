"""`run --trace` and `localspec trace`: every round as a line, private, never over another file, and readable."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.cli.trace import new_trace, read_trace
from localspec.cli.trace_text import WIDTH, trace_lines
from localspec.core import whole_file
from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.events import Origin, Step, Token
from localspec.core.trace import VERSION, Own, Proposed, TracedRound, TraceEnd, TraceHead
from localspec.engine.protocols import Choice, DraftProbabilities, Offer, Round
from localspec.runtime.traced_rounds import traced
from tests.conftest import Program
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, byte_level

pytestmark = pytest.mark.usefixtures("one_state_folder")

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
HEAD = TraceHead(VERSION, "0.1.0", "tiny", "int8", "cpu", "lookup", 4, {"temperature": 0.0})
LOOKED_UP = TracedRound(
    (
        Proposed(1, " a", "lookup", "accepted", None, 0.97),
        Proposed(2, "\n\x1b[31m", "lookup", "rejected", None, 0.02),
        Proposed(3, "c", "model", "ignored"),
    ),
    Own(4, " d", "fix"),
    0.5,
    12.25,
    3,
    Origin("file", "notes.txt", 17),
)
PLAIN = TracedRound((), Own(5, " plain", "plain"), 0.0, 10.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    return save_snapshot(made, byte_level(*SPECIALS), template=CHATML, eos="<|im_end|>", hidden_size=64) or made


def written(file: Path, *lines: Any) -> Path:
    file.write_bytes(b"\n".join(line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines))
    return file


@pytest.mark.heavy
def test_a_traced_answer_adds_up_to_its_statistics_and_is_readable(folder: Path, localspec: Program, tmp_path: Path):
    file = tmp_path / "answer.jsonl"
    words = ("run", folder, "Hello hello hello", "--draft", "lookup+early-exit:1", "--k", "3", "--temperature", "0")
    code, _, err = localspec(*words, "--max-tokens", "24", "--stats", "--quant", "fp32", "--trace", file)
    assert code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    head, *rounds, end = read_trace(file)
    assert isinstance(head, TraceHead)
    assert (head.model, head.quant, head.drafter, head.k) == ("tiny", "fp32", "lookup+early-exit:1", 3)
    assert isinstance(end, TraceEnd)
    stats = json.loads(err.splitlines()[-1])
    each = [one for one in rounds if isinstance(one, TracedRound)]
    assert sum(one.count("accepted") for one in each) == stats["draft_n_accepted"]
    assert sum(one.count("rejected") for one in each) == stats["draft_n_rejected"]
    assert sum(one.count("ignored") for one in each) == stats["draft_n_ignored"]
    assert sum(one.count("accepted") + (one.own is not None) for one in each) == stats["predicted_n"]
    assert {proposed.drafter for one in each for proposed in one.proposed} <= {"lookup", "early-exit"}
    assert all(proposed.p_target is not None for one in each for proposed in one.proposed)
    code, out, _ = localspec("trace", file)
    assert code == 0
    assert f"{stats['predicted_n']} tokens in {len(each)} rounds" in out
    assert max(map(len, out.splitlines())) <= WIDTH


def test_a_file_that_is_there_is_not_overwritten_and_one_that_got_nothing_is_deleted(
    folder: Path, localspec: Program, tmp_path: Path
):
    file = tmp_path / "mine.txt"
    file.write_text("precious")
    code, _, err = localspec("run", folder, "hi", "--trace", file)
    assert (code, file.read_text()) == (2, "precious")
    assert "already exists" in err
    code, _, err = localspec("run", folder, "hi", "--trace", tmp_path / "no" / "x.jsonl")
    assert code == 2
    assert "There is no folder" in err
    code, _, _ = localspec("run", tmp_path / "no-model", "hi", "--trace", tmp_path / "x.jsonl")
    assert code == 3
    assert not (tmp_path / "x.jsonl").exists()


def test_what_is_written_is_there_at_once_and_a_full_disk_is_a_sentence(tmp_path: Path):
    file = tmp_path / "x.jsonl"
    with new_trace(file) as trace:
        trace.write(HEAD)
        trace.write(LOOKED_UP)
        assert list(read_trace(file)) == [HEAD, LOOKED_UP]
    if os.path.exists("/dev/full"):
        with pytest.raises(DoesNotFit, match="the disk is full"), new_trace(Path("/dev/full")) as trace:
            trace.write(HEAD)


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "x.jsonl"
    monkeypatch.setattr(whole_file, "check_new", lambda file: file.write_text("another's"))
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(UsageError, match="cannot be written"), new_trace(file):
        pass
    assert file.read_text() == "another's"


def test_the_text_has_figures_tokens_origin_and_the_sums_of_each_drafter():
    assert list(trace_lines([HEAD, LOOKED_UP, PLAIN, TraceEnd("length")])) == [
        "tiny · int8 · cpu · drafted by lookup, k 4 · temperature 0.0",
        "     1  look-up + draft model, 1 of 3 accepted, 0.5 + 12.2 ms, class 3, from the",
        '        file "notes.txt" at token 17',
        '        accepted: " a" (–/97%)',
        '        rejected: "\\n␛[31m" (–/2%)',
        '        not tested: "c"',
        '        instead: " d"',
        '     2  plain, 10.0 ms: " plain"',
        "",
        "3 tokens in 2 rounds, 1 with a draft; drafting 0.5 ms, verifying 22.2 ms",
        "",
        "drafter         drafted  accepted  rejected  not tested  of tested",
        "look-up               2         1         1           0        50%",
        "draft model           1         0         0           1          –",
        "",
        "It ended because it reached max_tokens, the limit that was set.",
    ]


def test_a_trace_without_an_end_says_so_and_no_line_is_wider_than_the_page():
    long = TracedRound(tuple(Proposed(1, "x" * 30, "lookup", "accepted") for _ in range(16)), None, 1.0, 1.0, 0)
    lines = list(trace_lines([HEAD, long]))
    assert lines[-1] == "The trace ends here: the program was killed, or still writes."
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "it is empty"),
        ([b"hello"], "line 1 is not a record"),
        ([b"\xff\xfe"], "line 1 is not a record"),
        ([b"\x00" * (1 << 21)], "line 1 is not a record"),
        ([b'{"type":"step"}'], "line 1 is not a record"),
        ([PLAIN], "its first line does not begin one"),
        ([HEAD, HEAD], "line 2 begins another"),
        ([HEAD, PLAIN, b'{"type":"round","proposed":[\n'], "line 3 is not a record"),
        ([HEAD, PLAIN, b'{"type":"round"}'], "line 3 is not a record"),
        ([HEAD, TraceEnd("stop"), PLAIN], "line 3 comes after its end"),
        ([msgspec.structs.replace(HEAD, version=2)], "is a trace of version 2"),
        ([b'{"type":"trace","version":3,"renamed":true}'], "is a trace of version 3"),
    ],
)
def test_what_is_no_trace_is_one_sentence(lines: list[Any], named: str, localspec: Program, tmp_path: Path):
    code, _, err = localspec("trace", written(tmp_path / "x.jsonl", *lines))
    assert code == 2
    assert named in err
    assert len(err.splitlines()) == 1


def test_what_cannot_be_read_is_one_sentence(localspec: Program, tmp_path: Path):
    for file, named in ((tmp_path / "none", "There is no file"), (tmp_path, "it is a folder")):
        code, _, err = localspec("trace", file)
        assert (code, len(err.splitlines())) == (2, 1)
        assert named in err


def test_what_a_killed_program_wrote_is_shown_but_for_a_cut_line(localspec: Program, tmp_path: Path):
    code, out, _ = localspec("trace", written(tmp_path / "x.jsonl", HEAD, PLAIN, b'{"type":"round","proposed":['))
    assert code == 0
    assert "1 tokens in 1 rounds" in out
    assert "the program was killed" in out


def test_a_stop_string_in_mid_draft_leaves_the_rest_untested():
    """The Step says what stands: the round had accepted three, and the text ends after the first."""
    tokenizer = byte_level(*SPECIALS)
    known = DraftProbabilities((None, 0.5, 0.5), (0.9, 0.8, 0.7))
    offer = Offer("lookup", 3, (5, 6, 7), 9, Origin("conversation", position=4))
    kinds = ("lookup", "model", "model")
    done = Round((5, 6, 7, 8), (5, 6, 7), 3, 0.0, 0.0, probabilities=known, drafters=kinds, choice=Choice(3, offer))
    step = Step("draft", (Token(5, "x", "draft", 0),), drafted=3, accepted=1, ignored=2)
    found = traced(done, step, tokenizer)
    assert [(one.outcome, one.drafter) for one in found.proposed] == [
        ("accepted", "lookup"), ("ignored", "model"), ("ignored", "model")
    ]  # fmt: skip
    assert [(one.p_drafter, one.p_target) for one in found.proposed] == [(None, 0.9), (0.5, 0.8), (0.5, 0.7)]
    assert (found.own, found.bucket, found.origin) == (None, 9, offer.origin)


def test_of_a_grafted_draft_class_and_origin_are_those_of_what_was_grafted():
    tokenizer = byte_level(*SPECIALS)
    looked_up, model = Offer("lookup", 3, (5, 6, 7), 9, Origin("file", "a.txt", 4)), Offer("model", 8)
    step = Step("draft", (), drafted=2, accepted=0, ignored=2)
    for kinds, bucket, origin in ((("model", "lookup"), 9, looked_up.origin), (("model", "model"), 0, None)):
        done = Round((8,), (5, 6), 0, 0.0, 0.0, drafters=kinds, choice=Choice(1, model, looked_up))
        found = traced(done, step, tokenizer)
        assert (found.bucket, found.origin) == (bucket, origin)
