"""C1: a load for which no rung of the ladder has the memory leaves none of its weights behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

FAILURES = """
import sys
import psutil, torch
from localspec.loading import kernels
from localspec.runtime.api import load_events
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit
from localspec.loading.torch import Assembly
from localspec.loading.cpu import Packer
from localspec.core.requests import LoadRequest

folder, last, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
pack, rungs = Packer.linear, []

def linear(self, name, slabs):
    if name == last:
        rungs.append(self.blueprint.weight_format)
        raise torch.OutOfMemoryError("a planted one")
    return pack(self, name, slabs)

def stream(self, first):
    rungs.append(f"{first} layers")
    raise torch.OutOfMemoryError("a planted one")

Packer.linear, Assembly.stream = linear, stream
kernels.verify_config = lambda _: None  # it imports transformers

def left_after_a_failure():
    try:
        drain(load_events(LoadRequest.of(folder, draft="off", threads=1)))
    except DoesNotFit:
        return psutil.Process().memory_info().rss
    raise SystemExit("it was loaded")

print(*(left_after_a_failure() for _ in range(times)))
assert rungs == ["int8", "int4", "int4", f"{int(last.partition('.')[0])} layers"] * times, rungs
"""
LAYERS, TIMES = 8, 3
# glibc would keep what is freed for the next load, more or less of it.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 MB of float32: 50 MB in bf16, 25 MB in int8."""
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": LAYERS}
    where = tmp_path_factory.mktemp("models") / "hundred"
    return save_snapshot(where, gpt2_like(), template=CHATML, eos="<|im_end|>", **sizes)


@pytest.mark.slow
def test_after_a_load_that_failed_at_the_last_rung_memory_is_what_it_was(folder: Path, tmp_path: Path):
    """Every rung fails at its end, with nearly all weights in memory. The first failure has paid for what
    torch and numba keep; of the two behind it even the copies in int4 would show."""
    program.load(choose())  # compiled, if it was not yet
    shutil.copytree(paths.compiled_dir(), tmp_path / "engine")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOCALSPEC_CACHE_DIR": str(tmp_path), **GIVEN_BACK}
    command = [sys.executable, "-c", FAILURES, str(folder), f"{LAYERS - 1}.down", str(TIMES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    first, *_, last = map(int, done.stdout.split())
    assert last <= 1.05 * first
