"""The commands `localspec history …`: they parse, call the history and print. Imports nothing heavy until one runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from localspec.cli.options import json_option
from localspec.core.errors import UsageError
from localspec.core.whole_file import save

if TYPE_CHECKING:
    from localspec.history import Format, History, StoredChat

LIMIT = click.IntRange(1, 1_000_000)
FORMATS = ["md", "json", "jsonl", "openai"]  # those of localspec.history, which --help must not import
FORMAT_HELP = "md to read, json or jsonl with every branch and round, openai for training.  [default: md]"
FILE = click.Path(path_type=Path)


def completions(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Chat ids that begin with what was typed, with titles; none if the history cannot be read."""
    from localspec.history import peek
    from localspec.history.text.lists import title

    return [CompletionItem(chat.id, help=title(chat.title)) for chat in peek() if chat.id.startswith(typed)]


@click.group(invoke_without_command=True)
@click.pass_context
def history(context: click.Context) -> None:
    """List, read, search, export and delete saved chats.

    ID is a chat's id, or a beginning of it that no other chat has.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@history.command()
@click.option("-n", "limit", type=LIMIT, default=20, metavar="N", help="Show at most N chats.  [default: 20]")
@json_option
def ls(limit: int, as_json: bool) -> None:
    """List chats, most recently used first."""
    from localspec.cli import io
    from localspec.history.text import lists

    with opened(reading=True) as kept:
        chats = newest_first(kept)
    if as_json:
        print_json(chats[:limit])
    elif chats:
        io.print_text(lists.chat_table(chats[:limit], letters=lists.id_length(chats)))
    if not chats:
        io.print_note("There are no chats yet. Start one: localspec chat")
    elif len(chats) > limit:
        io.print_note(f"{limit} of {len(chats)} chats are shown. Show all: localspec history ls -n {len(chats)}")


@history.command()
@click.argument("chat", metavar="ID", shell_complete=completions)
@click.option("--tokens", is_flag=True, help="Mark each token with who wrote it, the drafter or the model.")
def show(chat: str, tokens: bool) -> None:
    """Print a chat as text."""
    from localspec.cli import io
    from localspec.history.text.transcript import token_transcript, transcript

    with opened(reading=True) as kept:
        found = kept.open(kept.find_chat(chat).id)
        width = shutil.get_terminal_size().columns
        io.print_text(token_transcript(found, kept.steps, width=width) if tokens else transcript(found))


@history.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "limit", type=LIMIT, default=50, metavar="N", help="Show at most N hits.  [default: 50]")
@json_option
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Search messages, attachments and titles.

    All WORDS must be in the same message, attachment or title. The last word may be incomplete; '"in quotes"' is an
    exact phrase.
    """
    from localspec.cli import io
    from localspec.history.text import lists

    with opened(reading=True) as kept:
        hits, chats = kept.search(" ".join(words), limit=limit), newest_first(kept)
    if as_json:
        print_json(hits)
    elif hits:
        io.print_text(lists.hit_list(hits, letters=lists.id_length(chats)))
    if not hits:
        io.print_note("No messages match. List all chats: localspec history ls")
    elif len(hits) == limit:
        io.print_note(f"Only the first {limit} hits are shown. Show more: -n {10 * limit}")


@history.command()
@click.argument("chat", metavar="ID", shell_complete=completions)
@click.option("--format", "kind", type=click.Choice(FORMATS), default="md", help=FORMAT_HELP)
@click.option("-o", "--output", "file", type=FILE, metavar="FILE", help="Write to a new file instead of stdout.")
def export(chat: str, kind: Format, file: Path | None) -> None:
    """Write a chat as Markdown or JSON, to stdout or a file."""
    from localspec.cli import io
    from localspec.history import export as exported

    with opened(reading=True) as kept:
        text = exported(kept.open(kept.find_chat(chat).id), kept.steps, kind)
    if file is not None:
        save(file, text)
    elif kind == "md":
        io.print_unchanged(text)
    else:
        print(io.safe_json(text), end="")


@history.command()
@click.argument("chats", nargs=-1, metavar="[ID]...", shell_complete=completions)
@click.option("--all", "everything", is_flag=True, help="Delete every chat.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
def rm(chats: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete chats permanently (overwritten on disk)."""
    from localspec.cli import io
    from localspec.history.text.lists import count

    if bool(chats) == everything:
        raise UsageError("Name the chats to delete, or all of them.", hint="Try: localspec history rm ID, or --all.")
    with opened() as kept:
        doomed = newest_first(kept) if everything else named(kept, chats)
        if not doomed:
            io.print_note("There are no chats to delete.")
        elif yes or confirmed(doomed):
            kept.delete(*(chat.id for chat in doomed))
            io.print_note(f"Deleted {count(len(doomed), 'chat')}.")
        else:
            io.print_note("Nothing was deleted.")
        if everything and (copies := [str(copy) for copy in kept.copies()]):
            io.print_note(
                f"Older copies of the history may still hold chats; delete them yourself: {', '.join(copies)}"
            )


@history.command()
@json_option
def stats(as_json: bool) -> None:
    """Print tokens and speed by model, drafter and weight format."""
    from localspec.cli import io
    from localspec.history.text.lists import totals_object, totals_table

    with opened(reading=True) as kept:
        totals = kept.totals()
    io.print_text(io.as_json(totals_object(totals)) if as_json else totals_table(totals))
    if not totals.models and not as_json:
        io.print_note("No saved chat has an answer yet. Start one: localspec chat")


@history.command()
def path() -> None:
    """Print the path of the history file; LOCALSPEC_DATA_DIR moves it."""
    from localspec.cli import io
    from localspec.core import paths

    io.print_unchanged(f"{paths.history_file()}\n")


@contextmanager
def opened(*, reading: bool = False) -> Iterator[History]:
    """Opens the history; prints notices about it on stderr."""
    from localspec.cli.io import print_notice
    from localspec.history import History

    with History(reading=reading) as kept:
        for notice in kept.notices:
            print_notice(notice)
        yield kept


def newest_first(kept: History) -> list[StoredChat]:
    """Every chat, pinned or not."""
    return sorted(kept.chats(), key=lambda chat: chat.updated_at, reverse=True)


def named(kept: History, beginnings: Sequence[str]) -> list[StoredChat]:
    """The named chats, each once."""
    found = [kept.find_chat(beginning) for beginning in beginnings]
    return list({chat.id: chat for chat in found}.values())


def confirmed(doomed: Sequence[StoredChat]) -> bool:
    """Asks on the terminal; UsageError where there is none to ask on."""
    from localspec.cli.io import print_note
    from localspec.history.text.lists import chat_table, count, id_length

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Not a terminal: add --yes to delete without asking.")
    print_note(chat_table(doomed, letters=id_length(doomed)))
    messages = count(sum(chat.num_messages for chat in doomed), "message")
    return click.confirm(f"Delete {count(len(doomed), 'chat')} with {messages} permanently?", err=True)


def print_json(records: Sequence[object]) -> None:
    import msgspec

    from localspec.cli.io import as_json

    print(as_json(msgspec.to_builtins(records)))
