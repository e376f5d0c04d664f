"""A chat as text for a file: to read (md), complete (json, jsonl), or as training data (openai). Knows no database.

md and openai contain the branch that is shown, or the newest one where none is; json and jsonl every branch, and every
round of every answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

import msgspec

from localspec.core.events import Step
from localspec.history.attachments import with_attachments
from localspec.history.provenance import edited_steps
from localspec.history.records import OpenChat, StoredMessage

Format = Literal["md", "json", "jsonl", "openai"]
FORMATS: tuple[Format, ...] = get_args(Format)
Rounds = Callable[[int], tuple[Step, ...]]  # by message: History.steps
SPEAKERS = {"user": "You", "system": "System"}
FENCE = re.compile("```|~~~")
NEXT = "# next"  # parsed as a heading, unless an open fence has swallowed it
ENDINGS = {"partial": "interrupted", "stopped": "stopped", "length": "cut off", "error": "ended by an error"}


def export(opened: OpenChat, rounds: Rounds, kind: Format) -> str:
    """The text of the file; ends with a line break."""
    writers: Mapping[Format, Callable[[OpenChat, Rounds], str]] = {
        "md": lambda opened, _: markdown(opened),
        "json": lambda opened, rounds: pretty({"chat": opened.chat, "messages": list(whole(opened, rounds))}),
        "jsonl": lambda opened, rounds: "".join(line(message) for message in whole(opened, rounds)),
        "openai": lambda opened, _: line({"messages": turns(opened)}),
    }
    return writers[kind](opened, rounds)


def whole(opened: OpenChat, rounds: Rounds) -> Iterator[dict[str, StoredMessage | tuple[Step, ...]]]:
    """Every message of every branch with the steps that wrote it: one line of jsonl each."""
    for message in opened.tree.nodes.values():
        yield {"message": message, "steps": all_steps(message, rounds)}


def all_steps(message: StoredMessage, rounds: Rounds) -> tuple[Step, ...]:
    """What the user wrote of an answer, and the rounds that wrote the rest."""
    return (*edited_steps(message.by_user), *(rounds(message.id) if message.generation else ()))


def markdown(opened: OpenChat) -> str:
    chat = opened.chat
    parts = [f"# {one_line(chat.title) or 'Untitled'}", f"{one_line(chat.model_key)} · {chat.created_at[:10]}"]
    parts += [f"## System\n\n{closed(chat.system)}"] if chat.system else []
    for message in opened.to_read:
        parts.append(f"## {heading(message)}\n\n{with_attachments(closed(message.content), message.attachments)}")
    parts += [f"*{line}*"] if (line := left_out(opened, "export this chat as json")) else []
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def left_out(opened: OpenChat, how: str) -> str:
    """The branches that a text of the chat does not have, and how to have all; "" where there are none."""
    number = opened.num_left_out
    others = "1 other branch is" if number == 1 else f"{number:,} other branches are"
    return f"{others} left out. To have all: {how}" if number else ""


def closed(text: str) -> str:
    """The text, with an open code fence closed: it would swallow all that follows."""
    if not FENCE.search(text):
        return text
    from markdown_it import MarkdownIt

    last = MarkdownIt("commonmark").disable("inline").parse(f"{text}\n\n{NEXT}")[-1]
    return f"{text.rstrip()}\n{last.markup}" if last.type == "fence" else text


def heading(message: StoredMessage) -> str:
    wrote = one_line(message.generation.target) if message.generation else "Assistant"
    remarks = [*["edited"] * bool(message.edited), *filter(None, [ENDINGS.get(message.status)])]
    return SPEAKERS.get(message.role, wrote) + (f" ({', '.join(remarks)})" if remarks else "")


def turns(opened: OpenChat) -> list[dict[str, str]]:
    system = [{"role": "system", "content": opened.chat.system}] if opened.chat.system else []
    return [
        *system,
        *(
            {"role": message.role, "content": with_attachments(message.content, message.attachments)}
            for message in opened.to_read
        ),
    ]


def one_line(text: str) -> str:
    return " ".join(text.split())


def pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def line(value: object) -> str:
    return msgspec.json.encode(value).decode() + "\n"
