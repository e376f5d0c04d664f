"""The training loops: early-exit loss with layer dropout for the target, distillation for the draft model.

Takes batches of token ids from anywhere. Knows nothing about text, files or the screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.recipe.network import Network, drop_rates

EXIT_STRIDE = 4  # a quarter of the exits take part in each step, in rotation
MAX_DROP_RATE = 0.1
WARMUP_STEPS = 60
WEIGHT_DECAY = 0.05
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded conversations: ids [batch, length], and which of them the model must learn to write."""

    ids: Tensor
    learn: Tensor

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


def _optimizer(network: Network) -> torch.optim.AdamW:
    matrices = [p for p in network.parameters() if p.dim() == 2]
    vectors = [p for p in network.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def _fit(network: Network, batches: Iterable[Batch], schedule: Schedule, loss_of: Loss, report: Report) -> None:
    optimizer = _optimizer(network)
    for step, batch in zip(range(schedule.steps), batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=schedule.half):
            loss = loss_of(batch, step)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        report(step, loss.item())


def train_target(network: Network, batches: Iterable[Batch], schedule: Schedule, report: Report) -> None:
    """LayerSkip: layers drop out more the deeper they are, and exits learn in rotation through the shared head."""
    rates, rng = drop_rates(network.shape.num_layers, MAX_DROP_RATE), Random(schedule.seed)

    def loss_of(batch: Batch, step: int) -> Tensor:
        skip = [layer for layer, rate in enumerate(rates) if rng.random() < rate]
        exits = exits_at(step, network.shape.num_layers)
        return early_exit_loss(network(batch.ids[:, :-1], exits, batch.learn[:, 1:], skip), batch.targets)

    _fit(network, batches, schedule, loss_of, report)


def train_draft(
    network: Network, teacher: Network, batches: Iterable[Batch], schedule: Schedule, report: Report
) -> None:
    """Distillation: half of the loss is the text, half the teacher's own distribution over it."""
    student_depth, teacher_depth = network.shape.num_layers, teacher.shape.num_layers

    def loss_of(batch: Batch, _step: int) -> Tensor:
        ids, rows = batch.ids[:, :-1], batch.learn[:, 1:]
        with torch.no_grad():
            wanted = teacher(ids, [teacher_depth], rows)[teacher_depth].float().softmax(-1)
        logits = network(ids, [student_depth], rows)[student_depth].float()
        return (F.cross_entropy(logits, batch.targets) + F.cross_entropy(logits, wanted)) / 2

    _fit(network, batches, schedule, loss_of, report)
