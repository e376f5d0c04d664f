"""A second device where there is none: tensors of "cuda" that lie in main memory, and may not meet those of the CPU."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from localspec.engine.cuda_graphs import CAPTURES

FAR = torch.device("cuda")
DEVICE = Tensor.device.__get__  # type: ignore[attr-defined] # a slot of C's


class Far(Tensor):
    """Says that it is on the GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def far(found: Any) -> Any:
    return found.as_subclass(Far) if isinstance(found, Tensor) and type(found) is not Far else found


def near(found: Any) -> Any:
    return found.as_subclass(Tensor) if type(found) is Far else found


class SecondDevice(TorchFunctionMode):
    """What is made, or brought, with `device="cuda"` is there, and so is all that comes of it. As on a real one, a
    tensor of the CPU may meet one of these only where it is brought, or is a single number without a shape. Nothing can
    be recorded on it."""

    def __init__(self) -> None:
        super().__init__()
        self.brought_bytes = 0
        self.without_graphs = mock.patch.dict(CAPTURES, clear=True)

    def __enter__(self) -> SecondDevice:
        self.without_graphs.start()
        super().__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        super().__exit__(*fault)
        self.without_graphs.stop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        if func == DEVICE:  # it is another object each time
            return FAR if type(args[0]) is Far else func(*args)
        if func is Tensor.to:
            return self.bring(args, kwargs)
        if func is Tensor.pin_memory:
            return args[0]
        if {type(one) is Far for one in tensors if one.dim() or type(one) is Far} == {True, False}:
            raise RuntimeError(f"{func.__name__}: tensors on two devices, cuda and cpu")
        target = kwargs.pop("device", None)
        found = func(*tree_map(near, args), **tree_map(near, kwargs))
        there = is_far(target) if target is not None else any(type(one) is Far for one in tensors)
        return tree_map(far, found) if there else found

    def bring(self, args: Any, kwargs: Any) -> Tensor:
        tensor, *said = args
        named = [one for one in (*said, kwargs.pop("device", None)) if isinstance(one, str | torch.device)]
        rest = [one for one in said if not isinstance(one, str | torch.device)]
        there = is_far(named[0]) if named else type(tensor) is Far
        if there != (type(tensor) is Far):
            self.brought_bytes += tensor.nbytes
            kwargs["copy"] = True  # nothing is shared between devices
        found = near(tensor)
        found = found.to(*rest, **kwargs) if rest or kwargs.keys() - {"non_blocking"} else found
        return far(found) if there else found


def is_far(device: Any) -> bool:
    return torch.device(device).type == FAR.type
