"""What a server reports about its speculation, in words. Knows sums and no servers.

In a server's stats and cards these kinds stand where a local model has the kind of its drafter.
"""

from __future__ import annotations

from localspec.core.events import Stats

SERVER, UNREPORTED, SHARED = "server", "unreported", "shared"
KINDS = (SERVER, UNREPORTED, SHARED)
NOT_REPORTED = "speculation: not reported"
TOTALS_ONLY = "speculation: shared server, totals only"
NOTHING = "nothing was drafted (server)"


def is_served(stats: Stats) -> bool:
    """Whether a server wrote it, and says no more of its drafts than the words here."""
    return stats.draft_kind in KINDS


def speculation(stats: Stats) -> str:
    """How far the server's drafts were accepted, as far as it says so."""
    if stats.draft_kind != SERVER:
        return TOTALS_ONLY if stats.draft_kind == SHARED else NOT_REPORTED
    if not stats.draft_n:
        return NOTHING
    share = 100 * stats.draft_n_accepted / stats.draft_n
    rounds = stats.draft_rounds
    each = f", {stats.draft_n_accepted / rounds:.1f} accepted per round" if rounds else ""
    return f"{share:.0f} % of {stats.draft_n:,} drafted accepted{each} (server)"
