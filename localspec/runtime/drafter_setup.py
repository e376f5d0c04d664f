"""Attaches a drafter to an open target: chosen, loaded where it is a model, with a length policy of its own.

Another may take its place later: the target's weights and the conversation in its cache stay. Knows no text.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import msgspec
import torch

from localspec.core import calibration
from localspec.core.errors import DoesNotFit, EngineError, LocalspecError, UsageError
from localspec.core.events import DraftLength, Loading, Mode, ModelCard, Notice, Ready, SpecCard
from localspec.core.requests import AskedDraft, ChangeDrafter, SpecOptions, draft_length
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.drafters.table import DRAFTERS
from localspec.engine.drafters.translated import TranslatedDrafter
from localspec.engine.memory import give_back
from localspec.engine.passes import can_batch
from localspec.engine.policy.shares import ALONE
from localspec.engine.policy.steerable import SharedPolicy
from localspec.engine.protocols import Company, Drafter, Resident, is_layered
from localspec.engine.session import Session
from localspec.loading.devices import gpu_faults
from localspec.loading.kernels import load_decoder, verify
from localspec.loading.plan import Plan, draft_plan
from localspec.loading.plan_request import PlanRequest
from localspec.loading.resident_decoder import measure_memory, possible
from localspec.loading.threads import Threads
from localspec.models.checkpoint import Snapshot
from localspec.runtime import draft_choice
from localspec.runtime import load_marks as loaded_models
from localspec.runtime.draft_choice import DrafterChoice
from localspec.runtime.draft_translation import Translating
from localspec.runtime.model import Model
from localspec.runtime.notices import graph_notices
from localspec.runtime.open_target import Opening, OpenTarget, plan_request, swept_key
from localspec.runtime.parts import ModelParts
from localspec.runtime.ready_drafter import Drafting
from localspec.runtime.sampling_defaults import defaults
from localspec.runtime.slots import Slots


def attach(
    opened: OpenTarget, draft: AskedDraft, k: DraftLength, *, owns_target: bool = False
) -> Generator[Opening, None, Model]:
    """Attaches a drafter and a session to an open target; several Models can share one that none of them owns."""
    parts = yield from make_parts(opened, draft, k, owns_target=owns_target)
    yield parts.ready
    return Model(parts)


def attach_slots(opened: OpenTarget) -> Generator[Opening, None, Slots]:
    """Attaches what was asked for, as often as was planned; the target belongs to it."""
    parallel, batch = opened.plan.parallel, None
    company: Company = ALONE
    if parallel > 1:
        from localspec.engine.batch import Batch  # here: what measures on a bare GPU box has no greenlet

        company = batch = Batch()
    asked = opened.request
    parts = yield from make_parts(opened, asked.draft, asked.k, owns_target=True, company=company)
    if parallel > 1 and not parts.can_be_twice:
        yield one_at_a_time(parts, asked=asked.weights.parallel != "auto")
        parallel = 1
    if parallel > 1:
        parts = replace(parts, threads=None)  # rows of others would be timed with its own
    every = (parts, *(parts.beside() for _ in range(parallel - 1)))
    slots = Slots(*map(Model, every), batch=batch)
    yield slots.ready
    return slots


def one_at_a_time(parts: ModelParts, *, asked: bool) -> Notice:
    """The notice that only one answer can be written at once, and why."""
    level: Literal["warning", "info"] = "warning" if asked else "info"
    if not can_batch(parts.target):
        message = f"One answer is written at a time: transformers runs {parts.ready.model.name}."
        return Notice(level, "parallel", message)
    has_two = parts.drafting.translating is not None
    why = "its drafter has another tokenizer" if has_two else "transformers runs its drafter"
    return Notice(level, "parallel", f"One answer is written at a time: {why}.", "For more, use --draft lookup.")


def make_parts(
    opened: OpenTarget, draft: AskedDraft, k: DraftLength, *, owns_target: bool, company: Company = ALONE
) -> Generator[Loading | Notice, None, ModelParts]:
    """The parts of one Model; `company`: the requests that its rows are computed with."""
    choice = opened.choice
    if draft != opened.request.draft or choice.snapshot is None:  # comparing two tokenizers takes seconds
        choice = chosen(opened, draft)
    drafting = yield from make_drafting(opened, choice, k, company)
    target = opened.target
    yield from graph_notices((target, *drafting.decoders))
    return ModelParts(
        Ready(card(opened), drafting.spec, measure_memory(opened.threads, target, *drafting.decoders)),
        opened.prompter,
        Session(target, drafting.drafter, device=str(target.device)),
        target,
        drafting,
        defaults=defaults(opened.entry, opened.snapshot),
        stop_ids=frozenset(opened.snapshot.eos_ids),
        owned=(target, opened.prompter, *filter(None, [opened.mark])) if owns_target else (),
        threads=Threads(possible(), opened.threads) if owns_target and opened.may_change_threads else None,
        folding=opened.folding,
        another=partial(another, opened, company),
        company=company,
    )


def another(opened: OpenTarget, company: Company, asked: ChangeDrafter) -> Generator[Loading | Notice, None, Drafting]:
    """Makes another drafter for the same target, once the one before is closed."""
    request = msgspec.structs.replace(opened.request, draft=asked.draft, k=asked.k, mode=asked.mode)
    opened = replace(opened, request=request.drafting_in(asked.draft_format))
    with gpu_faults():
        choice = chosen(opened, asked.draft)
        draft_choice.check_format(asked.draft_format, choice)
        if opened.plan.resident is not None and choice.exit_layer > opened.plan.resident:
            message = (
                f"Only {opened.plan.resident} layers are in memory, and {choice.name} drafts with {choice.exit_layer}."
            )
            raise UsageError(message, hint="Load the model again.")
        return (yield from make_drafting(opened, choice, asked.k, company))


def chosen(opened: OpenTarget, draft: AskedDraft) -> DrafterChoice:
    if opened.choice.left_out and draft_choice.requested(draft).kind == "auto":
        return opened.choice
    known = calibration.recall(swept_key(opened))
    return draft_choice.choose(draft, opened.entry, opened.snapshot, opened.catalog, known)


def make_drafting(
    opened: OpenTarget, choice: DrafterChoice, k: DraftLength, company: Company = ALONE
) -> Generator[Loading | Notice, None, Drafting]:
    """Loads what drafts, and makes the drafter with its policy and its card."""
    k = choice.k if k == "auto" else draft_length(k)
    own = yield from draft_decoder(choice, opened)
    translating = open_translating(opened, choice)
    if choice.notice:
        yield choice.notice
    mark = loaded_models.mark(choice.snapshot.folder) if choice.snapshot else None
    options = SpecOptions.of(k, opened.request.mode) if choice.kind != "off" else SpecOptions("off")
    made = DrafterMaker(choice, k, SharedPolicy(options.mode, options.k, opened.request.probe_every), company)
    return replace(made.drafting(opened.target, own, translating), mark=mark)


@dataclass(frozen=True, slots=True)
class DrafterMaker:
    """What a drafter is made by, for one decoder of the target's weights after another."""

    choice: DrafterChoice
    k: DraftLength
    policy: SharedPolicy
    company: Company

    def drafting(self, target: Resident, own: Resident | None, translating: Translating | None = None) -> Drafting:
        choice = self.choice
        named = make_drafter(choice, target, own, translating)
        lookup = LookupDrafter() if choice.lookup else named if isinstance(named, LookupDrafter) else None
        return Drafting(
            spec(choice, self.k, self.policy.mode),
            guarded(named, lookup),
            self.policy.slot(self.company),
            greedy=choice.greedy,
            decoders=(own,) if own is not None else (),
            lookup=lookup,
            translating=translating,
            beside=partial(self.beside, own) if translating is None and (own is None or can_batch(own)) else None,
        )

    def beside(self, own: Resident | None, target: Resident) -> Drafting:
        """The same for another decoder of the target's weights."""
        return self.drafting(target, own.beside() if own is not None and can_batch(own) else None)


def open_translating(opened: OpenTarget, choice: DrafterChoice) -> Translating | None:
    """What translates between the two tokenizers, where they differ."""
    if not choice.translates or choice.snapshot is None:
        return None
    return Translating.open(opened.prompter, opened.snapshot, choice.snapshot)


def make_drafter(
    choice: DrafterChoice, target: Resident, own: Resident | None, translating: Translating | None
) -> Drafter:
    if translating is not None:
        assert own is not None
        return TranslatedDrafter(own, translating.translation)
    return DRAFTERS[choice.kind].make(choice.argument, target, own) if choice.kind in DRAFTERS else NoDrafter()


def spec(choice: DrafterChoice, k: DraftLength, mode: Mode) -> SpecCard:
    """The drafter as the user sees it."""
    return SpecCard(
        choice.kind,
        choice.name,
        k,
        choice.reason,
        choice.exit_layer or None,
        mode,
        lookup=choice.lookup,
        translated=choice.translates,
    )


def guarded(named: Drafter, lookup: LookupDrafter | None) -> Drafter:
    """The drafter, with the look-up in front of it if that is another one, which drafts on where the other fails."""
    if isinstance(named, NoDrafter):
        return named
    if lookup is None or named is lookup:
        return Guarded(named)
    return Guarded(Mixed(lookup, named), spare=lookup)


def card(opened: OpenTarget) -> ModelCard:
    """The target as the user sees it."""
    entry, plan, target = opened.entry, opened.plan, opened.target
    can_chat, layers = opened.prompter.can_chat, target.arch.num_layers if is_layered(target) else 0
    device = str(target.device) if plan.resident is None else f"{target.device} and {plan.offload_source}"
    snapshot = opened.snapshot
    sampling = defaults(entry, snapshot).given
    return ModelCard(
        entry.name, plan.weight_format.name, device, plan.context, can_chat, layers, snapshot.revision, sampling
    )


def draft_decoder(choice: DrafterChoice, opened: OpenTarget) -> Generator[Loading | Notice, None, Resident | None]:
    """The decoder of a drafter with a model of its own; both decoders then share the threads."""
    if choice.snapshot is None:
        return None
    request = replace(plan_request(opened.request.weights, choice), device=opened.plan.device)
    drafter = yield from load_draft(choice.snapshot, request.asking(ctx=opened.plan.context), opened.plan)
    torch.set_num_threads(1)
    for decoder in (opened.target, drafter):
        if decoder.device == opened.target.device:  # where one is torch's, torch has its threads, whoever is the other
            decoder.set_threads(opened.threads)
    return drafter


def load_draft(snapshot: Snapshot, request: PlanRequest, target: Plan) -> Generator[Loading | Notice, None, Resident]:
    """Loads a draft model where its plan says; beside the target when the GPU fails."""
    plan = draft_plan(snapshot, request, target.weight_format)
    if plan.device == target.device:
        yield from verify(snapshot, plan)
        return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    found = yield from apart(snapshot, plan)
    if isinstance(found, LocalspecError):
        give_back()
        yield Notice("warning", "draft_device", f"{found.message} {snapshot.name} drafts on the CPU.")
        return (yield from load_draft(snapshot, replace(request, gpu_bytes=None), target))
    yield Notice(
        "info", "draft_device", f"{snapshot.name} drafts on the GPU, in {plan.weight_format}, for a target on the CPU."
    )
    return found


def apart(snapshot: Snapshot, plan: Plan) -> Generator[Loading | Notice, None, Resident | LocalspecError]:
    """Loads a decoder on another device than the target's; the error, without what was loaded, if that fails."""
    try:
        with gpu_faults():
            yield from verify(snapshot, plan)
            return (yield from load_decoder(snapshot, plan, stage="loading draft weights"))
    except (DoesNotFit, EngineError) as fault:
        fault.__cause__ = None
        return fault.with_traceback(None)
