"""A model larger than the memory that the system gives this process: it loads by itself and answers, from real reads of
the disk. The limit is a control group's, as a container or a cluster's job has one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # Any: events, as JSON has them

import pytest

from localspec.core import main_memory, paths
from localspec.core.weight_formats import find_format
from localspec.loading.footprint import footprint
from localspec.models.checkpoint import open_snapshot
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

CONTEXT, TOKENS = 512, 24
WITHIN = 'echo $$ > "$0"/cgroup.procs && exec "$@"'  # a shell that joins the group, and becomes what is run
ASKS = ["--ctx", str(CONTEXT), "--max-tokens", str(TOKENS), "--temperature", "0", "--jsonl"]
READS = """
import sys
from pathlib import Path
from localspec.cli import main
sys.argv[0] = "localspec"
try:
    main()
finally:
    print(Path("/proc/self/io").read_text(), file=sys.stderr)
"""


@contextmanager
def group(limit: int) -> Iterator[Path]:
    """A control group below this process's own, in which nothing else is, with so many bytes of memory."""
    above = list(main_memory.folders(main_memory.GROUPS / "memory", "memory"))[-1]
    made = above / f"localspec-{os.getpid()}"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as fault:
        pytest.skip(f"no control group can be made here: {fault}")
    try:
        yield made
    finally:
        made.rmdir()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two gigabytes of float32, 560 MB in int8 and 290 MB in int4."""
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 10, "num_attention_heads": 16}
    more = {"num_key_value_heads": 4, "vocab_size": 16000, "max_position_embeddings": 2048}
    return save_snapshot(tmp_path_factory.mktemp("models") / "big", gpt2_like(), template=CHATML, **sizes, **more)


def answered(model: Path, cache: Path, group: Path | None, *asks: str) -> tuple[Any, list[int], int, int]:
    """How it was loaded, its tokens, how many layers came from the disk, and the bytes that were read there."""
    command = [sys.executable, "-c", READS, "run", str(model), "tell me more", *ASKS, *asks]
    if group:
        command = ["sh", "-c", WITHIN, str(group), *command]
    environment = {**os.environ, "LOCALSPEC_CACHE_DIR": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (ready,) = [event for event in events if event["type"] == "ready"]
    ids = [token["id"] for event in events if event["type"] == "step" for token in event["tokens"]]
    (told,) = re.findall(r"(\d+) of (\d+) layers stay in memory", done.stdout) or [("0", "0")]
    (read,) = re.findall(r"^read_bytes: (\d+)$", done.stderr, re.MULTILINE)
    return ready["model"], ids, int(told[1]) - int(told[0]), int(read)


@pytest.mark.parametrize(("limit", "device"), [(640 << 20, "cpu"), (380 << 20, "cpu and disk")])
def test_a_model_larger_than_the_memory_of_its_group_answers(limit: int, device: str, model: Path, tmp_path: Path):
    """Unasked, in what fits, at the first start and the next: nobody is killed, and the words are the same."""
    shutil.copytree(paths.compiled_dir(), tmp_path / "engine")
    layer = footprint(open_snapshot(model), find_format("int4"), CONTEXT).layer
    _, expected, *_ = answered(model, tmp_path, None, "--quant", "int4", "--draft", "off")
    assert len(expected) == TOKENS
    shutil.rmtree(tmp_path / "packed")
    with group(limit) as within:
        for draft in ("off", "off", "early-exit:1"):
            told, ids, away, read = answered(model, tmp_path, within, "--draft", draft)
            assert (told["quant"], told["device"], ids) == ("int4", device, expected)
            assert (away > 0) == (device != "cpu")
            assert read >= (TOKENS - 1) * away * layer, "not from the disk"  # random layers agree with no draft
