"""From a request to a running model: catalogue, snapshot, plan, admission, weights, drafter, session, threads.

Yields progress and returns the Model. Decides by asking the rooms below; computes nothing itself.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from time import perf_counter

import psutil
import torch

from localspec import calibration, drafting
from localspec.admission import admit
from localspec.catalog import Catalog, Entry
from localspec.checkpoint import Snapshot, check_ids, open_snapshot
from localspec.engine.arch import read_arch
from localspec.engine.bandwidth import read_bandwidth
from localspec.engine.contract import Drafter
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExit
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import DraftModel
from localspec.engine.policy import Constant, make_policy
from localspec.engine.session import Session
from localspec.events import Loading, Memory, ModelCard, Notice, Ready, SpecCard
from localspec.fit import FORMATS, Plan, make_plan
from localspec.loader import load_decoder, pick_device
from localspec.model import Model, Parts
from localspec.prompt import Prompter
from localspec.requests import DraftModel as DraftModelDraft
from localspec.requests import EarlyExit as EarlyExitDraft
from localspec.requests import LoadRequest
from localspec.settings import defaults


@dataclass(frozen=True, slots=True)
class Opened:
    """A target in memory, and what it takes to put a drafter beside it."""

    catalog: Catalog
    entry: Entry
    snapshot: Snapshot
    plan: Plan
    prompter: Prompter
    target: Decoder
    threads: int


def open_model(request: LoadRequest) -> Generator[Loading | Notice | Ready, None, Model]:
    """Loading and Notices, then Ready; returns the Model."""
    opened = yield from open_target(request)
    if request.quant == "auto" and opened.plan.quant != FORMATS[0]:
        yield Notice("info", "format", f"Weights are in {opened.plan.quant}: {FORMATS[0]} does not fit in memory.")
    return (yield from attach(opened, request.draft, request.k))


def open_target(request: LoadRequest) -> Generator[Loading, None, Opened]:
    """The target alone. What can be refused cheaply is refused before any weight is read."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: nothing here asks the network
    drafting.check_k(request.k)
    catalog = Catalog.load()
    entry = catalog.resolve(request.model)
    snapshot = open_snapshot(entry.path, entry.key)
    plan = make_plan(snapshot, quant=request.quant, context=request.ctx, device=pick_device(request.device))
    drafting.choose(request.draft, entry, snapshot, catalog)
    prompter = Prompter.open(snapshot)
    check_ids(snapshot.folder / "tokenizer.json", prompter.num_ids, snapshot.vocab_size)
    target = yield from admitted(snapshot, plan, "weights")
    return Opened(catalog, entry, snapshot, plan, prompter, target, choose_threads(target, request.threads))


def attach(
    opened: Opened, draft: str | EarlyExitDraft | DraftModelDraft, k: str
) -> Generator[Loading | Notice | Ready, None, Model]:
    """A drafter and a session for an open target; several may share one, in turn."""
    entry, snapshot, plan, target = opened.entry, opened.snapshot, opened.plan, opened.target
    choice = drafting.choose(draft, entry, snapshot, opened.catalog)
    k = choice.k if k == "auto" else k
    drafter = yield from make_drafter(choice, target, plan)
    if choice.notice:
        yield choice.notice
    key = f"{snapshot.folder.resolve()} {plan.quant} {target.device} x{opened.threads}"
    spec = SpecCard(choice.kind, choice.name, k, choice.reason, calibration.recall(key))
    card = ModelCard(entry.name, plan.quant, str(target.device), plan.context, opened.prompter.can_chat)
    decoders = (target, drafter.decoder) if isinstance(drafter, DraftModel) else (target,)
    ready = Ready(card, spec, measure_memory(*decoders))
    yield ready
    return Model(
        Parts(
            ready,
            opened.prompter,
            Session(target, Guarded(drafter), device=str(target.device)),
            policy=make_policy(k) if choice.kind != "off" else Constant(0),
            defaults=defaults(entry, snapshot),
            stop_ids=frozenset(snapshot.eos_ids),
            decoders=decoders,
            greedy_drafts=choice.greedy,
            calibration_key=key,
        )
    )


def admitted(snapshot: Snapshot, plan: Plan, stage: str) -> Generator[Loading, None, Decoder]:
    """Loads a model whose configuration our decoder is known to compute rightly; returns the Decoder."""
    yield Loading("checking the configuration", 0, 1, "steps")  # seconds where transformers must be imported for it
    admit(snapshot.config)
    return (yield from load_decoder(snapshot, plan, stage=stage))


def make_drafter(choice: drafting.Choice, target: Decoder, plan: Plan) -> Generator[Loading, None, Drafter]:
    if choice.kind == "early-exit":
        return EarlyExit(target, choice.exit_layer)
    if choice.snapshot is None:
        return NoDrafter()
    context = min(plan.context, read_arch(choice.snapshot.config).max_context)
    drafter = yield from admitted(choice.snapshot, Plan(plan.quant, context, plan.device), "draft weights")
    return DraftModel(drafter, target.arch.vocab_size)


def choose_threads(target: Decoder, asked: int | None) -> int:
    """The count of threads with the fastest single row; a small model may want fewer than there are cores."""
    most = psutil.cpu_count(logical=False) or 1
    counts = [asked] if asked else sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < most), most})
    best = counts[0] if len(counts) == 1 else min(counts, key=lambda n: row_seconds(target, n))
    torch.set_num_threads(best)
    return best


def row_seconds(target: Decoder, threads: int) -> float:
    """Fastest of five single-row forwards; the cache is left as it was."""
    torch.set_num_threads(threads)
    times = []
    for _ in range(5):
        started = perf_counter()
        target.forward(torch.zeros(1, dtype=torch.long))
        times.append(perf_counter() - started)
        target.crop(0)
    return min(times)


def measure_memory(target: Decoder, *drafters: Decoder) -> Memory:
    weights = target.weights.num_bytes
    return Memory(
        target_bytes=weights,
        drafter_bytes=sum(drafter.weights.num_bytes for drafter in drafters),
        kv_bytes=sum(decoder.cache.num_bytes for decoder in (target, *drafters)),
        bandwidth_peak_gbs=read_bandwidth(weights, str(target.device)),
    )
