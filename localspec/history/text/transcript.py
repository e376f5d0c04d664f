"""A chat as text: the branch that was shown last, or the newest one. Knows no database and no terminal."""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.core.server_speculation import is_served, speculation
from localspec.history import OpenChat, StoredMessage
from localspec.history.export import Rounds, all_steps, heading, left_out
from localspec.history.text.lists import count, short_name, speed, title, when
from localspec.history.text.marks import LEGEND, marked

BAR = "▌"


def transcript(opened: OpenChat) -> str:
    messages = [message_text(opened, message, message.content) for message in opened.to_read]
    return "\n\n".join([*head(opened), *messages, *others(opened)])


def token_transcript(opened: OpenChat, rounds: Rounds, *, width: int) -> str:
    """The transcript with the source of each token of the answers, a legend first."""
    messages = [message_text(opened, message, with_marks(message, rounds, width)) for message in opened.to_read]
    return "\n\n".join([*head(opened), LEGEND, *messages, *others(opened)])


def with_marks(message: StoredMessage, rounds: Rounds, width: int) -> str:
    steps = all_steps(message, rounds)
    return marked(message.content, steps, width=width) if steps else message.content


def head(opened: OpenChat) -> list[str]:
    chat = opened.chat
    size = count(len(opened.to_read), "message")
    first = (
        f"{title(chat.title)}\n{one_line(chat.id)} · {short_name(chat.model_key)} · {when(chat.created_at)} · {size}"
    )
    return [first, *([f"{BAR}System\n{chat.system}"] if chat.system else [])]


def others(opened: OpenChat) -> list[str]:
    """The line about branches that are not shown."""
    line = left_out(opened, f"localspec history export {one_line(opened.chat.id)} --format json")
    return [line] if line else []


def message_text(opened: OpenChat, message: StoredMessage, text: str) -> str:
    """Speaker, version and time; then the text, its attachments and its figures."""
    others = opened.tree.siblings(message.id)
    version = f"  {others.index(message.id) + 1}/{len(others)}" if len(others) > 1 else ""
    head = f"{BAR}{one_line(heading(message))}{version}  {when(message.created_at)}"
    attached = [f"attached: {one_line(file.path or 'pasted text')}" for file in message.attachments]
    return "\n".join([head, *([text.strip("\n")] if text.strip() else []), *attached, *figures(message)])


def figures(message: StoredMessage) -> list[str]:
    if message.generation is None or not message.generation.stats.predicted_n:
        return []
    stats = message.generation.stats
    rate, accepted, speedup = speed(stats)
    drafted = [f"{accepted} accepted", speedup] if stats.draft_kind != "off" else []
    if is_served(stats):
        drafted = [speculation(stats)]
    return [" · ".join([f"({rate} tok/s", *drafted, f"{stats.predicted_n:,} tok)"])]
