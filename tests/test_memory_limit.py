"""A model larger than the memory that the system gives this process: it loads by itself and answers, from real reads of
the disk. The limit is a control group's, as a container or a cluster's job has one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec import main_memory, paths
from localspec.checkpoint import open_snapshot
from localspec.footprint import footprint
from tests.models_made_here import save_snapshot
from tests.tokenizers_made_here import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

LIMIT = 640 << 20
CONTEXT = 512
WITHIN = 'echo $$ > "$0"/cgroup.procs && exec "$@"'  # a shell that joins the group, and becomes what is run
ASKS = ["--ctx", str(CONTEXT), "--max-tokens", "24", "--temperature", "0", "--jsonl"]
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


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group below this process's own. Nothing else is in it."""
    above = list(main_memory.folders(main_memory.GROUPS / "memory", "memory"))[-1]
    made = above / f"localspec-{os.getpid()}"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as fault:
        pytest.skip(f"no control group can be made here: {fault}")
    yield made
    made.rmdir()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two gigabytes of float32, 900 MB in int8 and 500 MB in int4."""
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 10, "num_attention_heads": 16}
    more = {"num_key_value_heads": 4, "vocab_size": 16000, "max_position_embeddings": 2048}
    return save_snapshot(tmp_path / "big", gpt2_like(), template=CHATML, **sizes, **more)


def answered(model: Path, cache: Path, group: Path | None, *asks: str) -> tuple[dict[str, Any], list[int], int]:
    """How it was loaded, its tokens, and what was read from the disk, in bytes."""
    command = [sys.executable, "-c", READS, "run", str(model), "tell me more", *ASKS, *asks]
    if group:
        command = ["sh", "-c", WITHIN, str(group), *command]
    environment = {**os.environ, "LOCALSPEC_CACHE_DIR": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (ready,) = [event for event in events if event["type"] == "ready"]
    ids = [id for event in events if event["type"] == "tokens" for id in event["ids"]]
    return ready["model"], ids, int(done.stderr.rpartition("read_bytes: ")[2].partition("\n")[0])


def test_a_model_larger_than_the_memory_of_its_group_answers_from_disk(group: Path, model: Path, tmp_path: Path):
    shutil.copytree(paths.compiled_dir(), tmp_path / "engine")
    needs = footprint(open_snapshot(model), "int4", CONTEXT)
    told, ids, read = answered(model, tmp_path, group, "--draft", "off")
    print(told, ids, read, needs)
