"""`localspec history …`: what it prints where, and one sentence with the next command for whatever is wrong."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from localspec.cli import history as cli_history
from localspec.cli.main import main
from localspec.core import paths
from localspec.core.errors import UPDATE
from localspec.history import FORMATS, Attachment, History, NewChat, StoredMessage
from tests.support.chats import WholeChat, answer, chat, old_file, reply
from tests.support.scripted_engine import step

pytestmark = pytest.mark.heavy

HOSTILE = "a\x1b]52;c;aGk=\x07b\x9b31m\x7f\u202ec\x1b[2J\x00[/nope]\U000e0041"
DRIVES_TERMINALS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Program = Callable[..., Done]


@pytest.fixture
def localspec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    def program(*words: str, typed: str | None = None) -> Done:
        """`typed`: on a terminal, these keys."""
        stdin = io.TextIOWrapper(io.BytesIO((typed or "").encode()))
        if typed is not None:
            monkeypatch.setattr(stdin, "isatty", lambda: True)
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "argv", ["localspec", "history", *words])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Done(left.value.code, shown.out, shown.err)

    return program


@pytest.fixture
def tale(history: History) -> StoredMessage:
    """A chat with a branch that is not shown; the answer's."""
    question = history.begin(NewChat("guide", "A tale", system="Be brief."), "Once?")
    reply(history, question, "another branch")
    written = reply(history, question, "")
    history.save(written.id, answer(finish="cancelled"))
    return written


def masked(text: str) -> str:
    """Times are the clock's."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)


def sentence(done: Done, code: int) -> str:
    """The error, which is one line, and all there is."""
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    return done.err


# --- ls


def test_chats_are_listed_with_the_one_used_last_first(localspec: Program, history: History):
    ids = [chat(history, text, "Yes.")[0].chat_id for text in ("What is a drafter?", "天气怎么样？", "Again")]
    history.change(ids[0], pinned=True)
    done = localspec("ls")
    head, *lines = masked(done.out).splitlines()
    assert head.split() == ["ID", "LAST", "USED", "MESSAGES", "MODEL", "TITLE"]
    assert [line.split(maxsplit=4) for line in lines] == [
        [ids[2][:4], "TIME", "2", "guide", "Again"],
        [ids[1][:4], "TIME", "2", "guide", "天气怎么样？"],
        [ids[0][:4], "TIME", "2", "guide", "What is a drafter?"],
    ]
    assert (done.code, done.err) == (0, "")


def test_a_list_that_is_cut_says_how_to_see_the_rest(localspec: Program, history: History):
    for number in range(23):
        chat(history, f"Chat {number}")
    done = localspec("ls")
    assert len(done.out.splitlines()) == 1 + 20
    assert done.err == "20 of 23 chats are shown. Show all: localspec history ls -n 23\n"
    assert len(localspec("ls", "-n", "23").out.splitlines()) == 1 + 23
    assert localspec("ls", "-n", "23").err == ""
    assert len(json.loads(localspec("ls", "-n", "3", "--json").out)) == 3


def test_an_id_is_as_short_as_tells_it_from_all_others_and_opens_its_chat(localspec: Program, history: History):
    for number, own in enumerate(("abcdef0000", "abcdeg0000", "zzzzzzzzzz")):
        made = chat(history, f"Chat {number}")[0]
        history._database.write(lambda db, own=own, made=made: rename(db, made.chat_id, own))
    ids = [line.split()[0] for line in localspec("ls", "-n", "1").out.splitlines()]
    assert ids == ["ID", "zzzzzz"]
    assert "Chat 1" in localspec("show", "ABCDEG").out


def rename(db: sqlite3.Connection, old: str, new: str) -> None:
    db.execute("PRAGMA defer_foreign_keys = ON")
    db.execute("UPDATE conversation SET id = ? WHERE id = ?", (new, old))
    db.execute("UPDATE message SET conversation_id = ? WHERE conversation_id = ?", (new, old))


def test_json_lists_every_field(localspec: Program, history: History, tale: StoredMessage):
    (listed,) = json.loads(localspec("ls", "--json").out)
    assert listed == msgspec.to_builtins(history.open(tale.chat_id).chat)


# --- show

SHOWN = """\
A tale
{id} · guide · TIME · 2 messages

▌System
Be brief.

▌You  TIME
Once?

▌guide (stopped)  2/2  TIME
Drafts it.
(88.9 tok/s · 67 % accepted · ×– · 4 tok)

1 other branch is left out. To have all: localspec history export {id} --format json
"""


def test_a_chat_is_shown_as_it_was_left(localspec: Program, tale: StoredMessage):
    done = localspec("show", tale.chat_id[:5])
    assert masked(done.out) == SHOWN.format(id=tale.chat_id)
    assert (done.code, done.err) == (0, "")


def test_a_chat_taken_back_to_its_beginning_is_shown_as_its_newest_branch(
    localspec: Program, history: History, tale: StoredMessage
):
    """It said "0 messages" and nothing else."""
    whole = localspec("show", tale.chat_id).out
    history.set_head(tale.chat_id, None)
    assert localspec("show", tale.chat_id).out == whole
    assert "Drafts it.\n1--2--!--." in localspec("show", tale.chat_id, "--tokens").out
    assert "Drafts it." in localspec("export", tale.chat_id).out


def test_an_edited_answer_says_so_and_its_tokens_are_marked(localspec: Program, history: History):
    asked = chat(history, "Once?")[0]
    made = history.append(StoredMessage.unsaved(asked.chat_id, "assistant", "My own.", asked.id, edited=len("My own.")))
    assert "▌Assistant (edited)  " in localspec("show", asked.chat_id).out
    assert "My own.\n*-*---" in localspec("show", asked.chat_id, "--tokens").out
    history.save(made.id, answer("My own. Drafts it.", rounds=(step(" Drafts", " it", "."),)))
    shown = localspec("show", asked.chat_id, "--tokens").out
    assert "▌guide (edited)  " in shown
    assert "My own. Drafts it.\n*-*----1------2--!" in shown
    assert "* edited by you" in shown


def test_what_was_attached_and_a_chat_that_ends_nowhere_are_shown(localspec: Program, history: History):
    made = history.begin(NewChat("guide", " "), "\n", attachments=(Attachment(path="notes\n.txt", text="hidden"),))
    shown = localspec("show", made.chat_id).out
    assert "attached: notes .txt" in shown
    assert shown.startswith("Untitled\n")
    history.delete_message(made.id)
    assert "0 messages" in localspec("show", made.chat_id, "--tokens").out


def test_below_each_token_stands_who_wrote_it(localspec: Program, tale: StoredMessage):
    shown = localspec("show", tale.chat_id, "--tokens").out
    assert "Drafts it.\n1--2--!--.\n(88.9" in shown
    assert "1, 2, 3 … drafted" in shown
    assert "Once?\n\n" in shown


def test_marks_stay_below_their_tokens_whatever_the_text(
    localspec: Program, history: History, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "12")
    rounds = (step("今", "天 e\u0301", "\n"), step("\t\x1bx", accepted=0), step("long enough", " to wrap"))
    text = "".join(part.text for part in rounds)
    written = chat(history, "Go on.", "")[-1]
    history.save(written.id, answer(f"before {text}", rounds=rounds))
    shown = localspec("show", written.chat_id, "--tokens").out
    drawn = shown[shown.index("before 今") : shown.rindex("(")]
    assert drawn.splitlines() == [
        "before 今天 ",
        "       1-2--",
        "e\u0301↵",
        "-!",
        "    ␛xlong e",
        ".-----1-----",
        "nough to wra",
        "-----!------",
        "p",
        "-",
    ]


def test_rounds_that_are_not_the_text_s_mark_nothing(localspec: Program, history: History):
    written = chat(history, "Go on.", "")[-1]
    history.save(written.id, answer("Edited by hand."))
    assert "Edited by hand.\n(" in localspec("show", written.chat_id, "--tokens").out


# --- search


def test_hits_stand_below_their_chats(localspec: Program, history: History):
    first = chat(history, "What is a drafter?", "A drafter\ndrafts.", title="Speculation")[0].chat_id
    second = chat(history, "Nothing", title="The drafter")[0].chat_id
    done = localspec("search", "a", "draf")
    assert masked(done.out) == (
        f"{first[:4]}  TIME  Speculation\n    Answer: A drafter drafts.\n    You: What is a drafter?\n"
    )
    grouped = masked(localspec("search", "drafter").out)
    assert grouped.startswith(f"{second[:4]}  TIME  The drafter\n\n{first[:4]}  TIME  Speculation\n    Answer: ")
    assert [hit["role"] for hit in json.loads(localspec("search", "drafter", "--json").out)] == [
        None, "assistant", "user"
    ]  # fmt: skip


def test_a_search_that_was_cut_or_found_nothing_says_so(localspec: Program, history: History):
    chat(history, "needle", "needle", "needle")
    assert localspec("search", "needle", "-n", "2").err == "Only the first 2 hits are shown. Show more: -n 20\n"
    assert localspec("search", "needle").err == ""
    nothing = localspec("search", "xylophone")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.endswith("List all chats: localspec history ls\n")
    assert localspec("search", "xylophone", "--json").out == "[]\n"


@pytest.mark.parametrize("words", ['"', "*", "NEAR(", "'; DROP TABLE message; --", "a:b", "\udcff", "%"])
def test_no_words_are_an_error(localspec: Program, history: History, words: str):
    chat(history, "kept")
    assert localspec("search", "--", words).code == 0


# --- export


def test_an_export_is_the_library_s_and_goes_where_it_is_told(localspec: Program, tale: StoredMessage, tmp_path: Path):
    assert "\n## guide (stopped)\n\nDrafts it.\n" in localspec("export", tale.chat_id).out
    whole = localspec("export", tale.chat_id, "--format", "json")
    assert len(msgspec.json.decode(whole.out, type=WholeChat).messages) == 3
    assert len(localspec("export", tale.chat_id, "--format", "jsonl").out.splitlines()) == 3
    assert json.loads(localspec("export", tale.chat_id, "--format", "openai").out)["messages"][0]["role"] == "system"
    file = tmp_path / "tale.json"
    done = localspec("export", tale.chat_id, "--format", "json", "-o", str(file))
    assert (done.code, done.out, done.err) == (0, "", "")
    assert file.read_text(encoding="utf-8") == whole.out


def test_every_format_of_the_library_can_be_asked_for():
    assert tuple(cli_history.FORMATS) == FORMATS


def test_an_export_into_what_is_no_plain_file_does_not_replace_it(localspec: Program, tale: StoredMessage):
    assert localspec("export", tale.chat_id, "-o", os.devnull).code == 0
    assert not Path(os.devnull).is_file()


def test_an_export_through_a_link_leaves_the_link(localspec: Program, tale: StoredMessage, tmp_path: Path):
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    assert localspec("export", tale.chat_id, "-o", str(tmp_path / "link.md")).code == 0
    assert (tmp_path / "link.md").is_symlink()
    assert "Drafts it." in (tmp_path / "real.md").read_text(encoding="utf-8")


def test_a_pipe_gets_the_markdown_as_it_was_written(localspec: Program, history: History):
    said = chat(history, "\x1b[31mred\x1b[0m\u202e")[0]
    assert "\x1b[31mred\x1b[0m\u202e" in localspec("export", said.chat_id).out


def test_an_export_writes_over_no_file(localspec: Program, tale: StoredMessage, tmp_path: Path):
    file = tmp_path / "tale.md"
    file.write_text("mine")
    assert "already exists" in sentence(localspec("export", tale.chat_id, "-o", str(file)), 2)
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "code", "words"), [(errno.ENOSPC, 5, "the disk is full"), (errno.EACCES, 2, "cannot be written")]
)
def test_a_disk_that_refuses_an_export_is_a_sentence_and_leaves_no_file(
    localspec: Program, tale: StoredMessage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number, code, words
):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "tale.md"
    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    told = sentence(localspec("export", tale.chat_id, "-o", str(file)), code)
    assert str(file) in told
    assert words in told
    assert "another FILE." in told
    assert [each.name for each in tmp_path.glob("tale*")] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_a_sentence(localspec: Program, tale: StoredMessage):
    assert "the disk is full" in sentence(localspec("export", tale.chat_id, "-o", "/dev/full"), 5)


def test_a_folder_is_no_file_to_export_into(localspec: Program, tale: StoredMessage, tmp_path: Path):
    assert "cannot be written" in sentence(localspec("export", tale.chat_id, "-o", str(tmp_path)), 2)


# --- rm


def test_chats_that_are_named_are_deleted_together(localspec: Program, history: History):
    ids = [chat(history, text)[0].chat_id for text in "abc"]
    done = localspec("rm", ids[0], ids[1], ids[1][:6], "--yes")
    assert (done.code, done.out, done.err) == (0, "", "Deleted 2 chats.\n")
    assert [each.id for each in history.chats()] == [ids[2]]


def test_one_unknown_id_deletes_nothing(localspec: Program, history: History):
    kept = chat(history, "kept")[0].chat_id
    assert "'nope'" in sentence(localspec("rm", kept, "nope", "--yes"), 3)
    assert len(history.chats()) == 1


def test_all_are_deleted_also_those_that_are_pinned(localspec: Program, history: History):
    history.change(chat(history, "a")[0].chat_id, pinned=True)
    chat(history, "b")
    assert localspec("rm", "--all", "--yes").err == "Deleted 2 chats.\n"
    assert history.totals().chats == 0
    assert localspec("rm", "--all", "--yes").err == "There are no chats to delete.\n"


def test_copies_that_still_hold_chats_are_named(localspec: Program, history: History):
    chat(history, "a")
    copy = history.path.with_name("history.db.version-1-2026-11-21-10.30.00")
    copy.write_bytes(b"")
    assert str(copy) in localspec("rm", "--all", "--yes").err


@pytest.mark.parametrize(("typed", "left", "told"), [("y\n", 0, "Deleted 1 chat."), ("n\n", 1, "Nothing was deleted.")])
def test_it_asks_before_it_deletes(localspec: Program, history: History, typed: str, left: int, told: str):
    made = chat(history, "What is a drafter?", "It drafts.")[0]
    done = localspec("rm", made.chat_id, typed=typed)
    assert "What is a drafter?" in done.err
    assert "Delete 1 chat with 2 messages permanently? [y/N]:" in done.err
    assert done.err.splitlines()[-1].endswith(told)
    assert (done.code, len(history.chats())) == (0, left)


def test_no_answer_deletes_nothing(localspec: Program, history: History):
    chat(history, "kept")
    assert localspec("rm", "--all", typed="").code == 130
    assert len(history.chats()) == 1


def test_where_nobody_can_be_asked_it_is_refused(localspec: Program, history: History):
    chat(history, "kept")
    assert "add --yes to" in sentence(localspec("rm", "--all"), 2)
    assert len(history.chats()) == 1


@pytest.mark.parametrize("words", [(), ("--yes",), ("--all", "abcd", "--yes")])
def test_what_to_delete_is_said_once(localspec: Program, words: tuple[str, ...]):
    assert "localspec history rm" in sentence(localspec("rm", *words), 2)


# --- stats and path


def test_totals_are_per_model_with_rates(localspec: Program, history: History):
    for _ in range(2):
        given = answer().generation
        timed = replace(given, stats=replace(given.stats, speedup=1.78))
        history.save(chat(history, "Once?", "")[-1].id, replace(answer(), generation=timed))
    head, _, *table = localspec("stats").out.splitlines()
    assert re.fullmatch(r"2 chats · 4 messages · \d\.\d MB", head)
    assert [line.split() for line in table] == [
        ["MODEL", "DRAFT", "FORMAT", "ANSWERS", "TOKENS", "TOK/S", "ACCEPTED", "SPEED-UP"],
        ["guide", "guide-draft", "int8", "2", "8", "88.9", "67", "%", "×1.78"],
    ]
    (model,) = json.loads(localspec("stats", "--json").out)["models"]
    assert model["predicted_per_second"] == pytest.approx(88.9, abs=0.1)
    assert model["acceptance_rate"] == pytest.approx(2 / 3)
    assert model["speedup"] == pytest.approx(1.78)


def test_the_path_is_printed_even_where_the_file_is_rubbish(localspec: Program):
    path = paths.history_file()
    assert localspec("path").out == f"{path}\n"
    assert not path.exists()
    path.write_bytes(b"rubbish" * 1000)
    assert localspec("path").out == f"{path}\n"
    assert path.read_bytes() == b"rubbish" * 1000


# --- trouble


@pytest.mark.parametrize("words", ["show {}", "show {} --tokens", "export {}", "rm {} --yes"])
def test_an_id_that_is_nobody_s_or_several_s_is_a_sentence(localspec: Program, history: History, words: str):
    unknown = sentence(localspec(*words.format("nope").split()), 3)
    assert unknown == "error: There is no chat 'nope'. List the chats: localspec history ls\n"
    beginnings = [chat(history, f"{number}")[0].chat_id[0] for number in range(33)]  # of 32 letters
    twice = next(letter for letter in beginnings if beginnings.count(letter) > 1)
    several = sentence(localspec(*words.format(twice).split()), 3)
    assert several == f"error: Several chat ids begin with '{twice}'. List the chats: localspec history ls\n"
    assert len(history.chats()) == 33


@pytest.mark.parametrize(
    ("words", "out"), [("ls", ""), ("ls --json", "[]\n"), ("stats --json", None), ("stats", None), ("search x", "")]
)
def test_an_empty_history_is_no_error_and_says_what_to_do(localspec: Program, words: str, out: str | None):
    done = localspec(*words.split())
    assert done.code == 0
    assert out is None or done.out == out
    assert "localspec " in done.err or words == "stats --json"


EVERY = ["ls", "ls --json", "show abcd", "search word", "export abcd", "rm --all --yes", "stats"]


@pytest.mark.parametrize("words", EVERY)
def test_a_damaged_history_is_set_aside_and_said(localspec: Program, words: str):
    paths.history_file().write_bytes(b"rubbish" * 1000)
    done = localspec(*words.split())
    assert done.err.splitlines()[0].startswith("warning: The history was damaged and is now ")
    assert ".recover" in done.err
    assert done.code in (0, 3)


@pytest.mark.parametrize("words", EVERY)
def test_a_newer_history_is_a_sentence(localspec: Program, words: str):
    with History() as history:
        chat(history, "kept")
        history._database.write(lambda db: db.execute("PRAGMA user_version = 99"))
    told = sentence(localspec(*words.split()), 1)
    assert "newer localspec" in told
    assert UPDATE in told


@pytest.mark.parametrize("in_use", [False, True])
def test_reading_needs_no_leave_to_write(
    localspec: Program, history: History, in_use: bool, request: pytest.FixtureRequest
):
    """Also beside a program that has the history open, with its log."""
    asked = chat(history, "Who drafts?", "A word.")[0]
    if not in_use:
        history.close()
    request.getfixturevalue("read_only")
    for words in ("ls", "search word", f"show {asked.chat_id}", f"export {asked.chat_id}"):
        done = localspec(*words.split())
        assert (done.code, done.err, "Who drafts?" in done.out) == (0, "", True)
    assert localspec("stats").code == 0
    assert "read-only" in sentence(localspec("rm", "--all", "--yes"), 1)


@pytest.mark.usefixtures("read_only")
@pytest.mark.parametrize("words", EVERY)
def test_a_read_only_folder_without_a_history_is_a_sentence(localspec: Program, words: str):
    told = sentence(localspec(*words.split()), 1)
    assert "read-only" in told
    assert "(localspec chat --no-history), or set LOCALSPEC_DATA_DIR" in told


def test_bare_history_is_its_help(localspec: Program):
    bare = localspec()
    assert bare.code == 0
    assert bare.out == localspec("--help").out


PRINTING = ["ls", "ls --json", "search word", "show {}", "export {}", "export {} --format json", "stats", "path"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        *PRINTING,
        pytest.param("export {} -o /dev/stdout", marks=pytest.mark.skipif(os.name == "nt", reason="no /dev/stdout")),
    ],
)
def test_a_reader_that_left_ends_it_quietly(history: History, words: str):
    made = chat(history, "word " * 2000)[0]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "localspec", "history", *words.format(made.chat_id).split()]
    done = subprocess.run(command, check=False, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_number_that_is_out_of_range_is_a_sentence(localspec: Program):
    for words in ("ls -n 0", "search x -n 99999999999999999999"):
        assert "not in the range" in sentence(localspec(*words.split()), 2)


# --- hostile text


@pytest.fixture
def hostile(history: History) -> str:
    """A chat in which everything that can be text is hostile."""
    rounds = (step(HOSTILE, HOSTILE),)
    made = history.begin(
        NewChat(HOSTILE, HOSTILE, system=HOSTILE), f"word {HOSTILE}", attachments=(Attachment(path=HOSTILE),)
    )
    written = reply(history, made, "")
    given = answer(HOSTILE * 2, rounds=rounds)
    history.save(written.id, replace(given, generation=replace(given.generation, target=HOSTILE)))
    return made.chat_id


READING = ["ls", "ls --json", "show {}", "show {} --tokens", "search word", "search --json word", "stats"]
READING += ["stats --json", "path", *(f"export {{}} --format {kind}" for kind in ("json", "jsonl", "openai"))]


@pytest.mark.parametrize("words", READING)
def test_nothing_that_is_printed_drives_a_terminal(localspec: Program, hostile: str, words: str):
    done = localspec(*words.format(hostile).split())
    assert (done.code, done.err) == (0, "")
    assert DRIVES_TERMINALS.findall(done.out) == []


def test_nor_does_a_markdown_export_to_a_terminal(localspec: Program, hostile: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.cli.io.sys.stdout.isatty", lambda: True)
    done = localspec("export", hostile)
    assert DRIVES_TERMINALS.findall(done.out) == []
    assert "[/nope]" in done.out


def test_nor_does_the_question_before_a_deletion(localspec: Program, hostile: str):
    done = localspec("rm", hostile, typed="n\n")
    assert DRIVES_TERMINALS.findall(done.err) == []


def test_json_says_what_the_text_was(localspec: Program, hostile: str):
    (listed,) = json.loads(localspec("ls", "--json").out)
    assert listed["title"] == HOSTILE
    whole = json.loads(localspec("export", hostile, "--format", "json").out)
    assert whole["messages"][1]["message"]["content"] == HOSTILE * 2


def test_titles_that_are_no_time_no_model_and_no_end_are_lines_all_the_same(localspec: Program, history: History):
    made = chat(history, "x", title="long " * 5000)[0]
    history.change(made.chat_id, model_key="/a/folder" * 20)
    history._database.write(lambda db: db.execute("UPDATE conversation SET updated_at = 'yester\x1bday'"))
    (_, line) = localspec("ls").out.splitlines()
    assert "yester␛day" in line
    assert len(line) < 150


# --- the shell


def test_the_shell_completes_ids(history: History, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    made = chat(history, "A tale")[0]
    for name, value in {
        "_LOCALSPEC_COMPLETE": "zsh_complete",
        "COMP_WORDS": f"localspec history show {made.chat_id[:3]}",
        "COMP_CWORD": "3",
    }.items():
        monkeypatch.setenv(name, value)
    assert localspec().out == f"plain\n{made.chat_id}\nA tale\n"


def test_completion_leaves_the_history_as_it_is(history: History):
    made, path = chat(history, "A tale")[0], paths.history_file()

    def completed() -> list[str]:
        return [item.value for item in cli_history.completions(None, None, made.chat_id[:3])]  # type: ignore[arg-type]

    assert completed() == [made.chat_id], "while it is open, with a log beside it"
    history.close()
    for content, offered in ((path.read_bytes(), [made.chat_id]), (b"no database " * 99, []), (b"cut", [])):
        for left in path.parent.glob("*"):
            left.unlink()
        path.write_bytes(content)
        assert completed() == offered
        assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == {path.name: content}
    path.unlink()
    assert completed() == []
    assert not list(path.parent.iterdir()), "looking must not begin a history"


def test_completion_does_not_migrate():
    path = paths.history_file()
    old_file(path, 1, rows=True)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert cli_history.completions(None, None, "") == []  # type: ignore[arg-type]
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
