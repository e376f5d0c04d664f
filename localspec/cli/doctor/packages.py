"""Which packages are installed, from their metadata: nothing is imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from localspec.cli.doctor.records import Package

FIRST = ("torch", "transformers", "safetensors", "textual", "bitsandbytes")
OPTIONAL = ("llama-cpp-python",)


def look() -> tuple[Package, ...]:
    """Those that matter most, then the rest of what localspec needs, then what it can use."""
    wanted = requirements()
    names = dict.fromkeys((*FIRST, *wanted, *OPTIONAL))
    return tuple(Package(name, installed(name), wanted.get(name, ""), name in wanted) for name in names)


def requirements() -> dict[str, str]:
    """Of localspec, without its extras; none where it runs from a folder and was never installed."""
    try:
        lines = requires("localspec") or []
    except PackageNotFoundError:
        return {}
    needed = [one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate({"extra": ""})]
    return {canonicalize_name(one.name): str(one.specifier) for one in needed}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except (PackageNotFoundError, KeyError):  # KeyError: its metadata have no version
        return None


def is_in_range(package: Package) -> bool:
    try:
        return SpecifierSet(package.wanted).contains(package.version or "", prereleases=True)
    except InvalidVersion:
        return False
