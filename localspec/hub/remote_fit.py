"""The fit of a model or drafter that is not downloaded, from its headers alone.

Knows no drafter but the one that is asked for.
"""

from __future__ import annotations

from pathlib import Path

from localspec.hub.client import Client
from localspec.hub.named_models import open_any
from localspec.hub.records import FitFound, FitRequest
from localspec.loading.fit import fit_report, request_here, usable_gpu_bytes


def answer_fit(client: Client, request: FitRequest, scratch: Path) -> FitFound:
    """The fit of a target with its drafter; AccessDenied at a gate, CheckpointError for what could not be loaded."""
    before = client.bytes_read
    target, _ = open_any(client, request.name, scratch)
    drafter = open_any(client, request.drafter, scratch)[0] if request.drafter else None
    asked = request_here(request.weights, drafter=drafter, gpu_bytes=usable_gpu_bytes())
    return FitFound(fit_report(target, asked), client.bytes_read - before)
