"""A target in memory: what it was opened for, what it was planned with, the key of a sweep's result.

Loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.core.events import Loading, Notice, Ready
from localspec.core.locks import Lock
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.engine.protocols import Resident
from localspec.loading.devices import gpu_bytes, pick_device, spare_gpu_bytes
from localspec.loading.plan import Plan
from localspec.loading.plan_request import PlanRequest, check_memory
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import Snapshot
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.models.spelling import Folding
from localspec.runtime.draft_choice import DrafterChoice

Opening = Loading | Notice | Ready


@dataclass(frozen=True, slots=True)
class OpenTarget:
    """A target in memory, and what attaching a drafter needs. `choice`: the drafter that it was planned with;
    `mark`: that it is loaded."""

    request: LoadRequest
    catalog: Catalog
    entry: Entry
    snapshot: Snapshot
    plan: Plan
    prompter: SandboxedPrompter
    target: Resident
    threads: int
    choice: DrafterChoice
    mark: Lock | None
    folding: Folding | None = None

    @property
    def may_change_threads(self) -> bool:
        """Whether the count of threads can change between rounds: it was not given, and no bit depends on it, which
        holds in the CPU engine with all layers in memory."""
        return self.request.weights.threads is None and self.plan.packed is not None and self.plan.resident is None


def plan_request(options: WeightOptions, choice: DrafterChoice) -> PlanRequest:
    """What the options and the drafter ask of a plan on this machine."""
    device = pick_device("auto" if options.offloads else options.device, options.weight_format)
    max_bytes, min_resident = check_memory(options.max_memory), max(choice.exit_layer, 1)
    request = PlanRequest(options, device, max_bytes, min_resident, drafter=choice.snapshot)
    if device == "cuda":
        return replace(request, gpu_bytes=gpu_bytes())
    return replace(request, gpu_bytes=spare_gpu_bytes()) if choice.snapshot and options.device != "cpu" else request


def swept_key(opened: OpenTarget) -> str:
    """The key of a sweep's result: these weights in this format, whatever the count of threads."""
    snapshot = opened.snapshot
    return f"{snapshot.folder.resolve()} {snapshot.fingerprint} {opened.plan.label} {opened.target.device}"
