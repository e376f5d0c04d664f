"""The machine and the versions that a figure belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from localspec.core import processor
from localspec.core.version import __version__


def describe_machine(threads: int, device: str) -> dict[str, str]:
    """What computed, cores, threads used, versions, and the commit where this is a clone."""
    return {
        "processor": torch.cuda.get_device_name() if device.startswith("cuda") else processor.name(),
        "cores": str(os.cpu_count()),
        "threads": str(threads),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "localspec": f"{__version__} {commit()}".strip(),
    }


def commit() -> str:
    """The clone's commit, marked when files have changed since; "" outside a clone."""
    here = Path(__file__).resolve().parents[2]
    try:
        sha = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return sha.stdout.strip()
