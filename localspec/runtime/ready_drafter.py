"""A drafter that is ready: its card, its length policy, and what it holds in memory. Knows no target and no text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from localspec.core.events import SpecCard
from localspec.core.locks import Lock
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.table import LOOKUP
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Drafter, Resident
from localspec.runtime.draft_translation import Translating


@dataclass(frozen=True, slots=True)
class Drafting:
    """`decoders` are the drafter's own, closed with it; `mark`: that its files are in use. `greedy`: it drafts its most
    likely tokens. `lookup` is the look-up that drafts alone or in front; `translating` is a drafter's with another
    tokenizer. `beside` makes the same for another decoder of the target's weights, on the same weights of its own; None
    where that cannot be."""

    spec: SpecCard
    drafter: Drafter
    policy: SteerablePolicy
    greedy: bool = False
    decoders: tuple[Resident, ...] = ()
    mark: Lock | None = None
    lookup: LookupDrafter | None = None
    translating: Translating | None = None
    beside: Callable[[Resident], Drafting] | None = None

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


def without_failed(before: Drafting, reason: str) -> Drafting:
    """The look-up alone where one stood in front of the drafter that failed, else plain decoding; and why."""
    if before.lookup is None or not before.spec.lookup:
        return without_drafter(before.policy, reason)
    spec = replace(before.spec, kind=LOOKUP.name, name=LOOKUP.label(""), reason=reason, exit_layer=None, lookup=False)
    return Drafting(spec, Guarded(before.lookup), before.policy, lookup=before.lookup)
