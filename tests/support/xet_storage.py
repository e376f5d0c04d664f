"""Xet's storage in a folder, as hf_xet itself keeps one: what is put there is downloaded by Xet, without a server.

A machine for which there is no hf_xet skips the tests that ask for it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_hub import FakeFile, FakeHub, FakeRepository
from tests.support.fake_hub.repository import open_content


def stored_by_xet(hub: FakeHub, repository: FakeRepository, folder: Path) -> FakeRepository:
    """The repository with its LFS files in a storage below this folder, which the hub names."""
    hub.switches.cas = f"local://{folder / 'cas'}"
    files = [file for file in repository.tree.values() if file.is_lfs]
    return hub.push(replace(repository, xet={file.path: put(hub.switches.cas, file, folder) for file in files}))


def put(cas: str, file: FakeFile, folder: Path) -> str:
    """Uploads a file; the hash that names it there."""
    hf_xet = pytest.importorskip("hf_xet")
    source = folder / file.sha256
    with open_content(file.content) as content:
        source.write_bytes(content.read())
    with hf_xet.XetSession().new_upload_commit(endpoint=cas) as commit:
        handle = commit.start_upload_file(str(source))
    source.unlink()
    return str(handle.result().xet_info.hash)
