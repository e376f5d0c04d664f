"""The downloads as lines: a bar, how much of how much, how fast; or why one waits. Knows records, no queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from localspec.core.sanitize import one_line
from localspec.core.sizes import rate_words, size_words
from localspec.history.text.columns import cells, cut
from localspec.hub.meter import LONGEST_SECONDS
from localspec.hub.queue import Download, State
from localspec.hub.records import STAGES
from localspec.tui.panels.hub_rows import padded, short
from localspec.tui.themes import QUIET

WIDE, WIDE_BAR, BAR = 100, 16, 10  # columns
LEAST_NAME, LEAST_BAR = 16, 4  # columns
SIGN, GAP = 2, 2  # columns: of a sign, and between two others
RATE = 30  # columns that share, rate and time left may come to have
SLOW = 8  # columns more where it is slow
SIGNS = {"downloading": "↓", "retrying": "!", "waiting": "·", "paused": "⏸", "failed": "!", "done": "✓"}
STOPPED: tuple[State, ...] = ("paused", "failed")


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns of a name, a bar and a size; 0 for none."""

    name: int
    bar: int
    size: int


def percent_line(item: Download | None) -> str:
    """The one that runs, for the state line of a chat."""
    if item is None:
        return ""
    share = f"{item.percent} % " if item.total else ""
    return f"{SIGNS[item.state]} {share}{one_line(item.request.repo).rpartition('/')[2]}"


def here_words(item: Download) -> str:
    """The same for a row of a search."""
    return f"{SIGNS[item.state]} {item.percent} %"


def total_line(items: Sequence[Download]) -> str:
    """All that goes on, or where nothing does all that is not complete: how much of how much, how fast, how long
    still. What does not go on by itself is counted after it."""
    unfinished = [item for item in items if item.state != "done"]
    if not unfinished:
        return "Nothing is being downloaded."
    going = [item for item in unfinished if item.state not in STOPPED]
    counted = going or unfinished
    done, total = sum(item.done for item in counted), sum(item.total for item in counted)
    first = next((item for item in going if item.is_running and item.bytes_per_second), None)
    parts = [f"{amount(done)} of {size_words(total)}"] if total else []
    if first and first.bytes_per_second:
        left = (total - done) / first.bytes_per_second
        parts.append(rate_words(first.bytes_per_second, slow=first.slow))
        parts += [duration(left)] if left < LONGEST_SECONDS else []
    stopped = {state: sum(item.state == state for item in unfinished) for state in STOPPED}
    parts += [f"{number} {state}" for state, number in stopped.items() if number]
    return " · ".join(parts) or f"{len(going)} waiting"


def amount(num_bytes: int) -> str:
    return size_words(num_bytes) if num_bytes else "0"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def listed(items: Sequence[Download], waited: dict[str, float], width: int) -> list[Content]:
    """`waited`: seconds since the hub's process reported that it will try again, by key."""
    running = next((index for index, item in enumerate(items) if item.is_running), len(items))
    ends = [rest(item, follows=index > running) for index, item in enumerate(items)]
    widths = widths_of(items, ends, width)
    return [line(item, end, waited.get(item.key, 0.0), widths) for item, end in zip(items, ends, strict=True)]


def widths_of(items: Sequence[Download], ends: Sequence[str], width: int) -> Widths:
    """The words at the end stay whole; what they leave has the name, then the size, then the bar."""
    moving = [(item, end) for item, end in zip(items, ends, strict=True) if has_figures(item)]
    rates = [RATE + SLOW * item.slow if item.is_running else cells(end) for item, end in moving]
    sizes = [cells(amounts(item)) for item, _ in moving]
    names = max((cells(title(item)) for item in items), default=0)
    left, size = width - SIGN - max(rates, default=0) - GAP, max(sizes, default=0)
    if left - size - GAP < min(names, LEAST_NAME):
        return Widths(max(1, min(names, left)), 0, 0)
    left -= size + GAP
    name = min(names, left)
    bar = min(left - name - GAP, WIDE_BAR if width >= WIDE else BAR)
    return Widths(name, bar if bar >= LEAST_BAR else 0, size)


def has_figures(item: Download) -> bool:
    """Whether its row has some; the others say what is wrong."""
    return item.state not in ("retrying", "failed")


def line(item: Download, end: str, waited: float, widths: Widths) -> Content:
    sign = SIGNS[item.state]
    name = padded(cut(named(item, widths.name), widths.name), widths.name)
    if not has_figures(item):
        return Content.assemble(
            (f"{sign} ", "bold $text-warning"), f"{name}  ", (trouble(item, waited), "$text-warning")
        )
    share = item.done / item.total if item.total else 0.0
    full = min(widths.bar, int(widths.bar * share))
    bar = f"  {'█' * full}{'░' * (widths.bar - full)}" if widths.bar else ""
    size = f"  {padded(amounts(item), widths.size)}" if widths.size else ""
    tone = "$text-accent" if item.is_running else QUIET
    return Content.assemble(f"{sign} {name}", (bar, tone), size, (f"  {end}", QUIET))


def title(item: Download) -> str:
    """A model, with its drafter where one was named."""
    request = item.request
    variant = f":{request.variant}" if request.variant else ""
    return f"{one_line(request.repo + variant)}{f' + {short(request.draft)}' if '/' in request.draft else ''}"


def named(item: Download, width: int) -> str:
    """Its title, without the owner where that is too long."""
    return title(item) if cells(title(item)) <= width else title(item).partition("/")[2] or title(item)


def amounts(item: Download) -> str:
    """How much of how much, in a column."""
    return f"{item.done / 1e9:.1f}/{size_words(item.total)}" if item.total >= 1e9 else amount(item.total)


def detail(item: Download, waited: float) -> str:
    """Everything about one."""
    parts = [title(item), f"{amount(item.done)} of {size_words(item.total)}" if item.total else ""]
    trouble_words = trouble(item, waited) if item.state in ("retrying", "failed") else one_line(item.reason)
    return " · ".join(filter(None, (*parts, trouble_words)))


def rest(item: Download, *, follows: bool) -> str:
    """How far it is. `follows`: the one that runs is above it."""
    match item.state:
        case "downloading" if item.stage in STAGES and item.stage != "downloading":
            return STAGES[item.stage]
        case "downloading":
            speed = rate_words(item.bytes_per_second, slow=item.slow) if item.bytes_per_second else ""
            left = duration(item.eta_s) if item.eta_s is not None else ""
            return " · ".join(filter(None, (f"{item.percent} %", speed, left)))
        case "paused":
            return f"paused at {item.percent} %" if item.total else "paused"
        case "waiting":
            return "waits for the one above" if follows else "waits"
        case _:
            return "complete"


def trouble(item: Download, waited: float) -> str:
    """Why it does not go on, and what comes next."""
    reason = one_line(item.reason).rstrip(".")
    if item.state == "failed":
        return f"{reason}. r tries again"
    left = max(0, round(item.retry_seconds - waited))
    return f"{reason}; tries again in {left} s, r now" if left else f"{reason}; trying again"
