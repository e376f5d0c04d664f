"""What a model may take is what the machine has free, and in a container no more than its limit leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec import main_memory

FREE = 1000
TWO = {"memory.max": "700\n", "memory.current": "500\n", "memory.stat": "anon 300\ninactive_file 150\n"}
ONE = {
    "memory/memory.limit_in_bytes": "700\n",
    "memory/memory.usage_in_bytes": "500\n",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 150\n",
}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        pytest.param({}, FREE, id="no container"),
        pytest.param(TWO, 350, id="version 2"),
        pytest.param(ONE, 350, id="version 1"),
        pytest.param(TWO | {"memory.max": "max\n"}, FREE, id="no limit"),
        pytest.param(ONE | {"memory/memory.limit_in_bytes": "9223372036854771712"}, FREE, id="no limit, version 1"),
        pytest.param(TWO | {"memory.current": "900"}, 0, id="nothing left"),
        pytest.param(TWO | {"memory.stat": "of another form"}, 200, id="other statistics"),
        pytest.param({"memory.max": "700"}, FREE, id="half of the files"),
    ],
)
def test_a_containers_limit_counts_where_it_is_lower(
    files: dict[str, str], left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=FREE))
    monkeypatch.setattr(main_memory, "GROUPS", tmp_path)
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main_memory.available_bytes() == left
