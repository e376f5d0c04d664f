"""The typed fields of one architecture in a GGUF file's metadata."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Self

from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.gguf.header import Gguf
from localspec.models.gguf.reading import Value

ARCHITECTURE = "general.architecture"
LARGEST_FLOAT32 = 3.4e38


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields whose keys begin with `architecture`."""

    model: Gguf
    architecture: str

    @classmethod
    def of(cls, model: Gguf) -> Self:
        found = model.metadata.get(ARCHITECTURE)
        if not isinstance(found, str) or not found:
            raise CheckpointError(f"{model.file} does not say its {ARCHITECTURE}.", hint=REPEAT)
        return cls(model, found)

    def get(self, name: str) -> Value | None:
        return self.model.metadata.get(f"{self.architecture}.{name}")

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number; a list of one per layer counts as one number if they are equal."""
        found = self.get(name)
        if isinstance(found, tuple) and len(set(found)) == 1:
            found = found[0]
        found = default if found is None else found
        if type(found) is not int:
            raise self.fault(name, "a whole number")
        return found

    def real(self, name: str, default: float | None = None) -> float:
        found = self.get(name)
        found = default if found is None else found
        if type(found) not in (int, float) or not isinstance(found, int | float) or not math.isfinite(found):
            raise self.fault(name, "a number")
        return shortest(float(found))

    def fault(self, name: str, wanted: str) -> CheckpointError:
        problem = f"{self.model.file}: its {self.architecture}.{name} is {str(self.get(name))[:40]}"
        return CheckpointError(f"{problem}; it must be {wanted}.", hint=REPEAT)

    def refuse(self, what: str) -> CheckpointError:
        """The error for a valid feature that our decoder does not support."""
        return CheckpointError(
            f"{self.model.file} asks for {what}, which localspec cannot run from GGUF.",
            hint="Choose the model's safetensors repository, or another model.",
        )


def shortest(number: float) -> float:
    """The shortest number with the same float32: 1e-05 instead of 9.999999747378752e-06."""
    if abs(number) > LARGEST_FLOAT32:
        return number
    single = struct.pack("<f", number)
    for digits in range(6, 10):
        found = float(f"{number:.{digits}g}")
        if struct.pack("<f", found) == single:
            return found
    return number
