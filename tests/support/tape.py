"""What CUDA does with a graph, done on a CPU: records kernels with the tensors they had, and runs these again.

No Python of the recorded step runs at a replay, so a number that it had read would stay as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LOOKS = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "lift_fresh")  # a GPU waits


class Tape(TorchDispatchMode):
    """One recording."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket.__name__ not in LOOKS, f"a GPU would be waited for: {func}"
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        given = {address(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        own = [one for one in tree_leaves(found) if isinstance(one, Tensor) and address(one) not in given]
        if own or func._schema.is_mutable:  # a view is there already
            self.calls.append((func, args, kwargs, own))
        return found

    def __call__(self) -> None:
        """What was made then is rubbish by now: other graphs compute in the same memory."""
        self.replays += 1
        for *_, own in self.calls:
            for tensor in own:
                tensor.fill_(77)
        for func, args, kwargs, own in self.calls:
            found = func(*args, **kwargs)
            for tensor, new in zip(own, tree_leaves(found) if own else (), strict=True):
                tensor.copy_(new)


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Taping:
    """A Capture. `tapes` are all that it made; from the `failing`-th on it cannot."""

    def __init__(self, failing: int | None = None, fault: Exception | None = None) -> None:
        self.tapes: list[Tape] = []
        self.failing, self.fault = failing, fault or RuntimeError("operation not permitted when stream is capturing.")

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        if self.failing is not None and len(self.tapes) + 1 >= self.failing:
            raise self.fault
        tape = Tape()
        with tape:
            step()
        self.tapes.append(tape)
        return tape


def frozen(step: Callable[[], None]) -> Callable[[], None]:
    """A Capture whose replays do nothing."""
    step()
    return torch.get_num_threads
