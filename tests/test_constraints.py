"""constraints.txt pins whatever `pip install .[test]` brings; pyproject.toml says each thing once."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINNED = set(re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
UNPINNED = ("pip", "setuptools", "nvidia-", "cuda-", "triton")  # what installs; a CUDA torch pins the others itself


def needed(name: str, extras: set[str], seen: set[str]) -> set[str]:
    """The package and all it needs here."""
    if name in seen or name.startswith(UNPINNED):
        return seen
    seen.add(name)
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return seen
    for one in map(Requirement, lines):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            needed(canonicalize_name(one.name), one.extras, seen)
    return seen


def test_every_package_that_is_installed_is_pinned():
    pinned = {canonicalize_name(name) for name in PINNED}
    assert needed("localspec", {"test"}, set()) - pinned == {"localspec"}


def test_mypy_is_told_of_each_module_once():
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    named = [module for one in overrides for module in one["module"]]
    assert len(named) == len(set(named))
