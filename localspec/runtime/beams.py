"""Beam search on a loaded model: whether its decoder can, and whether the caches fit. Knows no text."""

from __future__ import annotations

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.events import Notice
from localspec.core.main_memory import available_bytes
from localspec.core.requests import GenerateRequest
from localspec.core.sizes import size_words
from localspec.engine.passes import can_batch
from localspec.engine.protocols import Resident
from localspec.loading.devices import gpu_bytes

NO_DRAFTS = Notice("info", "beams", "Nothing is drafted while beams are searched.", "")


def check_beams(target: Resident, beams: int) -> None:
    """UsageError or DoesNotFit where so many beams cannot be searched; each takes a cache."""
    if not can_batch(target):
        raise UsageError("Beam search does not work for this model, because transformers runs it.", hint="Use 1 beam.")
    needed = kv_bytes(target, beams)
    free = gpu_bytes() if target.device.type == "cuda" else available_bytes()
    if needed > free:
        message = f"Not enough memory for {beams} beams (needs {size_words(needed)}, {size_words(free)} free)."
        raise DoesNotFit(message, hint="Use fewer beams, or a smaller --ctx.")


def kv_bytes(target: Resident, beams: int) -> int:
    """Bytes of the caches beside the target's own."""
    return target.cache.num_bytes * beams if beams > 1 else 0


def asks_for_drafts(request: GenerateRequest) -> bool:
    return bool(request.speculate) or request.exit_layer is not None
