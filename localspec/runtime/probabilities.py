"""What an answer records of its tokens' probabilities, where that was asked for. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.requests import GenerateRequest
from localspec.engine.logprob_sampler import LogprobSampler
from localspec.engine.protocols import Round, Sampler
from localspec.engine.recording_sampler import RecordingSampler

Recorder = RecordingSampler | LogprobSampler


def recording(sampler: Sampler, request: GenerateRequest, usable: int) -> tuple[Sampler, list[Recorder]]:
    """The answer's sampler, and those around it that record. `usable`: ids from there on are padding."""
    recorders: list[Recorder] = []
    if request.logprobs is not None:
        sampler = LogprobSampler(sampler, request.logprobs, usable)
        recorders.append(sampler)
    if request.draft_probabilities:
        sampler = RecordingSampler(sampler)
        recorders.append(sampler)
    return sampler, recorders


def recorded(done: Round, recorders: Sequence[Recorder]) -> Round:
    """The last round, with what was recorded of it."""
    for recorder in recorders:
        done = recorder.recorded(done)
    return done
