"""A fake hub and what a test of downloads needs around it, in this process: the library online, quick deadlines."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import close_session

from localspec.core.paths import packaged
from localspec.engine.arch import read_arch
from localspec.hub.process import HubProcess
from localspec.hub.records import Access, DraftOffer, Licence, PullPlan, RemoteFile, Repository
from localspec.hub.transfer import THREADS, TransferTimeouts
from localspec.loading.tensor_names import expected
from tests.support.fake_hub import Account, FakeHub, FakeRepository

ANA = Account()
MEBI = 1 << 20
NAME, WEIGHTS = "org/model", "model.safetensors"
INDEX = "model.safetensors.index.json"
QUICK = TransferTimeouts(silence=0.5, waits=(0.01, 0.01, 0.01), tick=0.01)
REST = "rotary_emb.inv_freq"  # old checkpoints carry it
CONFIG = {
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
SMALL = ("config.json", "tokenizer.json", "tokenizer_config.json")


@lru_cache(8)
def weights(num_bytes: int, seed: int = 0, name: str = REST, *, is_first: bool = True) -> bytes:
    """A safetensors file with so many random bytes of tensors, no two pieces of it alike: those of the model in the
    first one, and one that every loader leaves out."""
    header, end = {}, 0
    named = dict(expected(read_arch(CONFIG))) if is_first else {}
    for tensor, shape in (named | {name: ((num_bytes - sum(map(size, named.values()))) // 2,)}).items():
        start, end = end, end + size(shape)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    source = json.dumps(header).encode()
    return len(source).to_bytes(8, "little") + source + random.Random(seed).randbytes(num_bytes)


def size(shape: tuple[int, ...]) -> int:
    return 2 * prod(shape)


def model(name: str = NAME, *sizes: int, seed: int = 0) -> FakeRepository:
    """A model that localspec would load, by what it looks like: one shard of each size."""
    sizes = sizes or (3 * MEBI,)
    folder = packaged("assets/guide") / "draft"
    files: dict[str, bytes | Path] = {file: folder / file for file in SMALL}
    files["config.json"] = json.dumps(CONFIG).encode()
    if len(sizes) == 1:
        return FakeRepository(name, files | {WEIGHTS: weights(sizes[0], seed)})
    shards = {f"model-{at + 1:05}-of-{len(sizes):05}.safetensors": at for at in range(len(sizes))}
    files |= {shard: weights(sizes[at], seed + at, f"{at}.{REST}", is_first=not at) for shard, at in shards.items()}
    where = {f"{at}.{REST}": shard for shard, at in shards.items()}
    where |= dict.fromkeys(dict(expected(read_arch(CONFIG))), next(iter(shards)))
    index = {"metadata": {}, "weight_map": where}
    return FakeRepository(name, files | {INDEX: json.dumps(index).encode()})


def as_planned(fake: FakeRepository, revision: str = "") -> Repository:
    """The record of all its files, as a plan has it."""
    files = tuple(
        RemoteFile(one.path, one.size, one.sha256 if one.is_lfs else "", one.oid) for one in fake.tree.values()
    )
    return Repository(fake.name, revision, fake.commit, files, Licence(), Access())


def a_plan(fake: FakeRepository, drafter: FakeRepository | None = None, revision: str = "") -> PullPlan:
    target = as_planned(fake, revision)
    return PullPlan(target, as_planned(drafter) if drafter else None, DraftOffer("none"), None, 1 << 40, 0)


def cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Another cache than before, as on another machine."""
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub that this process and its children talk to. The library does not sleep before it tries again."""
    with FakeHub(model(), account=ANA) as running:
        for name, value in running.variables(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        clock = SimpleNamespace(sleep=lambda _: None, time=time.time)
        for module in ("file_download", "utils._http"):
            monkeypatch.setattr(f"huggingface_hub.{module}.time", clock)
        # To older versions of the library another port of the same host is the hub, and no CDN.
        running.switches.location = lambda address: address.replace("127.0.0.1", "localhost")
        close_session()
        yield running
    for thread in threading.enumerate():
        if thread.name == THREADS:  # a hub that is gone lets it go
            thread.join(20)
    close_session()


@pytest.fixture
def child(hub: FakeHub) -> Iterator[HubProcess]:
    """The hub's process, which talks to the fake hub."""
    assert hub
    with HubProcess(silence=20) as process:
        yield process
