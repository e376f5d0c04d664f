"""Sampling and limits as asked for, over the catalogue's, over the model's own, over greedy. Checks ranges.

Knows nothing about how sampling works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: generation_config.json is somebody else's

from localspec.core.errors import UsageError
from localspec.core.requests import GenerateRequest, SamplingOptions, is_in_range, range_words
from localspec.engine.sampling import Sampling
from localspec.models.catalog import Entry
from localspec.models.checkpoint import Snapshot


def defaults(entry: Entry, snapshot: Snapshot) -> SamplingOptions:
    """What applies where the user says nothing: models.toml over generation_config.json."""
    return entry.sampling.over(from_generation_config(snapshot.generation))


def from_generation_config(config: dict[str, Any]) -> SamplingOptions:
    """transformers' fields, as far as they are in range; a model that does not ask to sample is greedy."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    said = {name: config[name] for name in names if is_in_range(name, config.get(name))}
    if not config.get("do_sample"):
        said = {name: value for name, value in said.items() if name == "repetition_penalty"}
        return SamplingOptions(temperature=0.0, **said)
    return SamplingOptions(**{"temperature": 1.0, **said})


def resolve_sampling(asked: SamplingOptions, fallback: SamplingOptions, *, usable: int) -> Sampling:
    """The engine's record; UsageError names the option that is out of range."""
    options = asked.over(fallback)
    said = options.said
    check_ranges(said)
    return Sampling(**{**said, "seed": options.fixed_seed}, usable=usable)


def check_ranges(said: Mapping[str, float | int]) -> None:
    for name, value in said.items():
        if not is_in_range(name, value):
            raise UsageError(f"{name} {str(value)[:40]} is out of range.", hint=f"Use {range_words(name)}.")


def check_limits(request: GenerateRequest) -> None:
    if (request.messages is None) == (request.prompt is None):
        raise UsageError("A request has messages or a prompt, and not both.", hint="Give one of them.")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise UsageError(f"max_tokens {request.max_tokens} is out of range.", hint="Use 1 or more.")
