"""The processor as the CPU engine sees it."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.cli.doctor.records import Processor
from localspec.core import processor
from localspec.core.errors import UsageError
from localspec.core.sanitize import one_line


def look() -> Processor:
    plain = Processor(one_line(processor.name()), processor.physical_cores(), processor.usable_threads())
    try:
        from localspec.engine.cpu import isa
    except (ImportError, OSError):  # no llvmlite, which comes with numba: reported as a missing package
        return plain
    has = isa.features()
    found = replace(
        plain,
        choices=tuple(kind.name for kind in isa.available()),
        vnni=tuple(sorted(name for name in has if "vnni" in name)),
        amx=tuple(sorted(name for name in has if name.startswith("amx"))),
    )
    try:
        return replace(found, instructions=isa.choose().name)
    except UsageError as fault:
        return replace(found, fault=str(fault))
