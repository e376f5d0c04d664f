"""The parts of a loaded model, put together when it is opened. Knows no answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.core.events import Loading, Notice, Ready
from localspec.core.requests import ChangeDrafter, SamplingOptions
from localspec.engine.passes import can_batch
from localspec.engine.policy.shares import ALONE
from localspec.engine.protocols import Company, Resident
from localspec.engine.session import Session
from localspec.loading.threads import Threads
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.models.spelling import Folding
from localspec.runtime.ready_drafter import Drafting


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The parts of a Model. `owned`: closed with the model, beside its drafter; `another` makes another drafter for the
    same target."""

    ready: Ready
    prompter: AnyPrompter
    session: Session
    target: Resident
    drafting: Drafting
    defaults: SamplingOptions
    stop_ids: frozenset[int]
    another: Callable[[ChangeDrafter], Generator[Loading | Notice, None, Drafting]]
    owned: tuple[Closable, ...] = ()
    threads: Threads | None = None  # None where their count stays
    folding: Folding | None = None
    company: Company = ALONE  # the requests that its rows are computed with

    @property
    def decoders(self) -> tuple[Resident, ...]:
        """The target's first; their weight reads are counted."""
        return (self.target, *self.drafting.decoders)

    @property
    def can_be_twice(self) -> bool:
        """Whether others can stand beside them, on the same weights."""
        return can_batch(self.target) and self.drafting.beside is not None

    def beside(self) -> ModelParts:
        """The parts of another Model on the same weights, whose count of threads stays."""
        assert can_batch(self.target)
        assert self.drafting.beside is not None
        target = self.target.beside()
        drafting = self.drafting.beside(target)
        session = Session(target, drafting.drafter, device=str(target.device))
        return replace(self, session=session, target=target, drafting=drafting, owned=(target,), threads=None)

    def drafted_by(self, drafting: Drafting) -> ModelParts:
        """The parts with another drafter, in step with the same conversation; the one before is closed."""
        if drafting is not self.drafting:
            self.drafting.close()
        self.session.drafter = drafting.drafter
        return replace(self, drafting=drafting)
