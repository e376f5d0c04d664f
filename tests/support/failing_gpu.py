"""An engine whose GPU fails in the middle of an answer, as CUDA tells it: once, and at everything from then on."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from localspec.core.requests import LoadRequest
from localspec.runtime.open import open_model
from localspec.runtime.open_target import Opening
from localspec.runtime.slots import Slots

OPENER = "tests.support.failing_gpu:open_failing"
ASSERT = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
FORWARDS = 8


def open_failing(request: LoadRequest) -> Generator[Opening, None, Slots]:
    """Opens as any model does; the ninth forward after that fails."""
    slots = yield from open_model(request)
    target = slots.first.decoders[0]
    forward, left = target.forward, [FORWARDS]

    def failing(ids: Tensor, *given: object, **named: object) -> Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise torch.AcceleratorError(ASSERT)
        return forward(ids, *given, **named)  # type: ignore[arg-type]

    target.forward = failing  # type: ignore[method-assign]
    return slots
