"""Finds words in titles, messages and attachments. A query has no operators, and no string is an error.

`"in quotes"` is an exact phrase. What the index has no words for (signs, scripts without spaces) is found by a scan of
every text. Knows nothing about how hits are shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.history.database import Database
from localspec.history.records import SearchHit, TextPart

WORDS_READ = 32  # of a query; a pasted megabyte has more
LONGEST_WORD = 200
PIECE = re.compile(r'"([^"]*)"?|([^\s"]+)')
SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")  # Thai, Khmer, Chinese, …
MARK, UNMARK = "\x02", "\x03"  # around a match; no text that is shown has them
MARKED = re.compile(f"{MARK}([^{UNMARK}]*){UNMARK}?")
AROUND = 40  # letters on each side of a match that was found by a scan

TITLES = """
SELECT conversation.id AS chat_id, conversation.title AS title, NULL AS message_id, NULL AS role, updated_at AS at,
  {snippet} AS snippet
FROM conversation {join} WHERE {condition} ORDER BY {newest} DESC LIMIT ?
"""
MESSAGES = """
SELECT conversation_id AS chat_id, conversation.title AS title, message.id AS message_id, role,
  message.created_at AS at, {snippet} AS snippet
FROM message JOIN conversation ON conversation.id = conversation_id {join}
WHERE {condition} ORDER BY {newest} DESC LIMIT ?
"""
ATTACHMENTS = """
SELECT conversation_id AS chat_id, conversation.title AS title, message.id AS message_id, role,
  message.created_at AS at, {snippet} AS snippet
FROM attachment JOIN message ON message.id = message_id JOIN conversation ON conversation.id = conversation_id {join}
WHERE {condition} ORDER BY {newest} DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: `match` is for the index, "" for none; each of `exact` must be in the text as it is."""

    match: str
    exact: tuple[str, ...]

    @property
    def first(self) -> str:
        """The word around which a snippet is cut where the index does not cut it."""
        return self.exact[0] if self.exact else self.match.split('"')[1]

    def __bool__(self) -> bool:
        return bool(self.match or self.exact)


@dataclass(frozen=True, slots=True)
class Searched:
    """A searched column of texts: its full-text index, how the two join, and the order that puts the newest first.

    Ordered by its own row ids, an index stops at the limit and cuts no more snippets than that.
    """

    sql: str
    column: str
    index: str
    join: str
    newest: str
    newest_indexed: str
    is_long: bool = False  # SQLite's snippets take the square of the matches in a text: minutes for a megabyte


SEARCHED = (
    Searched(
        sql=TITLES,
        column="conversation.title",
        index="title_fts",
        join="JOIN title_fts ON title_fts.conversation_id = conversation.id",
        newest="updated_at",
        newest_indexed="updated_at",
    ),
    Searched(
        sql=MESSAGES,
        column="message.content",
        index="message_fts",
        join="JOIN message_fts ON message_fts.rowid = message.id",
        newest="message.id",
        newest_indexed="message_fts.rowid",
    ),
    Searched(
        sql=ATTACHMENTS,
        column="attachment.text",
        index="attachment_fts",
        join="JOIN attachment_fts ON attachment_fts.rowid = attachment.id",
        newest="attachment.id",
        newest_indexed="attachment_fts.rowid",
        is_long=True,
    ),
)


def find(database: Database, text: str, limit: int) -> list[SearchHit]:
    query = parse(text)
    hits: list[SearchHit] = []
    for column in SEARCHED if query else ():
        hits += search(database, column, query, limit - len(hits))
    return hits


def parse(text: str) -> Query:
    """The query of a text; its last word may be incomplete, so it matches as a prefix."""
    words: list[str] = []
    exact: list[str] = []
    open_ended = False
    for found in list(PIECE.finditer(text.replace("\0", " ")))[:WORDS_READ]:
        quoted, word = (group[:LONGEST_WORD] if group else "" for group in found.groups())
        piece = quoted.strip() or word
        indexed = any(letter.isalnum() for letter in piece) and not SPACELESS.search(piece)
        words += [f'"{piece}"'] * indexed
        if piece and (not indexed or (quoted and not piece.replace(" ", "").isalnum())):
            exact.append(piece)
        open_ended = indexed and not quoted
    return Query(" ".join(words) + "*" * open_ended, tuple(exact))


def search(database: Database, searched: Searched, query: Query, limit: int) -> list[SearchHit]:
    """The newest hits in one column. A scan takes a tenth of a second for each hundred megabytes of text."""
    conditions = [f"{searched.index} MATCH ?"] * bool(query.match)
    conditions += [f"{searched.column} LIKE ? ESCAPE '\\'"] * len(query.exact)
    cut = bool(query.match) and not searched.is_long
    snippet = f"snippet({searched.index}, 0, '{MARK}', '{UNMARK}', '…', 16)" if cut else searched.column
    join, newest = (searched.join, searched.newest_indexed) if query.match else ("", searched.newest)
    sql = searched.sql.format(snippet=snippet, join=join, condition=" AND ".join(conditions), newest=newest)
    values = [query.match] * bool(query.match) + [f"%{escaped(piece)}%" for piece in query.exact]
    found = database.read(sql, (*values, max(0, limit)))
    return [
        SearchHit(
            row["chat_id"],
            row["title"],
            row["message_id"],
            row["role"],
            row["at"],
            parts(row["snippet"] if cut else around(row["snippet"], query.first)),
        )
        for row in found
    ]


def escaped(piece: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", piece)


def parts(marked: str) -> tuple[TextPart, ...]:
    cut = MARKED.split(marked)  # texts at even positions, matches between them
    return tuple(TextPart(text.replace(UNMARK, ""), bool(index % 2)) for index, text in enumerate(cut) if text)


def around(text: str, piece: str) -> str:
    """The first match with its context; case is ignored for a to z only, as LIKE does."""
    found = re.search(re.escape(piece), text, re.IGNORECASE)
    start, end = found.span() if found else (0, 0)
    left, right = max(0, start - AROUND), end + AROUND
    before, after = "…" * (left > 0) + text[left:start], text[end:right] + "…" * (right < len(text))
    return f"{before}{MARK}{text[start:end]}{UNMARK}{after}" if found else text[: 2 * AROUND]
