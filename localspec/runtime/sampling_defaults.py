"""Resolves sampling options: the request's over the catalogue's, over the model's own, over greedy. Checks ranges.
The last default of `chat` and `run` comes with their requests: config/precedence.py.

Knows nothing about how sampling works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: generation_config.json is the model's

from localspec.core.errors import UsageError
from localspec.core.requests import MOST_BEAMS, MOST_LIKELIEST, SAMPLING_FIELDS, GenerateRequest, SamplingOptions
from localspec.engine.sampling import Sampling
from localspec.models.catalog import Entry
from localspec.models.checkpoint import Snapshot


def defaults(entry: Entry, snapshot: Snapshot) -> SamplingOptions:
    """The options without any of the user's: models.toml over generation_config.json."""
    return entry.sampling.over(from_generation_config(snapshot.generation))


def from_generation_config(config: dict[str, Any]) -> SamplingOptions:
    """Reads transformers' fields that are in range. With do_sample false a model is greedy by its own word; one that
    says nothing of do_sample names no temperature."""
    fields = {name: field for name, field in SAMPLING_FIELDS.items() if name != "seed"}
    found = {name: config[name] for name, field in fields.items() if field.takes(config.get(name))}
    if not config.get("do_sample"):
        greedy = 0.0 if config.get("do_sample") is False else None
        return SamplingOptions(temperature=greedy, repetition_penalty=found.get("repetition_penalty"))
    return SamplingOptions(**{"temperature": 1.0, **found})


def resolve_sampling(asked: SamplingOptions, fallback: SamplingOptions, *, usable: int) -> Sampling:
    """The engine's record; UsageError names the option that is out of range."""
    options = asked.over(fallback)
    check_ranges(options.given)
    return Sampling(**{**options.given, "seed": options.fixed_seed}, usable=usable)


def check_ranges(options: Mapping[str, float | int]) -> None:
    for name, value in options.items():
        if not SAMPLING_FIELDS[name].takes(value):
            raise UsageError(f"{name} {str(value)[:40]} is out of range.", hint=f"Use {SAMPLING_FIELDS[name].range}.")


def check_limits(request: GenerateRequest) -> None:
    if (request.messages is None) == (request.prompt is None):
        raise UsageError("A request has either messages or a prompt.", hint="Give one of them.")
    if request.messages is not None and not request.messages:
        raise UsageError("The prompt is an empty list of messages.", hint="Give at least one message of the user.")
    check_ranges(request.sampling.given)
    if request.max_tokens is not None and request.max_tokens < 1:
        raise UsageError(f"max_tokens {request.max_tokens} is out of range.", hint="Use 1 or more.")
    if not 1 <= request.beams <= MOST_BEAMS:
        raise UsageError(f"beams {request.beams} is out of range.", hint=f"Use 1 to {MOST_BEAMS}.")
    if request.logprobs is not None and not 0 <= request.logprobs <= MOST_LIKELIEST:
        raise UsageError(f"logprobs {request.logprobs} is out of range.", hint=f"Use 0 to {MOST_LIKELIEST}.")
    if request.beams > 1:
        check_greedy(request.sampling)
        if request.logprobs is not None:
            raise UsageError("A beam search reports no log-probabilities.", hint="Leave out beams or logprobs.")


def check_greedy(options: SamplingOptions) -> None:
    """UsageError for an option that beam search has no use for."""
    sampled = {name for name, value in options.given.items() if (name, value) != ("temperature", 0)}
    if useless := sampled - {"repetition_penalty"}:
        name = min(useless)
        raise UsageError(f"Beam search does not sample, so {name} has no effect.", hint=f"Leave out {name} or beams.")


def greedy(options: SamplingOptions) -> SamplingOptions:
    """What beam search takes of them."""
    return SamplingOptions(repetition_penalty=options.repetition_penalty)
