"""A cache folder on a read-only disk: what is sound in it is used, all else bypassed, and nothing in it is changed.

The disk is simulated where Python writes, moves and removes files, as Linux answers on one that is mounted so: a root
user may write whatever the modes say.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any  # Any: what pathlib's methods are given

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from localspec.core.drain import drain
from localspec.core.events import AnyEvent, Notice
from localspec.core.requests import LoadRequest
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.isa import choose
from localspec.loading import weight_cache
from localspec.loading.cpu import Packer
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.kernels import compiled_engine, load_decoder
from localspec.loading.plan import Plan
from localspec.loading.weight_cache import CachedWeights
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load_events
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]


@pytest.fixture(scope="module")
def code() -> bytes:
    """The engine, compiled before any test turns its cache away."""
    program.load(choose())
    found = program.read(code_file())
    assert found is not None
    return found


def code_file() -> Path:
    file = program.cache_file(f"{choose().name}-{program.fingerprint(choose())}.bin")
    assert file is not None
    return file


@pytest.fixture
def made(code: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word each time that weights are packed, or code is compiled, which costs nothing here."""
    times, real = list[str](), Packer.pieces

    def building(*_: object) -> Iterator[tuple[int, int]]:
        times.append("code")
        yield 0, 4
        return code

    def pieces(self: Packer) -> Iterator[int]:
        times.append("weights")
        return real(self)

    monkeypatch.setattr(program, "LOADED", {})
    monkeypatch.setattr(program, "building", building)
    monkeypatch.setattr(Packer, "pieces", pieces)
    return times


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of its own, empty, and for models however small."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(weight_cache, "SMALLEST_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_snapshot(tmp_path / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>")


def seal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the folder is on a disk that can only be read."""

    def refuse(path: Path) -> None:
        if path.is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def guarded(name: str, writes: Callable[..., bool]) -> None:
        real = getattr(Path, name)

        def call(self: Path, *given: Any, **named: Any) -> Any:
            if writes(self, *given, **named):
                refuse(self)
            return real(self, *given, **named)

        monkeypatch.setattr(Path, name, call)

    opened = os.open

    def opening(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            refuse(Path(path))
        return opened(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", opening)
    guarded("open", lambda _, mode="r", *__, **___: bool(set(mode) & set("wax+")))
    guarded("mkdir", lambda self, *_, **__: not self.exists())
    for name in ("replace", "rename", "unlink", "touch", "rmdir"):
        guarded(name, lambda *_, **__: True)


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def flip(file: Path) -> None:
    """One bit, in the middle."""
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


# --- packed weights


def start(model: Path) -> tuple[Tensor, list[Notice]]:
    """What the model says, and what the user is told."""
    heard: list[AnyEvent] = []
    decoder = drain(load_decoder(open_snapshot(model), Plan(find_format("int8"), 64)), heard.append)
    assert isinstance(decoder, PackedDecoder)
    return decoder.forward(torch.arange(20)), [event for event in heard if isinstance(event, Notice)]


def damaged(file: Path, _: Path) -> None:
    flip(file)


def of_other_weights(_: Path, model: Path) -> None:
    """The model has changed since."""
    weights = model / "model.safetensors"
    save_file({**load_file(weights), "model.norm.weight": torch.arange(32.0)}, weights)


def under_this_ones_name(file: Path, model: Path) -> None:
    of_other_weights(file, model)
    snapshot = open_snapshot(model)
    file.rename(CachedWeights(snapshot, Blueprint(read_arch(snapshot.config), "int8")).file())


def gone(file: Path, _: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("spoil", [None, damaged, of_other_weights, under_this_ones_name, gone])
def test_packed_weights_that_can_only_be_read_are_used_if_sound_else_made_in_memory_with_one_notice(
    spoil: Callable[[Path, Path], None] | None,
    model: Path,
    cache: Path,
    made: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _ = start(model)
    (file,) = (cache / "packed").iterdir()
    if spoil:
        spoil(file, model)
    with monkeypatch.context() as alone:
        alone.setattr(weight_cache, "SMALLEST_BYTES", 1 << 40)  # no copy is read, none is written
        expected, _ = start(model)
    assert torch.equal(first, expected) == (spoil in (None, damaged, gone))
    before = contents(cache)
    made.clear()
    seal(cache, monkeypatch)
    for _ in range(2):
        logits, notices = start(model)
        assert torch.equal(logits, expected)
        assert [notice.code for notice in notices] == (["packed_copy"] if spoil else [])
        assert all("Read-only" in notice.message for notice in notices)
    assert made == (["weights"] * 2 if spoil else [])
    assert contents(cache) == before


# --- compiled code


def wake() -> list[Notice]:
    """A new process loads the engine; what the user is told."""
    program.LOADED.clear()
    heard: list[AnyEvent] = []
    assert drain(compiled_engine(), heard.append).isa == choose()
    return [event for event in heard if isinstance(event, Notice)]


def of_another_version(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sound checksum, of code that would not even load."""
    file.write_bytes(hashlib.sha256(b"old").digest() + b"old")
    monkeypatch.setattr(program, "version", lambda _: "99")


SPOILT: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "damaged": lambda file, _: flip(file),
    "cut": lambda file, _: file.write_bytes(file.read_bytes()[:-1]),
    "of another version": of_another_version,
    "gone": lambda file, _: file.unlink(),
}


@pytest.mark.parametrize("state", ["sound", *SPOILT])
def test_code_that_can_only_be_read_is_used_if_sound_else_compiled_in_memory_with_one_notice(
    state: str, cache: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wake() == []
    if state in SPOILT:
        SPOILT[state](code_file(), monkeypatch)
    before = contents(cache)
    made.clear()
    seal(cache, monkeypatch)
    for _ in range(2):
        assert [notice.code for notice in wake()] == (["cache"] if state in SPOILT else [])
    assert made == (["code"] * 2 if state in SPOILT else [])
    assert contents(cache) == before


# --- both


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("sound", [True, False])
def test_target_and_draft_say_at_most_once_what_cannot_be_kept(
    sound: bool, model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[str]:
        program.LOADED.clear()
        heard = load_events(LoadRequest.of(str(model), draft=str(model), quant="int8", threads=1))
        return [event.code for event in heard if isinstance(event, Notice) and event.code != "own_draft"]

    assert told() == []
    for file in contents(cache):
        if not sound:
            flip(file)
    seal(cache, monkeypatch)
    assert told() == ([] if sound else ["cache", "packed_copy"])
