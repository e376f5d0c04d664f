"""The figures of an answer in the words that clients read: `timings` as llama-server has them, `usage` as OpenAI's,
and all that localspec itself counts. Knows no protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # Any: JSON

import msgspec

from localspec.core.events import Notice, SpecCard, Stats, per_second
from localspec.runtime.stats import to_dict


def timings(stats: Stats) -> dict[str, Any]:
    """llama-server's `timings`: its prompt_n counts what was read, without what the cache held; the figures of drafts
    are left out where there was none."""
    read = stats.prompt_n - stats.cached_n
    found = {
        "cache_n": stats.cached_n,
        "prompt_n": read,
        "prompt_ms": stats.prompt_ms,
        "prompt_per_token_ms": stats.prompt_ms / read if read else 0.0,
        "prompt_per_second": per_second(read, stats.prompt_ms),
        "predicted_n": stats.predicted_n,
        "predicted_ms": stats.predicted_ms,
        "predicted_per_token_ms": stats.predicted_ms / stats.predicted_n if stats.predicted_n else 0.0,
        "predicted_per_second": stats.predicted_per_second,
    }
    drafts = {"draft_n": stats.draft_n, "draft_n_accepted": stats.draft_n_accepted} if stats.draft_n else {}
    return {**found, **drafts}


def usage(stats: Stats) -> dict[str, Any]:
    """OpenAI's `usage`. Rejected drafts are not in it: there they would count as completion tokens."""
    return {
        "prompt_tokens": stats.prompt_n,
        "completion_tokens": stats.predicted_n,
        "total_tokens": stats.prompt_n + stats.predicted_n,
        "prompt_tokens_details": {"cached_tokens": stats.cached_n},
        "completion_tokens_details": {"accepted_prediction_tokens": stats.draft_n_accepted},
    }


def own_figures(spec: SpecCard, stats: Stats, notices: Sequence[Notice]) -> dict[str, Any]:
    """The drafter as it was, all Stats with their rates, and what the user should read."""
    card = {**msgspec.to_builtins(spec), "mode": spec.switch}
    found = {"spec": card, "stats": to_dict(stats)}
    return {**found, "notices": [msgspec.to_builtins(notice) for notice in notices]} if notices else found
