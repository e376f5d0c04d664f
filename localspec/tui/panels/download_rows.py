"""The downloads as lines: a bar, how much of how much, how fast; or why one waits. Knows records, no queue."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import cut
from localspec.hub.queue import Download
from localspec.tui.panels.hub_rows import QUIET, padded

WIDE, WIDE_BAR, BAR = 100, 16, 10  # columns
NAME = (16, 40)  # of columns, at least and at most
AROUND = 48  # columns: a sign, how much of how much, the rest
SIGNS = {"downloading": "↓", "retrying": "!", "waiting": "·", "paused": "⏸", "failed": "!", "done": "✓"}
STAGES = {"resolving": "asking the hub", "headers": "reading headers", "checking": "checking what is here"}


def percent_line(item: Download | None) -> str:
    """The one that runs, for the state line of a chat."""
    if item is None:
        return ""
    share = f"{item.percent} % " if item.total else ""
    return f"{SIGNS[item.state]} {share}{one_line(item.request.repo).rpartition('/')[2]}"


def here_words(item: Download) -> str:
    """The same for a row of a search."""
    return f"{SIGNS[item.state]} {item.percent} %" if item.state != "done" else "✓ disk"


def total_line(items: Sequence[Download]) -> str:
    """All that is not complete: how much of how much, how fast, how long still."""
    waiting = [item for item in items if item.state != "done"]
    if not waiting:
        return "Nothing is being downloaded."
    done, total = sum(item.done for item in waiting), sum(item.total for item in waiting)
    speed = next((item.bytes_per_second for item in waiting if item.is_running and item.bytes_per_second), None)
    parts = [f"{amount(done)} of {size_words(total)}"] if total else []
    if speed:
        parts += [f"{size_words(speed)}/s", duration((total - done) / speed)]
    return " · ".join(parts) or f"{len(waiting)} waiting"


def amount(num_bytes: int) -> str:
    return size_words(num_bytes) if num_bytes else "0"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def listed(items: Sequence[Download], waited: dict[str, float], width: int) -> list[Content]:
    """`waited`: seconds since the hub's process said that it will try again, by key."""
    bar = WIDE_BAR if width >= WIDE else BAR
    name = max(NAME[0], min(NAME[1], width - bar - AROUND))
    running = next((item for item in items if item.is_running), None)
    return [line(item, running, waited.get(item.key, 0.0), (name, bar)) for item in items]


def line(item: Download, running: Download | None, waited: float, widths: tuple[int, int]) -> Content:
    (width, cells), sign = widths, SIGNS[item.state]
    name = padded(cut(title(item), width), width)
    if item.state in ("retrying", "failed"):
        return Content.assemble(
            (f"{sign} ", "bold $text-warning"), f"{name}  ", (trouble(item, waited), "$text-warning")
        )
    share = item.done / item.total if item.total else 0.0
    full = min(cells, int(cells * share))
    bar = f"{'█' * full}{'░' * (cells - full)}"
    size = f"{item.done / 1e9:.1f}/{size_words(item.total)}" if item.total >= 1e9 else amount(item.total)
    tone = "$text-accent" if item.is_running else QUIET
    return Content.assemble(f"{sign} {name}  ", (bar, tone), f"  {size:<12}", (f"  {rest(item, running)}", QUIET))


def title(item: Download) -> str:
    """A model, with its drafter where one was named."""
    request = item.request
    variant = f":{request.variant}" if request.variant else ""
    return f"{one_line(request.repo + variant)}{f' + {one_line(request.draft)}' if '/' in request.draft else ''}"


def rest(item: Download, running: Download | None) -> str:
    match item.state:
        case "downloading" if item.stage in STAGES:
            return STAGES[item.stage]
        case "downloading" if item.stage == "linking":
            return "putting it together"
        case "downloading":
            speed = f"{size_words(item.bytes_per_second)}/s" if item.bytes_per_second else ""
            left = duration(item.eta_s) if item.eta_s is not None else ""
            return " · ".join(filter(None, (f"{item.percent} %", speed, left)))
        case "paused":
            return f"paused at {item.percent} %" if item.total else "paused"
        case "waiting":
            return "waits for the one above" if running else "waits"
        case _:
            return "complete"


def trouble(item: Download, waited: float) -> str:
    """Why it does not go on, and what comes next."""
    reason = one_line(item.reason).rstrip(".")
    if item.state == "failed":
        return f"{reason}. r tries again"
    left = max(0, round(item.retry_seconds - waited))
    return f"{reason}; tries again in {left} s, r now" if left else f"{reason}; trying again"
