"""What a model may take is what the machine has free, and in a control group no more than its limit leaves; what it
gives back goes to the system, where the C library can be asked to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from localspec.core import main_memory

FREE = 1000
PACKAGE = Path(main_memory.__file__).parent
TWO = {"memory.max": "700\n", "memory.current": "500\n", "memory.stat": "anon 300\ninactive_file 100\nactive_file 50\n"}
ONE = {
    "memory/memory.limit_in_bytes": "700\n",
    "memory/memory.usage_in_bytes": "500\n",
    "memory/memory.stat": "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n",
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
    monkeypatch.setattr(main_memory, "MINE", tmp_path / "absent")
    (tmp_path / "memory").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main_memory.available_bytes() == left


@pytest.mark.parametrize(
    ("said", "left"),
    [
        pytest.param("0::/job/step\n", 30, id="its own"),
        pytest.param("0::/job/other\n", 80, id="the one above"),
        pytest.param("0::/\n", FREE, id="none"),
        pytest.param("0::/../job/step\n", FREE, id="outside of what is shown"),
        pytest.param("1:name=systemd:/job\n", FREE, id="of another controller"),
        pytest.param("of another form\n", FREE, id="other words"),
    ],
)
def test_the_lowest_limit_of_all_its_groups_counts(
    said: str, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As a cluster's job or `systemd-run -p MemoryMax=` sets one, far below the top."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=FREE))
    monkeypatch.setattr(main_memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(main_memory, "MINE", tmp_path / "mine")
    (tmp_path / "mine").write_text(said)
    for version in ((".", "max", "current"), ("memory", "limit_in_bytes", "usage_in_bytes")):
        top, limit, used = version
        for name, room in (("job", 80), ("job/step", 30)):
            folder = tmp_path / "groups" / top / name
            folder.mkdir(parents=True)
            (folder / f"memory.{limit}").write_text(str(500 + room))
            (folder / f"memory.{used}").write_text("500")
            (folder / "memory.stat").write_text("anon 500\n")
    assert main_memory.available_bytes() == left
    (tmp_path / "mine").write_text(said.replace("0::", "4:memory:"))
    assert main_memory.available_bytes() == left


def test_nobody_asks_the_machine_past_the_limit():
    asking = [file for file in PACKAGE.rglob("*.py") if "virtual_memory().available" in file.read_text()]
    assert [file.name for file in asking] == ["main_memory.py"]


def test_what_was_freed_in_small_pieces_goes_back_to_the_system():
    """Pieces that the C library takes from its own heap, below its last one, which stays in use."""
    if not hasattr(main_memory.ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("only glibc keeps it, and gives it back")
    me, size = psutil.Process(), 64 << 20
    pieces: list[bytes | None] = [bytes([1]) * (16 << 10) for _ in range(size >> 14)]
    held = me.memory_info().rss
    pieces[:-1] = [None] * (len(pieces) - 1)
    main_memory.trim()
    assert held - me.memory_info().rss > size // 2


@pytest.mark.parametrize("fault", [OSError, TypeError, AttributeError])
def test_another_c_library_is_left_alone(fault: type[Exception], monkeypatch: pytest.MonkeyPatch):
    """Windows has none by that name, and musl no such function."""

    def absent(_: Any) -> Any:
        raise fault

    monkeypatch.setattr(main_memory.ctypes, "CDLL", absent)
    main_memory.trim()
