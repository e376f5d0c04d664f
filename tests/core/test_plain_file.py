"""A fifo, a socket or a device in place of any file of ours: an answer or one sentence at once, never a wait."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NoReturn, TypeVar

import pytest

from localspec.config import reading
from localspec.core import calibration, paths, self_check_results, strict_json
from localspec.core.errors import CatalogError, CheckpointError, HistoryError, UsageError
from localspec.core.plain_file import plain
from localspec.engine.cpu import program
from localspec.history import History, peek
from localspec.hub import login
from localspec.models import checkpoint, hub_cache, named_templates
from localspec.models.catalog import Catalog
from localspec.models.safetensors_index import read_header
from localspec.runtime import failures
from localspec.tui import themes
from localspec.tui.chat import attachments as attaching
from localspec.tui.chat import chosen_formats, hints
from localspec.tui.terminal import clipboard
from tests.support.tokenizers import gpt2_like, write_snapshot

T = TypeVar("T")
HANG = 60  # seconds; nothing here takes one
COMMIT = "1" * 40


def device(path: Path) -> None:
    path.symlink_to("/dev/null")  # not /dev/zero: without the check a test would fill the memory


def listening(path: Path) -> None:
    """The name of a socket must be short: it is bound from within its folder."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


NO_FILES = [os.mkfifo, listening, device]


def at_once(call: Callable[[], T]) -> T:
    """What a call returns or raises; a test fails, and does not hang, where it waits."""
    done: SimpleQueue[Callable[[], T]] = SimpleQueue()

    def run() -> None:
        try:
            found = call()
        except Exception as fault:
            done.put(partial(raised, fault))
        else:
            done.put(lambda: found)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.get(timeout=HANG)()
    except Empty:
        pytest.fail("it waits")


def raised(fault: Exception) -> NoReturn:
    raise fault


def opened(path: Path) -> None:
    with History(path):
        pass


def listed_models(_: Path) -> None:
    Catalog.load()


QUIET: dict[str, tuple[Callable[[], Path], Callable[[Path], object], object]] = {
    "what was measured": (paths.calibration_file, lambda _: calibration.STORE.read(), {}),
    "what was checked": (paths.self_checks_file, lambda _: self_check_results.STORE.read(), {}),
    "what was explained": (paths.hints_file, lambda _: hints.STORE.read(), {}),
    "a format that was chosen": (paths.chosen_formats_file, lambda _: chosen_formats.read(), {}),
    "the engine's log": (paths.engine_log, lambda _: failures.log_file(), os.devnull),
    "compiled code": (lambda: paths.compiled_dir() / "x.bin", program.read, None),
    "a token of the hub": (lambda: hub_cache.home() / "token", lambda _: login.saved_token(), ""),
    "a ref of the hub": (lambda: hub_cache.folder() / "models--a/refs/main", lambda _: hub_cache.snapshot("a"), None),
    "the chats, looked at": (paths.history_file, peek, []),
}
REFUSED: dict[str, tuple[Callable[[], Path], Callable[[Path], object], type[Exception]]] = {
    "settings": (paths.config_file, reading.read, UsageError),
    "the user's models": (paths.models_file, listed_models, CatalogError),
    "the chats": (paths.history_file, opened, HistoryError),
    "an attachment": (lambda: Path("x.txt"), lambda path: attaching.from_file(str(path)), UsageError),
    "JSON of a model": (lambda: Path("x.json"), lambda path: strict_json.read_object(path, 100), CheckpointError),
    "a tokenizer": (lambda: Path("tokenizer.json"), lambda path: strict_json.read_text(path, 100), CheckpointError),
    "weights": (lambda: Path("x.safetensors"), read_header, CheckpointError),
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)


def in_place_of(path: Path, make: Callable[[Path], object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    return path


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("name", QUIET)
def test_what_can_be_made_again_is_as_if_it_were_not_there(name: str, make: Callable[[Path], object]) -> None:
    where, call, expected = QUIET[name]
    path = in_place_of(where(), make)
    assert at_once(lambda: call(path)) == expected


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_the_users_is_one_sentence(name: str, make: Callable[[Path], object]) -> None:
    where, call, kind = REFUSED[name]
    path = in_place_of(where(), make)
    with pytest.raises(kind, match=f"{path.name}.*is not a file") as met:
        at_once(lambda: call(path))
    assert met.value.hint  # type: ignore[attr-defined]


def terabyte(path: Path) -> None:
    """Of zeros, which take no room on the disk."""
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("name", sorted(QUIET.keys() - {"the engine's log", "compiled code", "the chats, looked at"}))
def test_what_can_be_made_again_and_is_huge_is_as_if_it_were_not_there(name: str) -> None:
    where, call, expected = QUIET[name]
    path = in_place_of(where(), terabyte)
    assert at_once(lambda: call(path)) == expected


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"the chats", "weights"}))
def test_what_is_the_users_and_huge_is_one_sentence(name: str) -> None:
    where, call, kind = REFUSED[name]
    path = in_place_of(where(), terabyte)
    with pytest.raises(kind, match=f"{path.name}.*(too large|larger than)") as met:
        at_once(lambda: call(path))
    assert met.value.hint  # type: ignore[attr-defined]


def test_a_theme_that_is_huge_is_left_out() -> None:
    in_place_of(paths.themes_dir() / "mine.toml", terabyte)
    found = at_once(lambda: themes.user_themes(paths.themes_dir()))
    assert isinstance(found, tuple)
    assert [notice.message for notice in found[1]] == [
        "The theme mine.toml is left out: it is larger than 1,048,576 bytes."
    ]


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("ending", ["-wal", "-journal", ".lock"])
def test_a_file_beside_the_chats_is_one_sentence(ending: str, make: Callable[[Path], object]) -> None:
    chats = paths.history_file()
    opened(chats)
    in_place_of(chats.with_name(chats.name + ending), make)
    with pytest.raises(HistoryError, match="is not a file"):
        at_once(lambda: opened(chats))


@pytest.mark.parametrize("make", NO_FILES)
def test_a_theme_that_is_no_file_is_left_out(make: Callable[[Path], object]) -> None:
    in_place_of(paths.themes_dir() / "mine.toml", make)
    found = at_once(lambda: themes.user_themes(paths.themes_dir()))
    assert isinstance(found, tuple)
    assert [notice.message for notice in found[1]] == ["The theme mine.toml is left out: it is not a file."]


@pytest.mark.parametrize("make", NO_FILES)
def test_a_template_that_is_no_file_is_one_sentence(make: Callable[[Path], object]) -> None:
    in_place_of(Path("mine.jinja"), make)
    with pytest.raises(UsageError, match=r"There is no template 'mine\.jinja'"):
        at_once(lambda: named_templates.find("mine.jinja"))


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_a_model_whose_file_is_none_is_one_sentence(name: str, make: Callable[[Path], object], tmp_path: Path) -> None:
    folder = write_snapshot(tmp_path / "model", tokenizer=gpt2_like())
    in_place_of(folder / name, make)
    with pytest.raises(CheckpointError, match=f"{name} cannot be read \\(it is not a file\\)"):
        at_once(lambda: checkpoint.open_snapshot(folder).read_tokenizer())


@pytest.mark.parametrize("make", NO_FILES)
def test_what_is_written_takes_its_place(make: Callable[[Path], object]) -> None:
    """A new file under another name, moved there: nothing is opened to be written that is there already."""
    in_place_of(paths.copied_file(), make)
    at_once(lambda: clipboard.keep("words"))
    assert paths.copied_file().read_text() == "words"
    in_place_of(paths.calibration_file(), make)
    assert at_once(lambda: calibration.remember("key", exit_layer=2))
    assert calibration.recall("key").exit_layer == 2


def test_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("words")
    (tmp_path / "link").symlink_to("real")
    assert plain(tmp_path / "link").read_text() == "words"
    with pytest.raises(FileNotFoundError):
        plain(tmp_path / "none")
