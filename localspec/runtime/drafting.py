"""A drafter that is ready: its card, its length policy, and what it holds in memory. Knows no target and no text."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.events import SpecCard
from localspec.core.locks import Lock
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.policy import SteerablePolicy
from localspec.engine.protocols import Drafter, Resident
from localspec.runtime.translating import Translating


@dataclass(frozen=True, slots=True)
class Drafting:
    """`decoders` are the drafter's own, closed with it; `mark`: that its files are in use. `greedy`: it drafts its most
    likely tokens. `translating`: of a drafter with another tokenizer."""

    spec: SpecCard
    drafter: Drafter
    policy: SteerablePolicy
    greedy: bool = False
    decoders: tuple[Resident, ...] = ()
    mark: Lock | None = None
    translating: Translating | None = None

    def close(self) -> None:
        """Frees its memory. Twice does no harm."""
        for decoder in self.decoders:
            decoder.close()
        if self.translating is not None:
            self.translating.close()
        if self.mark is not None:
            self.mark.close()


def without_drafter(policy: SteerablePolicy, reason: str) -> Drafting:
    """Plain decoding, and why."""
    return Drafting(SpecCard("off", reason=reason), NoDrafter(), policy)
