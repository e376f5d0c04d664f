"""A snapshot's tensors; weights that others have quantised are floats. Knows nothing about how they are unpacked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from localspec.loading.unpacking.weight import Weight
from localspec.models.prequantised.weights import StoredWeight, besides

if TYPE_CHECKING:
    from localspec.loading.sources import Files

OPEN = 4  # weights whose scales are kept: queries, keys and values are read in turns, and so are gate and up


class Unpacked:
    """Tensors by name, as if they had never been quantised: a Source."""

    def __init__(self, files: Files, weights: Mapping[str, StoredWeight]) -> None:
        self.files, self.weights = files, weights
        self.opened = OrderedDict[str, Weight]()
        self.hidden = besides(weights, files.names())

    def names(self) -> set[str]:
        return (self.files.names() - self.hidden) | set(self.weights)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.weights[name].shape if name in self.weights else self.files.shape(name)

    def read(self, name: str) -> Tensor:
        return self.rows(name, 0, self.shape(name)[0])

    def rows(self, name: str, first: int, last: int) -> Tensor:
        if name not in self.weights:
            return self.files.rows(name, first, last)
        return self.open(name).rows(first, last)

    def open(self, name: str) -> Weight:
        if name not in self.opened:
            self.opened[name] = Weight(self.files, self.weights[name])
            if len(self.opened) > OPEN:
                self.opened.popitem(last=False)
        return self.opened[name]

    def announce(self, name: str, *, soon: bool) -> None:
        for part in self.weights[name].parts if name in self.weights else (name,):
            self.files.announce(part, soon=soon)
