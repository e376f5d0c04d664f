"""Sampling and limits as asked for, over the catalogue's, over the model's own, over greedy. Checks ranges.

Knows nothing about how sampling works.
"""

from __future__ import annotations

from typing import Any  # Any: generation_config.json is somebody else's

from localspec.catalog import Entry
from localspec.checkpoint import Snapshot
from localspec.engine.sampling import Sampling
from localspec.errors import UsageError
from localspec.requests import GenerateRequest, SamplingOptions

RANGES = {
    "temperature": (0, 100),
    "top_k": (0, 1 << 22),
    "top_p": (1e-9, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "seed": (0, (1 << 63) - 1),
}


def defaults(entry: Entry, snapshot: Snapshot) -> SamplingOptions:
    """What applies where the user says nothing: models.toml over generation_config.json."""
    return merge(entry.sampling, from_generation_config(snapshot.generation))


def from_generation_config(config: dict[str, Any]) -> SamplingOptions:
    """transformers' fields; a model that does not ask to sample is greedy."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    said = {name: config[name] for name in names if isinstance(config.get(name), int | float)}
    if not config.get("do_sample"):
        said = {name: value for name, value in said.items() if name == "repetition_penalty"}
        return SamplingOptions(temperature=0.0, **said)
    return SamplingOptions(**{"temperature": 1.0, **said})


def merge(first: SamplingOptions, second: SamplingOptions) -> SamplingOptions:
    """What `first` says, else what `second` says."""
    fields = SamplingOptions.__struct_fields__
    return SamplingOptions(**{f: a if (a := getattr(first, f)) is not None else getattr(second, f) for f in fields})


def resolve_sampling(asked: SamplingOptions, fallback: SamplingOptions, *, usable: int) -> Sampling:
    """The engine's record; UsageError names the option that is out of range."""
    merged = merge(asked, fallback)
    said = {f: v for f in SamplingOptions.__struct_fields__ if (v := getattr(merged, f)) is not None}
    for name, value in said.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            raise UsageError(f"{name} {value} is out of range.", hint=f"Use {low} to {high}.")
    return Sampling(**said, usable=usable)


def check_limits(request: GenerateRequest) -> None:
    if (request.messages is None) == (request.prompt is None):
        raise UsageError("A request has messages or a prompt, and not both.")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise UsageError(f"max_tokens {request.max_tokens} is out of range.", hint="Use 1 or more.")
