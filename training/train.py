"""The training loops: early-exit loss with layer dropout for the target, distillation for the draft model.

Takes batches of token ids from anywhere; a run can go on from what it was after any step. Knows nothing about text,
files or the screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from training.network import Network, drop_rates

EXIT_STRIDE = 4  # a quarter of the exits take part in each step, in rotation
MAX_DROP_RATE = 0.1
FIRST_LAYERS = 2  # in which what is asked is learned, before there are others: at a fifth of a step's cost
SOFTENED = 0.25  # chosen by the held-out questions, of 1, 3/4, 1/2 and 1/4
WARMUP_STEPS = 40
WEIGHT_DECAY = 0.05
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded conversations: ids [batch, length], and which of them the model must learn to write."""

    ids: Tensor
    learn: Tensor

    def to(self, device: str) -> Batch:
        """The same batch there."""
        return Batch(self.ids.to(device), self.learn.to(device))

    @property
    def targets(self) -> Tensor:
        """The tokens to predict, [learned]."""
        return self.ids[:, 1:][self.learn[:, 1:]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long, how fast, and from which seed."""

    steps: int
    peak_rate: float
    seed: int = 0
    half: bool = True

    def rate(self, step: int) -> float:
        """Linear warm-up, then cosine to a twentieth."""
        warmup = min(WARMUP_STEPS, self.steps // 4 + 1)
        if step < warmup:
            return self.peak_rate * (step + 1) / warmup
        done = (step - warmup) / max(self.steps - warmup, 1)
        return self.peak_rate * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)


Report = Callable[[int, float], None]
Loss = Callable[[Batch, int], Tensor]


def exits_at(step: int, num_layers: int) -> tuple[int, ...]:
    """The exits that learn in this step: every EXIT_STRIDE-th, starting one later each step, and always the last."""
    early = [e for e in range(1, num_layers) if e % EXIT_STRIDE == (step + 1) % EXIT_STRIDE]
    return (*early, num_layers)


def early_exit_loss(logits: Mapping[int, Tensor], targets: Tensor) -> Tensor:
    """Mean cross entropy over the exits, weighted by depth so that early ones do not crowd out the last."""
    losses = [depth * F.cross_entropy(rows.float(), targets) for depth, rows in logits.items()]
    return torch.stack(losses).sum() / sum(logits)


def _optimizers(network: Network) -> tuple[torch.optim.Muon, torch.optim.AdamW]:
    """Muon for the layers' matrices, which learns what is rare in far fewer steps; AdamW for the rest."""
    matrices = [p for layer in network.model.layers for p in layer.parameters() if p.dim() == 2]
    vectors = [p for p in network.parameters() if p.dim() < 2]
    tables = {"params": [network.model.embed_tokens.weight], "weight_decay": WEIGHT_DECAY}
    return (
        torch.optim.Muon(matrices, lr=0.0, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [tables, {"params": vectors, "weight_decay": 0.0}], lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        ),
    )


@dataclass(slots=True)
class Run:
    """A network, how far its training is, and what the next step needs."""

    network: Network
    schedule: Schedule
    step: int = 0
    optimizers: tuple[torch.optim.Optimizer, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.optimizers = _optimizers(self.network)

    @property
    def device(self) -> str:
        """The device of the network."""
        return next(self.network.parameters()).device.type

    def state(self) -> dict[str, Any]:  # Any: torch's state dicts
        """The state from which the run can go on; a run that is over needs no optimizers."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers if self.step < self.schedule.steps]
        network = {name: values.clone() for name, values in self.network.state_dict().items()}  # it may train on
        return {"step": self.step, "network": network, "optimizers": optimizers}

    def restore(self, state: dict[str, Any]) -> None:  # Any: torch's state dicts
        """Go on from there."""
        self.step = state["step"]
        self.network.load_state_dict(state["network"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=False):
            optimizer.load_state_dict(kept)


def _fit(run: Run, batches: Iterable[Batch], loss_of: Loss, report: Report) -> None:
    todo = range(run.step, run.schedule.steps)
    for step, batch in zip(todo, batches, strict=False):
        for group in (group for optimizer in run.optimizers for group in optimizer.param_groups):
            group["lr"] = run.schedule.rate(step)
        torch.manual_seed(run.schedule.seed * 1_000_003 + step)  # so that a run can go on at any step
        with torch.autocast(run.device, dtype=torch.bfloat16, enabled=run.schedule.half):
            loss = loss_of(batch.to(run.device), step)
        run.network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(run.network.parameters(), MAX_GRADIENT_NORM)
        for optimizer in run.optimizers:
            optimizer.step()
        run.step = step + 1
        report(step, loss.item())


def hold_first(network: Network) -> None:
    """Freezes the first layers, and what they read and write with: going on with the others, they
    forget how to choose among answers."""
    for part in (network.model.embed_tokens, network.model.norm, *network.model.layers[:FIRST_LAYERS]):
        part.requires_grad_(False)


def soften_rest(network: Network) -> None:
    """The layers behind the first ones add a quarter of what they learned to add: they recite better, but choose worse.
    Between weights as they were and as they became both are kept (Wortsman et al., arXiv 2109.01903)."""
    for name, weight in network.model.layers[FIRST_LAYERS:].named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.data *= SOFTENED


def train_first(run: Run, batches: Iterable[Batch], report: Report) -> None:
    """The first layers alone, each with its exit, as if there were no others."""
    exits = range(1, min(FIRST_LAYERS, run.network.shape.num_layers) + 1)

    def loss_of(batch: Batch, _step: int) -> Tensor:
        return early_exit_loss(run.network(batch.ids[:, :-1], exits, batch.learn[:, 1:]), batch.targets)

    _fit(run, batches, loss_of, report)


def train_target(run: Run, batches: Iterable[Batch], report: Report) -> None:
    """LayerSkip: layers drop out more the deeper they are, and exits learn in rotation through the shared head."""
    network = run.network
    rates = drop_rates(network.shape.num_layers, MAX_DROP_RATE)

    def loss_of(batch: Batch, step: int) -> Tensor:
        rng = Random(f"{run.schedule.seed}:{step}")
        skip = [layer for layer, rate in enumerate(rates) if rng.random() < rate]
        exits = exits_at(step, network.shape.num_layers)
        return early_exit_loss(network(batch.ids[:, :-1], exits, batch.learn[:, 1:], skip), batch.targets)

    _fit(run, batches, loss_of, report)


def train_text(run: Run, batches: Iterable[Batch], report: Report) -> None:
    """The text alone, read at the last layer: for a draft model without a teacher of its own tokens."""
    depth = run.network.shape.num_layers

    def loss_of(batch: Batch, _step: int) -> Tensor:
        logits = run.network(batch.ids[:, :-1], [depth], batch.learn[:, 1:])[depth]
        return F.cross_entropy(logits.float(), batch.targets)

    _fit(run, batches, loss_of, report)


def train_draft(run: Run, teacher: Network, batches: Iterable[Batch], report: Report) -> None:
    """Distillation: half of the loss is the text, half the teacher's own distribution over it."""
    student_depth, teacher_depth = run.network.shape.num_layers, teacher.shape.num_layers

    def loss_of(batch: Batch, _step: int) -> Tensor:
        ids, rows = batch.ids[:, :-1], batch.learn[:, 1:]
        with torch.no_grad():
            wanted = teacher(ids, [teacher_depth], rows)[teacher_depth].float().softmax(-1)
        logits = run.network(ids, [student_depth], rows)[student_depth].float()
        return (F.cross_entropy(logits, batch.targets) + F.cross_entropy(logits, wanted)) / 2

    _fit(run, batches, loss_of, report)
