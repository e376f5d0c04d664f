"""What servers report of an answer, in one record: tokens, times, and of speculation (rounds, drafted, accepted).

Each server has its own words for these; what none says stays None and is never guessed. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar  # Any: JSON from a stranger

import msgspec
from msgspec.structs import replace

from localspec.core.events import FinishReason, Stats, Step
from localspec.core.server_speculation import SERVER, SHARED, UNREPORTED

OFF = "off"
MOST = 1 << 40
MOST_POSITIONS = 256

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Span = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
T = TypeVar("T")


class ServerPart(msgspec.Struct, frozen=True):
    """A part of a server's answer; unknown fields are ignored."""


class PromptDetails(ServerPart, frozen=True):
    cached_tokens: Count | None = None


class Usage(ServerPart, frozen=True):
    """OpenAI's."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Timings(ServerPart, frozen=True):
    """llama-server's: prompt_n without what the cache held; without drafts the last two are absent."""

    cache_n: Count | None = None
    prompt_n: Count | None = None
    prompt_ms: Span | None = None
    predicted_n: Count | None = None
    predicted_ms: Span | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class VllmSpeculation(ServerPart, frozen=True):
    """vLLM's metrics.speculative_decoding. `acceptance_histogram`: steps by the drafted tokens that they accepted."""

    num_spec_steps: Count
    num_draft_tokens: Count
    num_accepted_draft_tokens: Count


class SglangSpeculation(ServerPart, frozen=True):
    """SGLang's sglext.spec_tokens_details, or meta_info; older versions have the last two names."""

    spec_verify_ct: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_draft_token_num: Count | None = None
    spec_accept_token_num: Count | None = None


class LmStudioStats(ServerPart, frozen=True):
    """LM Studio's of /api/v0, in seconds."""

    time_to_first_token: Span | None = None
    generation_time: Span | None = None
    total_draft_tokens_count: Count | None = None
    accepted_draft_tokens_count: Count | None = None
    ignored_draft_tokens_count: Count | None = None


class OllamaDone(ServerPart, frozen=True):
    """Ollama's last line, in nanoseconds."""

    prompt_eval_count: Count | None = None
    prompt_eval_duration: Count | None = None
    eval_count: Count | None = None
    eval_duration: Count | None = None


class Figures(ServerPart, frozen=True):
    """Tokens and milliseconds; None: not reported. `prompt_n` counts what the cache held, too. `drafted` None: nothing
    is known of speculation. `shared`: only totals are, which other users' answers are in."""

    prompt_n: int | None = None
    cached_n: int | None = None
    prompt_ms: float | None = None
    ttft_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    ignored: int = 0
    shared: bool = False

    def with_(self, **found: Any) -> Figures:
        """Adds what was found; None changes nothing."""
        return replace(self, **{name: value for name, value in found.items() if value is not None})


def part(found: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A part of an answer, if it is there and well formed: of no other is anything shown."""
    try:
        return msgspec.convert(found[name], kind) if isinstance(found.get(name), dict) else None
    except msgspec.ValidationError:
        return None


def added(before: Figures, found: Mapping[str, Any]) -> Figures:
    """The figures with those of one more chunk, of whichever server."""
    now = before
    if usage := part(found, "usage", Usage):
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
        now = now.with_(prompt_n=usage.prompt_tokens, predicted_n=usage.completion_tokens, cached_n=cached)
    if timings := part(found, "timings", Timings):
        now = of_timings(now, timings)
    if stats := part(found, "stats", LmStudioStats):
        now = of_lmstudio(now, stats)
    metrics, extension = found.get("metrics"), found.get("sglext")
    if isinstance(metrics, dict) and (speculation := part(metrics, "speculative_decoding", VllmSpeculation)):
        accepted = speculation.num_accepted_draft_tokens
        now = drafts(now, speculation.num_draft_tokens, accepted, rounds=speculation.num_spec_steps)
    if isinstance(extension, dict) and (details := part(extension, "spec_tokens_details", SglangSpeculation)):
        now = of_sglang(now, details)
    choices = found.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and (details := part(first, "meta_info", SglangSpeculation)):
        now = of_sglang(now, details)
    return now


def drafts(
    before: Figures, drafted: int | None, accepted: int | None, *, rounds: int | None = None, ignored: int = 0
) -> Figures:
    """Adds these drafts, if the counts can be true."""
    if drafted is None or accepted is None or accepted + ignored > drafted:
        return before
    return before.with_(drafted=drafted, accepted=accepted, rounds=rounds, ignored=ignored)


def of_timings(before: Figures, found: Timings) -> Figures:
    whole = None if found.prompt_n is None else found.prompt_n + (found.cache_n or 0)
    now = before.with_(
        prompt_n=before.prompt_n or whole,
        cached_n=found.cache_n,
        prompt_ms=found.prompt_ms,
        predicted_n=found.predicted_n,
        predicted_ms=found.predicted_ms,
    )
    return drafts(now, found.draft_n, found.draft_n_accepted)


def of_lmstudio(before: Figures, found: LmStudioStats) -> Figures:
    now = before.with_(
        ttft_ms=milliseconds(found.time_to_first_token), predicted_ms=milliseconds(found.generation_time)
    )
    ignored = found.ignored_draft_tokens_count or 0
    return drafts(now, found.total_draft_tokens_count, found.accepted_draft_tokens_count, ignored=ignored)


def of_sglang(before: Figures, found: SglangSpeculation) -> Figures:
    drafted = (
        found.spec_num_proposed_drafts if found.spec_num_proposed_drafts is not None else found.spec_draft_token_num
    )
    accepted = (
        found.spec_num_correct_drafts if found.spec_num_correct_drafts is not None else found.spec_accept_token_num
    )
    return drafts(before, drafted, accepted, rounds=found.spec_verify_ct)


def of_ollama(found: Mapping[str, Any]) -> Figures:
    """Reads its last line."""
    try:
        done = msgspec.convert(found, OllamaDone)
    except msgspec.ValidationError:
        return Figures()
    return Figures(
        prompt_n=done.prompt_eval_count,
        prompt_ms=None if done.prompt_eval_duration is None else done.prompt_eval_duration / 1e6,
        predicted_n=done.eval_count,
        predicted_ms=None if done.eval_duration is None else done.eval_duration / 1e6,
    )


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def counted(figures: Figures, step: Step) -> Figures:
    """The figures with one more round that localspec sent: what is known of an answer that is stopped."""
    return replace(
        figures,
        prompt_n=step.position if figures.prompt_n is None else figures.prompt_n,
        predicted_n=(figures.predicted_n or 0) + len(step.tokens),
        predicted_ms=(figures.predicted_ms or 0.0) + step.draft_ms + step.verify_ms,
        rounds=(figures.rounds or 0) + bool(step.drafted),
        drafted=(figures.drafted or 0) + step.drafted,
        accepted=(figures.accepted or 0) + step.accepted,
        ignored=figures.ignored + step.ignored,
    )


def stats(
    figures: Figures, *, finish: FinishReason, ttft_ms: float, writing_ms: float, context_max: int, off: bool
) -> Stats:
    """The sums that the screen and the history know. Where the server reports no times, those of the connection stand
    for them: `ttft_ms` to the first text, `writing_ms` from there to the last. `off`: the request turned speculation
    off."""
    drafted, accepted = figures.drafted or 0, figures.accepted or 0
    prompt_n, predicted_n = figures.prompt_n or 0, figures.predicted_n or 0
    return Stats(
        prompt_n=prompt_n,
        cached_n=figures.cached_n or 0,
        prompt_ms=figures.prompt_ms or 0.0,
        ttft_ms=figures.ttft_ms or ttft_ms,
        predicted_n=predicted_n,
        predicted_ms=writing_ms if figures.predicted_ms is None else figures.predicted_ms,
        draft_kind=draft_kind(figures, off=off),
        draft_rounds=figures.rounds or 0,
        draft_n=drafted,
        draft_n_accepted=accepted,
        draft_n_rejected=drafted - accepted - figures.ignored,
        draft_n_ignored=figures.ignored,
        context_used=prompt_n + predicted_n,
        context_max=context_max,
        finish_reason=finish,
    )


def draft_kind(figures: Figures, *, off: bool) -> str:
    """How much is known of speculation, as Stats has it."""
    if figures.drafted is not None:
        return SERVER
    return OFF if off else SHARED if figures.shared else UNREPORTED
