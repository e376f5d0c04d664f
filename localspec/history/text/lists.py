"""Chats, hits and totals as lines of text. Knows records, no database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any  # Any: JSON

import msgspec

from localspec.core.events import Stats
from localspec.core.sanitize import one_line
from localspec.history import HistoryTotals, ModelTotals, SearchHit, StoredChat, first_line
from localspec.history.export import SPEAKERS
from localspec.history.records import ID_LENGTH
from localspec.history.text.columns import cells, columns, cut
from localspec.models.gguf.header import name_of
from localspec.models.gguf.stores import STORES

SHORTEST_ID = 4  # letters; few chats need more
LONGEST_MODEL = 32  # of a path, its end
UNTITLED = "Untitled"
RATES = ("predicted_per_second", "acceptance_rate", "speedup")


def id_length(chats: Iterable[StoredChat]) -> int:
    """The number of letters that tell these ids apart."""
    ids = [chat.id for chat in chats]
    lengths = range(SHORTEST_ID, ID_LENGTH)
    return next((length for length in lengths if len({each[:length] for each in ids}) == len(ids)), ID_LENGTH)


def chat_table(chats: Sequence[StoredChat], *, letters: int) -> str:
    rows = [("ID", "LAST USED", "MESSAGES", "MODEL", "TITLE")]
    for chat in chats:
        first = (one_line(chat.id[:letters]), when(chat.updated_at), str(chat.num_messages))
        rows.append((*first, short_name(chat.model_key), title(chat.title)))
    return columns(rows, right={2})


def hit_list(hits: Sequence[SearchHit], *, letters: int) -> str:
    """A heading for each chat, with its hits below."""
    return "\n\n".join("\n".join(hit_lines(found, letters)) for found in by_chat(hits))


def by_chat(hits: Iterable[SearchHit]) -> Iterable[list[SearchHit]]:
    """The hits of each chat; the chats in the order of their first hit."""
    chats: dict[str, list[SearchHit]] = {}
    for hit in hits:
        chats.setdefault(hit.chat_id, []).append(hit)
    return chats.values()


def hit_lines(hits: Sequence[SearchHit], letters: int) -> list[str]:
    first = hits[0]
    head = f"{one_line(first.chat_id[:letters])}  {when(first.at)}  {title(first.title)}"
    return [head, *(f"    {speaker(hit)}: {snippet(hit)}" for hit in hits if hit.message_id is not None)]


def totals_table(totals: HistoryTotals) -> str:
    head = f"{count(totals.chats, 'chat')} · {count(totals.messages, 'message')} · {totals.file_bytes / 1e6:.1f} MB"
    rows = [("MODEL", "DRAFT", "FORMAT", "ANSWERS", "TOKENS", "TOK/S", "ACCEPTED", "SPEED-UP")]
    for one in totals.models:
        counts = f"{one.answers:,}", f"{one.predicted_n:,}"
        rows.append((model_name(one.target), draft_name(one.draft), one_line(one.quant) or "–", *counts, *speed(one)))
    return f"{head}\n\n{columns(rows, right=range(3, 8))}" if totals.models else head


def totals_object(totals: HistoryTotals) -> dict[str, Any]:
    """The totals as JSON objects, with the rates."""
    rates = [{name: getattr(model, name) for name in RATES} for model in totals.models]
    whole: dict[str, Any] = msgspec.to_builtins(totals)
    return whole | {"models": [sums | more for sums, more in zip(whole["models"], rates, strict=True)]}


def speed(sums: Stats | ModelTotals) -> tuple[str, str, str]:
    """Tokens per second, acceptance and speed-up; – where nothing was measured."""
    accepted = f"{100 * sums.acceptance_rate:.0f} %" if sums.acceptance_rate is not None else "–"
    return f"{sums.predicted_per_second:.1f}", accepted, f"×{sums.speedup:.2f}" if sums.speedup else "×–"


def when(at: str) -> str:
    """The local date and time to the minute; a text that is not a time stays as it is."""
    try:
        return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return one_line(at)


def title(text: str) -> str:
    return one_line(first_line(text)) or UNTITLED


def short_name(key: str) -> str:
    """The model's name as its answers have it: of a path, the folder or the file."""
    return model_name(name_of(Path(key)) if os.path.isabs(key) else key)


def model_name(key: str, longest: int = LONGEST_MODEL) -> str:
    """The model's name; a long one is cut to its end, with the program that keeps it."""
    name = one_line(key)
    store = next((f"{one}:" for one in STORES if name.startswith(f"{one}:")), "")
    return name if cells(name) <= longest else store + cut(name[len(store) :], longest - len(store), keep_end=True)


def draft_name(draft: str) -> str:
    """The drafter's name: of a path its end; – for none."""
    return model_name(os.path.basename(draft.rstrip("/\\")) if os.path.isabs(draft) else draft) or "–"


def speaker(hit: SearchHit) -> str:
    return SPEAKERS.get(hit.role or "", "Answer")


def snippet(hit: SearchHit) -> str:
    return one_line("".join(part.text for part in hit.parts))


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"
