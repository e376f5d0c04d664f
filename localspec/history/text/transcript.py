"""A chat as text, as its screen showed it last: the branch to its head. Knows no database and no terminal."""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.history import OpenChat, StoredMessage
from localspec.history.export import Rounds, heading
from localspec.history.text.lists import count, model_name, speed, title, when
from localspec.history.text.marks import LEGEND, marked

BAR = "▌"


def transcript(opened: OpenChat) -> str:
    return "\n\n".join([*opening(opened), *(said(opened, message, message.content) for message in opened.branch)])


def token_transcript(opened: OpenChat, rounds: Rounds, *, width: int) -> str:
    """With the source of each token where a model wrote; how to read it stands first."""
    messages = [said(opened, message, with_marks(message, rounds, width)) for message in opened.branch]
    return "\n\n".join([*opening(opened), LEGEND, *messages])


def with_marks(message: StoredMessage, rounds: Rounds, width: int) -> str:
    steps = rounds(message.id) if message.generation else ()
    return marked(message.content, steps, width=width) if steps else message.content


def opening(opened: OpenChat) -> list[str]:
    chat = opened.chat
    size = count(len(opened.branch), "message")
    head = f"{title(chat.title)}\n{one_line(chat.id)} · {model_name(chat.model_key)} · {when(chat.created_at)} · {size}"
    return [head, *([f"{BAR}System\n{chat.system}"] if chat.system else [])]


def said(opened: OpenChat, message: StoredMessage, text: str) -> str:
    """Who, which of the answers in this place, and when; then the text, what was attached, and its figures."""
    others = opened.tree.siblings(message.id)
    place = f"  {others.index(message.id) + 1}/{len(others)}" if len(others) > 1 else ""
    head = f"{BAR}{one_line(heading(message))}{place}  {when(message.created_at)}"
    attached = [f"attached: {one_line(file.path or 'a text')}" for file in message.attachments]
    return "\n".join([head, *([text.strip("\n")] if text.strip() else []), *attached, *figures(message)])


def figures(message: StoredMessage) -> list[str]:
    if message.generation is None or not message.generation.stats.predicted_n:
        return []
    stats = message.generation.stats
    rate, accepted, speedup = speed(stats)
    drafted = [f"{accepted} accepted", speedup] if stats.draft_kind != "off" else []
    return [" · ".join([f"({rate} tok/s", *drafted, f"{stats.predicted_n:,} tok)"])]
