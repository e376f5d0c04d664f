"""Everything known of an answer, and of what is loaded, in lines of words. Knows records and no widgets."""

from __future__ import annotations

from localspec.core.events import DrafterSums, ModelCard, SpecCard, Stats
from localspec.core.main_memory import CACHED_BYTES
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import is_served, speculation
from localspec.core.sizes import size_words
from localspec.engine.drafters.table import kind_name
from localspec.tui.chat.draft_length import drafting
from localspec.tui.chat.gain import MEASURED, plain
from localspec.tui.panels.speed_panel import held
from localspec.tui.panels.stats_line import ending

LABEL = 12


def lines(pairs: list[tuple[str, str]]) -> str:
    """Lays pairs of label and text out, one a line, without those that have no text."""
    return "\n".join(f"{label:<{LABEL}}{words}" for label, words in pairs if words)


def answer_report(stats: Stats) -> str:
    """All figures of one answer."""
    start = [
        ("ended", ending(stats)),
        ("read as", one_line(stats.read_as)),
        ("prompt", prompt(stats)),
        ("first token", seconds(stats.ttft_ms)),
    ]
    pace = f"{stats.predicted_per_second:.1f} tok/s" if stats.predicted_ms and stats.predicted_n else ""
    speed = [("tokens", tokens(stats)), ("speed", pace)]
    most = f" of {stats.context_max:,}" if stats.context_max else ""
    held = [("memory", memory(stats)), ("reads", reads(stats)), ("context", f"{stats.context_used:,}{most} tokens")]
    if is_served(stats):
        return lines([*start, *speed, ("drafts", speculation(stats)), *held])
    return lines([*start, *speed, *drafted(stats), ("time", times(stats)), *held])


def prompt(stats: Stats) -> str:
    known = f", {stats.cached_n:,} of them read before" if stats.cached_n else ""
    taken = f", read in {seconds(stats.prompt_ms)}" if stats.prompt_ms else ""
    return f"{stats.prompt_n:,} tokens{known}{taken}"


def tokens(stats: Stats) -> str:
    rounds = f" in {stats.rounds:,} rounds, {stats.tokens_per_step:.2f} per round" if stats.rounds else ""
    return f"{stats.predicted_n:,}{rounds}"


def gained(stats: Stats) -> list[tuple[str, str]]:
    """The speed-up, how it is known, and what the speed would be without it."""
    if not stats.speedup:
        return [("speed-up", "unknown: this machine's speed varies" if stats.baseline_tps else "not known yet")]
    found = f"×{stats.speedup:.2f} in the rounds"
    return [("plain", f"about {plain(stats):.1f} tok/s, {MEASURED.format(rounds='rounds')}"), ("speed-up", found)]


def drafted(stats: Stats) -> list[tuple[str, str]]:
    """The result of drafting, as rows; none where nothing was drafted."""
    if not stats.draft_n:
        return []
    accepted, rejected, ignored = stats.draft_n_accepted, stats.draft_n_rejected, stats.draft_n_ignored
    positions = " · ".join(f"{100 * share:.0f} %" for share in stats.accept_per_pos)
    return [
        *gained(stats),
        ("drafted", f"{stats.draft_n:,}: {accepted:,} accepted, {rejected:,} rejected, {ignored:,} unused"),
        *[(one_line(kind_name(kind)), counted(sums)) for kind, sums in sorted(stats.by_drafter.items())],
        ("accepted", f"{100 * stats.acceptance_rate:.0f} %" if stats.acceptance_rate is not None else ""),
        ("by position", positions),
    ]


def counted(sums: DrafterSums) -> str:
    """What one kind of drafter proposed, and how often it was right."""
    share = f", {100 * sums.acceptance_rate:.0f} %" if sums.acceptance_rate is not None else ""
    return f"{sums.drafted:,}: {sums.accepted:,} accepted{share}"


def times(stats: Stats) -> str:
    parts = (("draft", stats.draft_ms), ("verify", stats.verify_ms), ("else", stats.overhead_ms))
    return " · ".join(f"{name} {milliseconds / 1000:.2f} s" for name, milliseconds in parts)


def memory(stats: Stats) -> str:
    peak = f", {size_words(stats.peak_bytes)} for all of the program at most" if stats.peak_bytes else ""
    return f"{size_words(held(stats))} for weights and caches{peak}" if held(stats) else ""


def reads(stats: Stats) -> str:
    """The speed at which the weights were read, in words; "" where it is unknown. The most that was measured when the
    model was loaded is left out where this is more: the machine was busy then."""
    if stats.bandwidth_gbs is None:
        return ""
    most = stats.bandwidth_peak_gbs or 0.0
    cached = "; so small a model may be read from a cache" if 0 < stats.target_bytes < CACHED_BYTES else ""
    peak = f" of {most:.1f} at best{cached}" if most >= stats.bandwidth_gbs else ""
    return f"{stats.bandwidth_gbs:.1f} GB/s{peak}"


def seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s" if milliseconds else ""


def load_report(model: ModelCard, spec: SpecCard, sizes: Stats) -> str:
    """A report of the loaded model. `sizes` are those of the load."""
    chat = "it has a chat template" if model.chat else "no chat template: it continues texts"
    if model.server:
        context = f"{model.context_max:,} tokens" if model.context_max else "the server does not say"
        speculates = drafting(spec) or "see each answer"
        return lines(
            [
                ("model", one_line(model.name)),
                ("server", one_line(model.device)),
                ("context", context),
                ("drafts", speculates),
            ]
        )
    beside = f" · drafter {size_words(sizes.drafter_bytes)}" if sizes.drafter_bytes else ""
    held = f"weights {size_words(sizes.target_bytes)}{beside} · KV cache {size_words(sizes.kv_bytes)}"
    return lines(
        [
            ("model", one_line(model.name)),
            ("layers", str(model.layers or "")),
            ("format", f"{one_line(model.quant)} on {one_line(model.device)}"),
            ("context", f"{model.context_max:,} tokens"),
            ("drafter", drafting(spec)),
            ("memory", held),
            ("chat", chat),
        ]
    )
