"""The two ways to answer that /compare sets side by side. Knows no widgets and no engine."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from localspec.core.errors import UsageError
from localspec.core.events import ModelCard, SpecCard
from localspec.core.requests import GenerateRequest
from localspec.core.server_speculation import SERVER
from localspec.engine.drafters.table import EARLY_EXIT, check_exit, parse
from localspec.tui.chat.draft_length import drafter
from localspec.tui.control.spec_switch import lack

ONLY_OFF = "With a server, /compare sets its drafting beside none; it takes no argument."
SEED = 1  # where the user has none: both then draw the same tokens, if the engine computes the same


@dataclass(frozen=True, slots=True)
class CompareMethod:
    """One way of drafting: none, the loaded drafter, or the target's first layers."""

    name: str
    speculate: bool
    exit_layer: int | None = None

    def asks(self, request: GenerateRequest) -> GenerateRequest:
        """The question in this way, with one seed for all ways."""
        fixed = request.sampling.fixed_seed
        seed = SEED if fixed is None else fixed
        sampling = msgspec.structs.replace(request.sampling, seed=seed)
        return msgspec.structs.replace(request, sampling=sampling, speculate=self.speculate, exit_layer=self.exit_layer)


PLAIN = CompareMethod("plain", speculate=False)


def compared(typed: str, spec: SpecCard | None, model: ModelCard | None) -> tuple[CompareMethod, CompareMethod]:
    """Plain and whoever drafts now; or one of them and an early exit, which needs nothing loaded."""
    loaded = CompareMethod(drafter(spec), speculate=True) if spec is not None and spec.kind != "off" else None
    if spec is not None and spec.kind == SERVER and (typed or lack(spec)):
        raise UsageError(lack(spec) or ONLY_OFF)
    asked = parse(typed.lower() or "auto")
    if asked.kind in ("auto", "off"):
        if loaded is None:
            raise UsageError(lack(spec))
        return PLAIN, loaded
    if spec is None or model is None:
        raise UsageError(lack(None))
    if asked.kind != EARLY_EXIT.name:
        raise UsageError(f"'{typed}' is not loaded. If it is a drafter: /draft {typed}, then /compare.")
    if not asked.argument:
        raise UsageError("Write /compare early-exit:E, where E is the exit layer.")
    layer = int(asked.argument)
    check_exit(layer, model.layers, model.name)
    if loaded is None or spec.exit_layer == layer:
        return PLAIN, loaded or early_exit(layer)
    return loaded, early_exit(layer)


def early_exit(layer: int) -> CompareMethod:
    return CompareMethod(f"{EARLY_EXIT.name}:{layer}", speculate=True, exit_layer=layer)
