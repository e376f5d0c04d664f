"""The scheme of each module of a repository: mostly one for all, else by name. Knows nothing about tensors."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.models.prequantised.pattern import matcher
from localspec.models.prequantised.scheme import Layout, Scheme

PATTERN = "re:"


@dataclass(frozen=True, slots=True)
class Group:
    """Modules by name, pattern ("re:…") or class, and their scheme."""

    targets: tuple[str, ...]
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class QuantisationRules:
    """The rules of a repository. `label`: the format's name for the user. `usual`: the scheme of all modules without a
    group."""

    label: str
    layouts: tuple[Layout, ...]
    usual: Scheme | None
    groups: tuple[Group, ...] = ()

    def scheme_of(self, module: str) -> Scheme | None:
        """The scheme of a module, chosen as in compressed-tensors: a name before a pattern before a class."""
        if self.usual is not None:
            return self.usual
        kind = "Embedding" if module.endswith("embed_tokens") else "Linear"
        for means in (module.__eq__, lambda target: matches(target, module), kind.__eq__):
            for group in self.groups:
                if any(means(target) for target in group.targets):
                    return group.scheme
        return None


def matches(target: str, module: str) -> bool:
    return target.startswith(PATTERN) and matcher(target.removeprefix(PATTERN))(module)
