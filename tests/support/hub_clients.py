"""Clients of a fake hub inside the test's own process, and repositories for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.hub.client import Client
from localspec.hub.login import Login
from localspec.models import hub_cache
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.fake_hub.weights import safetensors

GUIDE = Path(__file__).parents[2] / "assets" / "guide"
SECONDS = 5.0  # no test waits for it: what hangs is given less
WAITS = (0.01, 0.01, 0.01)


def client_of(hub: FakeHub, *, seconds: float = SECONDS, logged_in: bool = True, hides_saved: bool = False) -> Client:
    """A client with the login of the hub's only account."""
    token = hub.account.token if hub.account and logged_in else ""
    login = Login(token, "HF_TOKEN" if token else "", hides_saved)
    return Client(hub.endpoint, login, seconds=seconds, answer_seconds=seconds, waits=WAITS)


@contextmanager
def library_online() -> Iterator[None]:
    """The tests run under HF_HUB_OFFLINE, which the library read when it was imported; the fake hub is on this
    machine."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(constants, "HF_HUB_OFFLINE", False)
        patched.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        patched.setenv("NO_PROXY", "*")
        close_session()
        try:
            yield
        finally:
            close_session()


def guide(name: str = "org/guide", **facts: Any) -> FakeRepository:
    return FakeRepository.from_folder(name, GUIDE / "target", **facts)


def guide_draft(name: str = "org/small", **facts: Any) -> FakeRepository:
    return FakeRepository.from_folder(name, GUIDE / "draft", **facts)


def shallow_draft(name: str, layers: int, **facts: Any) -> FakeRepository:
    """The guide's draft model with its first layers alone."""
    from safetensors.torch import load, save

    files = guide_draft().files
    config = json.loads((GUIDE / "draft" / "config.json").read_bytes()) | {"num_hidden_layers": layers}
    tensors = load((GUIDE / "draft" / "model.safetensors").read_bytes())
    beyond = tuple(f"model.layers.{layer}." for layer in range(layers, 100))
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(beyond)}
    new = {"config.json": json.dumps(config).encode(), "model.safetensors": save(kept)}
    return FakeRepository(name, {**files, **new}, **facts)


def in_cache(repo: str, folder: Path, commit: str = "a" * 40) -> None:
    """A repository on this machine, as the hub's library leaves it."""
    kept = hub_cache.kept(repo)
    shutil.copytree(folder, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)


def in_shards(folder: Path, into: Path) -> Path:
    """A copy of a model whose weights are in two shards, with an index."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, into)
    tensors = load_file(into / "model.safetensors")
    (into / "model.safetensors").unlink()
    names = sorted(tensors)
    where = {name: f"model-0000{1 + (index % 2)}-of-00002.safetensors" for index, name in enumerate(names)}
    for shard in sorted(set(where.values())):
        save_file({name: tensors[name] for name in names if where[name] == shard}, into / shard)
    (into / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return into


def small_model(**changes: Any) -> dict[str, bytes]:
    """The guide's small files with other weights, which are refused or never read; its config and files may be
    changed, and files left out by None."""
    config = json.loads((GUIDE / "target" / "config.json").read_bytes()) | changes.pop("config", {})
    files = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": (GUIDE / "target" / "tokenizer.json").read_bytes(),
        "model.safetensors": safetensors(w=("BF16", 500, 256)),
        **changes,
    }
    return {path: content for path, content in files.items() if content is not None}
