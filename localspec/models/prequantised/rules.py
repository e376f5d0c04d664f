"""Which scheme each module of a repository has: mostly one for all, else by name. Knows nothing about tensors."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.models.prequantised.pattern import matcher
from localspec.models.prequantised.scheme import Layout, Scheme

PATTERN = "re:"


@dataclass(frozen=True, slots=True)
class Group:
    """Modules by name, by pattern ("re:…") or by class, and how they are stored."""

    targets: tuple[str, ...]
    scheme: Scheme


@dataclass(frozen=True, slots=True)
class Rules:
    """`label`: what the files are, for people. `usual`: the scheme of all modules, where no group has another."""

    label: str
    layouts: tuple[Layout, ...]
    usual: Scheme | None
    groups: tuple[Group, ...] = ()

    def scheme_of(self, module: str) -> Scheme | None:
        """As compressed-tensors chooses: a name that is meant goes before a pattern, and that before a class."""
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
