"""Examines the machine for `localspec doctor`: packages, devices, folders, and problems.

Creates, changes and downloads nothing. Knows nothing about printing.
"""

from __future__ import annotations

import platform

import psutil
from msgspec.structs import replace

from localspec.cli.doctor import backend, bandwidth, cpu, devices, folders, login, packages, terminal
from localspec.cli.doctor.findings import findings
from localspec.cli.doctor.records import DoctorReport, MemoryStatus, SettingsStatus
from localspec.core import nvidia, paths
from localspec.core.main_memory import available_bytes
from localspec.core.version import __version__


def examine() -> DoctorReport:
    """The whole report. Slow parts run in parallel; memory bandwidth is measured last, alone."""
    with backend.probing() as answer:
        memory = psutil.virtual_memory()
        report = DoctorReport(
            localspec=__version__,
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            packages=packages.look(),
            processor=cpu.look(),
            memory=MemoryStatus(memory.total, available_bytes()),
            torch=devices.look(),
            driver=nvidia.look(),
            bitsandbytes=None,
            login=login.look(),
            terminal=terminal.look(),
            settings=settings(),
            folders=folders.look(),
            kept=folders.kept(),
        )
        report = replace(report, bitsandbytes=answer())
    report = bandwidth.measured(report)
    return replace(report, findings=tuple(findings(report)))


def settings() -> SettingsStatus:
    from localspec.config.reading import read
    from localspec.core.errors import LocalspecError

    file = paths.config_file()
    try:
        read(file)
    except LocalspecError as fault:
        return SettingsStatus(str(file), str(fault))
    return SettingsStatus(str(file), "")
