"""A round as a record of a trace: every proposed token with its drafter, its outcome and its probabilities.

Knows rounds and tokenizers; writes nothing.
"""

from __future__ import annotations

from msgspec.structs import replace
from tokenizers import Tokenizer

from localspec.core.events import Ready, Step
from localspec.core.requests import SamplingOptions
from localspec.core.trace import VERSION, Own, Proposed, TracedRound, TraceHead
from localspec.core.version import __version__
from localspec.engine.drafters import table
from localspec.engine.protocols import Round


def head(ready: Ready, sampling: SamplingOptions) -> TraceHead:
    """The head of a trace: the loaded model, and the sampling options that were asked for."""
    model, spec = ready.model, ready.spec
    drafter = table.spelling(spec) or ""
    return TraceHead(VERSION, __version__, model.name, model.quant, model.device, drafter, spec.k, sampling.given)


def traced(done: Round, step: Step, tokenizer: Tokenizer) -> TracedRound:
    """The record of a round; `step` is its text, which a stop string may have cut."""
    offer = (done.copied or done.choice.offer) if done.draft else None
    own = step.tokens[-1] if len(step.tokens) > step.accepted else None
    return TracedRound(
        tuple(proposed(done, step, position, tokenizer) for position in range(done.drafted)),
        Own(own.id, own.text, own.source) if own else None,
        step.draft_ms,
        step.verify_ms,
        offer.bucket if offer else None,
        offer.origin if offer else None,
    )


def proposed(done: Round, step: Step, position: int, tokenizer: Tokenizer) -> Proposed:
    id = done.draft[position]
    tested = done.drafted - step.ignored
    text = tokenizer.decode([id], skip_special_tokens=False)
    drafter = done.drafters[position] if position < len(done.drafters) else ""
    found = Proposed(id, text, drafter, "accepted" if position < step.accepted else "rejected")
    if position >= tested:
        found = replace(found, outcome="ignored")
    if done.probabilities is None:
        return found
    known = done.probabilities
    return replace(found, p_drafter=known.drafter[position], p_target=known.target[position])
