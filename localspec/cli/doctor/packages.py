"""Finds installed packages by their metadata: imports none of them."""

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
    """The most important packages, then the other requirements, then optional ones."""
    wanted = requirements()
    names = dict.fromkeys((*FIRST, *wanted, *OPTIONAL))
    return tuple(Package(name, installed(name), wanted.get(name, ""), name in wanted) for name in names)


def requirements() -> dict[str, str]:
    """The requirements of localspec, without its extras; none if it is not installed but runs from a folder."""
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
