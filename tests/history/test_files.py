"""What was acknowledged is kept, whatever happens to the program, the disk or the file; and trouble is one sentence."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import UPDATE, HistoryError, LocalspecError
from localspec.history import History, NewChat, open_file, schema
from tests.support.chats import MESSAGE, WRITER, answer, chat, child, contents, old_file, reply, sound

pytestmark = pytest.mark.heavy

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files, and strace")


@pytest.fixture
def path() -> Path:
    return paths.history_file()


def beside(path: Path, what: str) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.{what}*"))


def sentence(fault: pytest.ExceptionInfo[LocalspecError]) -> str:
    """The message, which is one sentence on one line, and says which file."""
    message = fault.value.message
    assert message.endswith(".")
    assert "\n" not in message
    assert str(paths.history_file()) in message
    assert fault.value.hint
    return message


# --- the program dies


def killed_while_writing(path: Path) -> list[str]:
    """What a writer had acknowledged when it was killed, from its first line on at some moment."""
    writer = child(WRITER, path, "line", 10_000)
    assert writer.stdout is not None
    with writer:
        first = writer.stdout.readline()
        time.sleep(random.uniform(0, 0.05))
        writer.kill()
        rest = writer.stdout.read()
    return (first + rest).split("\n")[:-1]  # a line that was cut was not acknowledged


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_what_a_killed_program_acknowledged_is_there(path: Path, kills: int):
    """G1: and at most one commit more, whose acknowledgement was cut off."""
    random.seed(1)
    for round_ in range(kills):
        here = path.with_name(f"{round_}.db")
        acknowledged = killed_while_writing(here)
        kept = contents(here)
        assert kept[: len(acknowledged)] == acknowledged
        assert len(kept) <= len(acknowledged) + 1
        assert sound(here)
        with History(here) as history:
            assert history.notices == ()
            assert len(history.open(history.chats()[0].id).branch) == len(kept)


@pytest.mark.parametrize("cuts", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_log_that_ends_anywhere_gives_the_commits_before_it(history: History, path: Path, cuts: int, tmp_path: Path):
    """G2: the power goes out while the log is being written."""
    random.seed(2)
    said = [message.content for message in chat(history, *map(str, range(30)))]
    log = path.with_name("history.db-wal").read_bytes()
    for cut in random.sample(range(len(log)), cuts):
        copy = tmp_path / "cut.db"
        shutil.copy(path, copy)
        copy.with_name("cut.db-wal").write_bytes(log[:cut])
        with History(copy) as other:
            assert not other.notices
        assert contents(copy) == said[: len(contents(copy))]
        assert sound(copy)
        for file in tmp_path.glob("cut.db*"):
            file.unlink()


def test_a_commit_waits_for_the_disk(history: History):
    """FULL: SQLite's own promise that the log is flushed with every commit; counted in the slow tests."""
    assert history._database.read("PRAGMA synchronous")[0][0] == 2
    assert history._database.read("PRAGMA journal_mode")[0][0] == "wal"
    assert history._database.read("PRAGMA foreign_keys")[0][0] == 1


@needs_linux
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_every_acknowledgement_comes_after_a_flush(path: Path, tmp_path: Path):
    trace, count = tmp_path / "trace", 50
    command = ["strace", "-f", "-o", trace, "-e", "trace=fsync,fdatasync,write", sys.executable, "-c", WRITER]
    subprocess.run([*command, path, "line", str(count)], check=True, capture_output=True)
    flushed = False
    acknowledged = 0
    for call in trace.read_text().splitlines():
        flushed |= "sync(" in call
        if 'write(1, "line' in call:
            assert flushed, call
            acknowledged, flushed = acknowledged + 1, False
    assert acknowledged == count


# --- two programs


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_two_programs_write_one_history_from_its_first_moment(path: Path, count: int):
    """G4: nothing lost, nobody is told "locked"."""
    writers = [child(WRITER, path, name, count) for name in ("one", "two")]
    ended = [(writer.communicate(), writer.returncode) for writer in writers]
    assert [(errors, code) for (_, errors), code in ended] == [("", 0)] * 2
    kept = contents(path)
    assert sorted(kept) == sorted(f"{name} {number}" for name in ("one", "two") for number in range(count))
    assert sound(path)


def test_what_another_program_writes_is_seen(history: History):
    question = chat(history, "Once?")[0]
    with History() as other:
        reply(other, question, "Upon a time.")
    assert [message.content for message in history.open(question.chat_id).branch] == ["Once?", "Upon a time."]


DELETER = """
import sys
from pathlib import Path
from localspec.history import History
with History(Path(sys.argv[1])) as history:
    history.delete(sys.argv[2])
"""


def test_a_second_look_at_an_open_history_does_not_unlock_it(path: Path):
    """The chat's sidebar opens the file that its writer has open. Closing any other handle on it would drop the
    writer's locks, and a program that leaves would take its log away: all that follows would go where nobody looks."""
    with History(path) as history:
        first, second = (chat(history, name)[0] for name in ("deleted", "kept"))
        History(path).close()
        for _ in range(2):
            leaving = child(DELETER, path, first.chat_id)
            leaving.communicate()
            assert path.with_name(f"{path.name}-wal").exists()
            first = chat(history, "deleted")[0]
        reply(history, second, "kept too")
    assert sound(path)
    with History(path) as again:
        assert again.notices == ()
        assert [message.content for message in again.open(second.chat_id).branch] == ["kept", "kept too"]


def test_a_program_that_does_not_let_go_is_a_sentence(history: History, path: Path):
    chat(history, "kept")
    history._database._db.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HistoryError, match="Another program") as fault:
        chat(history, "lost")
    assert sentence(fault)
    other.close()
    chat(history, "later")
    assert contents(path) == ["kept", "later"]


def test_programs_open_a_history_one_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else two that find it damaged would set aside each other's new one."""
    monkeypatch.setattr(open_file, "OPENING_SECONDS", 0.05)
    with open_file.opening_lock(path), pytest.raises(HistoryError, match="Another program") as fault:
        History()
    assert sentence(fault)
    History().close()


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be moved there")
@pytest.mark.parametrize("fate", [Path.unlink, lambda path: path.rename(path.with_name("elsewhere"))])
def test_a_file_that_was_moved_away_takes_no_more_acknowledgements(
    history: History, path: Path, fate: Callable[[Path], None]
):
    question = chat(history, "kept")[0]
    fate(path)
    with pytest.raises(HistoryError, match="moved or deleted") as fault:
        reply(history, question, "lost")
    assert sentence(fault)


def test_a_newer_program_that_takes_over_stops_us(history: History, path: Path):
    question = chat(history, "kept")[0]
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(HistoryError, match="newer localspec") as fault:
        reply(history, question, "lost")
    assert sentence(fault)
    assert contents(path) == ["kept"]


# --- the disk


def test_a_full_disk_is_a_sentence_and_costs_nothing_that_was_kept(history: History, path: Path):
    """G3: and when there is space again, it is used."""
    question, written = chat(history, "kept", "")
    for size in (5_000, 50_000, 500_000):
        (pages,) = history._database.read("PRAGMA page_count")[0]
        history._database.read(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(HistoryError, match="is full") as fault:
            history.save(written.id, answer("long " * size))
        assert sentence(fault)
        with pytest.raises(HistoryError, match="is full"):
            reply(history, question, "long " * size)
        assert sound(path)
        assert contents(path) == ["kept", ""]
        history._database.read("PRAGMA max_page_count = 1073741823")
    history.save(written.id, answer("short"))
    assert contents(path) == ["kept", "short"]


def no_room() -> sqlite3.OperationalError:
    fault = sqlite3.OperationalError("database or disk is full")
    fault.sqlite_errorcode = sqlite3.SQLITE_FULL
    return fault


@pytest.mark.parametrize("fault", [no_room(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["log", "lock"])
def test_a_history_on_a_disk_without_a_free_byte_can_be_read(
    fault: Exception, history: History, path: Path, monkeypatch: pytest.MonkeyPatch
):
    chat(history, "kept", "answer")
    history.close()

    def refuse(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("localspec.history.open_file.connect", refuse)
    with History(path, reading=True) as found:
        assert found.is_read_only
        assert [said.content for said in found.open(found.chats()[0].id).branch] == ["kept", "answer"]
    with pytest.raises(HistoryError, match="is full"):
        History(path)


@pytest.mark.parametrize("limits", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_page_costs_nothing_that_was_kept(history: History, path: Path, limits: int):
    """G3: what did not fit can be written as soon as there is space."""
    dice, kept = random.Random(limits), ["kept"]
    question = chat(history, "kept")[0]
    for number in range(limits):
        (pages,) = history._database.read("PRAGMA page_count")[0]
        history._database.read(f"PRAGMA max_page_count = {pages + dice.randrange(12)}")
        said = 0
        with pytest.raises(HistoryError, match="is full") as fault:  # noqa: PT012 - it fills up meanwhile
            while True:
                question = reply(history, question, f"{number} {said} " + "word " * dice.randrange(2000))
                kept.append(f"{number} {said}")
                said += 1
        assert sentence(fault)
        assert sound(path)
        assert [" ".join(text.split()[:2]) for text in contents(path)] == kept
        history._database.read("PRAGMA max_page_count = 1073741823")
        question = reply(history, question, f"{number} later")
        kept.append(f"{number} later")
    assert [" ".join(text.split()[:2]) for text in contents(path)] == kept


LIMITED = """
import resource, sys
from localspec.core.errors import HistoryError
from localspec.history import History, NewChat
with History() as history:
    history.begin(NewChat("guide"), "kept")
    wal = history.path.with_name("history.db-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 20_000, resource.RLIM_INFINITY))
    try:
        while True:
            history.begin(NewChat("guide"), "more " * 1000)
            print("acknowledged", flush=True)
    except HistoryError as fault:
        print(fault.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    history.begin(NewChat("guide"), "later")
"""


@needs_linux
def test_a_disk_that_refuses_a_write_is_a_sentence_and_the_next_write_works(path: Path):
    limited = child(LIMITED)
    out, errors = limited.communicate()
    assert (errors, limited.returncode) == ("", 0)
    *acknowledged, message = out.splitlines()
    assert message.startswith(f"The disk cannot read or write the history {path}")
    assert contents(path) == ["kept", *["more " * 1000] * len(acknowledged), "later"]
    assert sound(path)


def test_a_disk_that_became_read_only_is_a_sentence(history: History):
    question = chat(history, "kept")[0]
    history._database.read("PRAGMA query_only = ON")
    with pytest.raises(HistoryError, match="read-only") as fault:
        reply(history, question, "lost")
    assert sentence(fault)
    assert [message.content for message in history.open(question.chat_id).branch] == ["kept"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "read-only"),
        (errno.EACCES, "read-only"),
        (errno.ENOSPC, "is full"),
        (errno.EIO, "cannot be opened"),
    ],
)
def test_a_disk_that_refuses_the_file_is_a_sentence(monkeypatch: pytest.MonkeyPatch, number: int, words: str):
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    path = paths.history_file()
    monkeypatch.setattr(open_file.os, "open", refuse)
    with pytest.raises(HistoryError, match=words) as fault:
        History(path)
    assert sentence(fault)


def test_a_folder_in_the_place_of_the_file_is_a_sentence(path: Path):
    path.mkdir()
    with pytest.raises(HistoryError, match="cannot be opened") as fault:
        History()
    assert sentence(fault)


# --- the file


def filled(path: Path) -> bytes:
    with History(path) as history:
        for number in range(12):
            written = chat(history, f"question {number} " + "word " * 300, "")[-1]
            history.save(written.id, answer("said " * 500))
    return path.read_bytes()


def cut(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def torn(whole: bytes) -> bytes:
    return whole[:4096] + b"\xff" * 4096 * 4 + whole[4096 * 5 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "rubbish": lambda _: b"\x00\xff rubbish" * 1000,
    "a text": lambda _: b"Dear diary, today I had a chat with a model.\n" * 40,
    "one byte": lambda _: b"S",
    "cut in half": cut,
    "cut to its header": lambda whole: whole[:100],
    "torn": torn,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_set_aside_with_its_bytes_and_a_new_one_begins(path: Path, damage: Callable[[bytes], bytes]):
    broken = damage(filled(path))
    path.write_bytes(broken)
    with History() as history:
        (notice,) = history.notices
        (aside,) = [file for file in beside(path, "corrupt-20") if not file.name.endswith(("-wal", "-shm"))]
        assert str(aside) in notice.message
        assert (notice.level, notice.message.count("\n")) == ("warning", 0)
        assert aside.read_bytes() == broken
        assert history.chats() == []
        chat(history, "a new one")
    with History() as again:
        assert again.notices == ()
        assert len(again.chats()) == 1


def test_a_file_that_lacks_a_table_is_damaged(path: Path):
    filled(path)
    db = sqlite3.connect(path)
    db.execute("DROP TABLE attachment")
    db.close()
    with History() as history:
        assert [notice.code for notice in history.notices] == ["history_damaged"]


def test_a_second_damaged_file_does_not_take_the_first_one_s_name(path: Path):
    for number in range(3):
        path.write_bytes(b"rubbish %d" % number * 1000)
        History().close()
    assert len(beside(path, "corrupt-")) == 3


def test_a_file_that_was_cut_to_nothing_does_not_take_its_log_with_it(history: History, path: Path):
    """SQLite would begin anew and throw the log away."""
    chat(history, "only in the log")
    log = path.with_name("history.db-wal").read_bytes()
    with path.open("r+b") as file:
        file.truncate(0)
    with History() as again:
        assert again.notices
    (kept,) = [file for file in beside(path, "corrupt") if file.name.endswith("-wal")]
    assert kept.read_bytes() == log
    with pytest.raises(HistoryError):
        chat(history, "lost")


def test_an_empty_file_is_a_new_history(path: Path):
    path.touch()
    with History() as history:
        assert history.notices == ()
        chat(history, "begun")


@contextmanager
def one_line_at_worst() -> Iterator[None]:
    """What is raised is ours, and shorter than two lines; anything else passes, and fails the test."""
    try:
        yield
    except LocalspecError as fault:
        if "\n" in fault.message:
            pytest.fail(fault.message)


def use(history: History) -> None:
    """Everything a chat does; each may refuse in a sentence."""
    works: list[Callable[[], object]] = [
        history.totals,
        lambda: history.search("word"),
        lambda: [history.open(each.id) for each in history.chats()],
        lambda: [history.steps(number) for number in range(30)],
        lambda: history.begin(NewChat("guide"), "word"),
        lambda: history.save(2, answer()),
        lambda: history.delete_message(1),
        lambda: history.delete(history.chats()[-1].id),
    ]
    for work in works:
        with one_line_at_worst():
            work()


@pytest.mark.parametrize("flips", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_no_damage_is_ever_more_than_a_sentence(path: Path, flips: int):
    """G6: bytes of a page turned at random; the header included."""
    random.seed(6)
    whole = filled(path)
    for _ in range(flips):
        broken = bytearray(whole)
        page = random.randrange(len(whole) // 4096) * 4096
        for place in random.sample(range(4096), random.choice((1, 8, 512))):
            broken[page + place] = random.randrange(256)
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(broken)
        with one_line_at_worst(), History() as history:
            use(history)


# --- versions


def test_a_newer_file_is_refused_and_not_touched(path: Path):
    filled(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="newer localspec") as fault:
        History()
    assert sentence(fault)
    assert UPDATE in fault.value.hint
    assert path.read_bytes() == before
    assert beside(path, "corrupt") == []


@pytest.mark.parametrize("version", [0, 1, 99])
def test_another_program_s_file_is_refused_and_not_touched(path: Path, version: int):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE urls(url TEXT)")
    db.execute(f"PRAGMA user_version = {version}")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="belongs to another program") as fault:
        History()
    assert sentence(fault)
    assert path.read_bytes() == before


OLD = range(1, len(schema.MIGRATIONS))


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("version", OLD)
def test_an_older_file_is_brought_up_to_date_and_a_copy_of_it_stays(path: Path, version: int, rows: bool):
    old_file(path, version, rows=rows)
    with History() as history:
        assert len(history.chats()) == rows
        if rows:
            branch = history.open("old").branch
            assert [message.content for message in branch] == ["Once?", "Upon a time."]
            assert {message.edited for message in branch} == {0}, "nobody could edit an answer"
            assert {hit.message_id for hit in history.search("tale") + history.search("upon")} == {None, 2}
            assert [hit.message_id for hit in history.search("paste")] == [1]
        chat(history, "more")
    (copy,) = beside(path, f"version-{version}-")
    assert contents(copy) == ["Once?", "Upon a time."] * rows
    assert copy.stat().st_mode & 0o077 == 0
    with History():
        assert len(beside(path, "version-")) == 1


def test_every_old_version_and_a_new_file_end_with_the_same_tables(path: Path):
    def tables(file: Path) -> list[tuple[str, str]]:
        History(file).close()
        db = sqlite3.connect(file)
        try:
            return db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        finally:
            db.close()

    new = tables(path)
    for version in OLD:
        old = path.with_name(f"{version}.db")
        old_file(old, version, rows=True)
        assert tables(old) == new


def test_a_migration_that_fails_has_not_happened(path: Path, monkeypatch: pytest.MonkeyPatch):
    old_file(path, 1, rows=True)

    def fails(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM message")
        raise sqlite3.OperationalError("no")

    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, fails])
    with pytest.raises(HistoryError) as fault:
        History()
    assert sentence(fault)
    monkeypatch.undo()
    assert contents(path) == ["Once?", "Upon a time."]


DIES = """
import os, signal, sys
from localspec.history import History, schema
step = int(sys.argv[1])
schema.MIGRATIONS[step:step] = [lambda db: os.kill(os.getpid(), signal.SIGKILL)]
History()
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.parametrize("step", range(len(schema.MIGRATIONS) + 1))
def test_a_program_killed_between_two_steps_leaves_the_old_file(path: Path, step: int):
    """G5: whichever step it was at; the next start takes them all."""
    old_file(path, version := min(step, 1), rows=bool(version))
    dying = child(DIES, step)
    dying.communicate()
    assert dying.returncode == -9
    with History() as history:
        assert history.notices == ()
        assert len(history.chats()) == version
        chat(history, "more")
    assert sound(path)


STOPS = """
import os, signal, sqlite3, sys
from pathlib import Path
from localspec.history import History, open_file
from localspec.history.database import Connection

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(Connection):
    # After so many statements of a migration, or pages of the copy before it.
    statements = None

    def execute(self, sql, parameters=(), /):
        if sql == "BEGIN IMMEDIATE":
            Dying.statements = left
        if Dying.statements == 0:
            die()
        done = super().execute(sql, parameters)
        if Dying.statements is not None:
            Dying.statements -= 1
        return done

    def backup(self, target, **named):
        super().backup(target, pages=pages or -1, progress=lambda _, rest, whole: pages and rest and die())

def killed(path, statements, copied):
    global left, pages
    left, pages = statements, copied
    child = os.fork()
    if not child:
        History(path).close()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

database = sys.modules["localspec.history.database"]
database.Connection = Dying
top, name = Path(sys.argv[1]), sys.argv[2]
where = (lambda n: (None, n)) if name == "copy" else (lambda n: (n, None))
n = 1 if name == "copy" else 0
while killed(top / str(n) / "history.db", *where(n)):
    print(n, flush=True)
    n += 1
"""


SAID = ["Once?", "Upon a time.", "And then?"]


def with_a_log(path: Path, version: int, copies: int) -> list[Path]:
    """Old histories whose last row is in the log alone, as a program leaves it that was killed."""
    old_file(path, version, rows=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"INSERT INTO message{MESSAGE} VALUES (3, 'old', 2, 'user', 'And then?', 'done', '2026')")
    found = [path.parent / str(number) / path.name for number in range(copies)]
    for copy in found:
        copy.parent.mkdir()
        for part in ("", "-wal"):
            shutil.copy(f"{path}{part}", f"{copy}{part}")
    db.close()
    return found


@pytest.mark.sampled(3)
@pytest.mark.skipif(os.name == "nt", reason="fork, and SIGKILL")
@pytest.mark.parametrize("where", ["copy", "migration"])
@pytest.mark.parametrize("version", OLD)
def test_a_program_killed_at_any_statement_of_a_migration_costs_no_row(path: Path, version: int, where: str):
    """G5: before, between and after all that it executes, and while the file is copied before it."""
    files = with_a_log(path, version, 40)
    stopped = child(STOPS, path.parent, where)
    out, errors = stopped.communicate()
    assert (errors, stopped.returncode) == ("", 0)
    kills = [int(line) for line in out.split()]
    assert 5 < len(kills) < len(files) - 1
    for here in (files[number] for number in kills):
        with History(here) as history:
            assert history.notices == ()
            assert [said.content for said in history.open("old").tree.nodes.values()] == SAID
            assert {hit.message_id for hit in history.search("tale") + history.search("then")} == {None, 3}
            chat(history, "more")
        assert contents(here) == [*SAID, "more"]
        assert sound(here)
        assert list(here.parent.glob("*.copying*")) == []
        copies = [file for file in here.parent.glob("*.version-*") if not file.name.endswith(("-wal", "-shm"))]
        assert copies
        assert [contents(file) for file in copies] == [SAID] * len(copies)
