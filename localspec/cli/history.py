"""The commands `localspec history …`: parse, call the history, print. Imports nothing heavy until one is called."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from localspec.core.errors import UsageError
from localspec.core.whole_file import save

if TYPE_CHECKING:
    from localspec.history import Chat, Format, History

LIMIT = click.IntRange(1, 1_000_000)
json_option = click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
FORMATS = ["md", "json", "jsonl", "openai"]  # those of localspec.history, which --help must not import
FORMAT_HELP = "md to read, json or jsonl to keep every branch and round, openai to train on.  [default: md]"
FILE = click.Path(path_type=Path)


def completions(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """The ids that begin so, with their titles; none where the history cannot be read as it is."""
    from localspec.history import peek
    from localspec.history.text.lists import title

    return [CompletionItem(chat.id, help=title(chat.title)) for chat in peek() if chat.id.startswith(typed)]


@click.group(invoke_without_command=True)
@click.pass_context
def history(context: click.Context) -> None:
    """List, read, search, export and delete the chats that were kept.

    An ID is the beginning of a chat's id, as long as only one begins so.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@history.command()
@click.option("-n", "limit", type=LIMIT, default=20, metavar="N", help="At most N chats.  [default: 20]")
@json_option
def ls(limit: int, as_json: bool) -> None:
    """List the chats, those used last first."""
    from localspec.cli import output
    from localspec.history.text import lists

    with opened(reading=True) as kept:
        chats = newest_first(kept)
    if as_json:
        print_json(chats[:limit])
    elif chats:
        output.say(lists.chat_table(chats[:limit], letters=lists.id_length(chats)))
    if not chats:
        output.remark("There are no chats yet. Begin one: localspec chat")
    elif len(chats) > limit:
        output.remark(f"These are {limit} of {len(chats)} chats. All of them: localspec history ls -n {len(chats)}")


@history.command()
@click.argument("chat", metavar="ID", shell_complete=completions)
@click.option("--tokens", is_flag=True, help="Below each line: who wrote its tokens, the draft or the model.")
def show(chat: str, tokens: bool) -> None:
    """Print a chat as text."""
    from localspec.cli import output
    from localspec.history.text.transcript import token_transcript, transcript

    with opened(reading=True) as kept:
        found = kept.open(kept.find_chat(chat).id)
        width = shutil.get_terminal_size().columns
        output.say(token_transcript(found, kept.steps, width=width) if tokens else transcript(found))


@history.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "limit", type=LIMIT, default=50, metavar="N", help="At most N hits.  [default: 50]")
@json_option
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find the chats in which WORDS were said.

    All of them must be in one message, one attachment or the title. The last word may be a beginning; '"in quotes"'
    means exactly so.
    """
    from localspec.cli import output
    from localspec.history.text import lists

    with opened(reading=True) as kept:
        hits, chats = kept.search(" ".join(words), limit=limit), newest_first(kept)
    if as_json:
        print_json(hits)
    elif hits:
        output.say(lists.hit_list(hits, letters=lists.id_length(chats)))
    if not hits:
        output.remark("Nothing that was said has all of these words. All chats: localspec history ls")
    elif len(hits) == limit:
        output.remark(f"There may be more than these {limit} hits. Add: -n {10 * limit}")


@history.command()
@click.argument("chat", metavar="ID", shell_complete=completions)
@click.option("--format", "kind", type=click.Choice(FORMATS), default="md", help=FORMAT_HELP)
@click.option("-o", "--output", "file", type=FILE, metavar="FILE", help="Into a new file instead of stdout.")
def export(chat: str, kind: Format, file: Path | None) -> None:
    """Write a chat as Markdown or JSON, to stdout or a file."""
    from localspec.cli import output
    from localspec.history import export as exported

    with opened(reading=True) as kept:
        text = exported(kept.open(kept.find_chat(chat).id), kept.steps, kind)
    if file is not None:
        save(file, text)
    elif kind == "md":
        output.hand_over(text)
    else:
        print(output.safe_json(text), end="")


@history.command()
@click.argument("chats", nargs=-1, metavar="[ID]...", shell_complete=completions)
@click.option("--all", "everything", is_flag=True, help="Every chat there is.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(chats: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Delete chats for good; what they said is overwritten on the disk."""
    from localspec.cli import output
    from localspec.history.text.lists import count

    if bool(chats) == everything:
        raise UsageError("Name the chats to delete, or all.", hint="Try: localspec history rm ID, or --all.")
    with opened() as kept:
        doomed = newest_first(kept) if everything else named(kept, chats)
        if not doomed:
            output.remark("There are no chats: nothing is deleted.")
        elif yes or confirmed(doomed):
            kept.delete(*(chat.id for chat in doomed))
            output.remark(f"Deleted {count(len(doomed), 'chat')}.")
        else:
            output.remark("Nothing is deleted.")
        if everything and (copies := [str(copy) for copy in kept.copies()]):
            output.remark(f"Chats may still be in copies beside the history; delete them yourself: {', '.join(copies)}")


@history.command()
@json_option
def stats(as_json: bool) -> None:
    """Print what each model has written, and how fast."""
    from localspec.cli import output
    from localspec.history.text.lists import totals_object, totals_table

    with opened(reading=True) as kept:
        totals = kept.totals()
    output.say(output.as_json(totals_object(totals)) if as_json else totals_table(totals))
    if not totals.models and not as_json:
        output.remark("No model has answered in a chat that was kept. Begin one: localspec chat")


@history.command()
def path() -> None:
    """Print where the chats are; LOCALSPEC_DATA_DIR moves them."""
    from localspec.cli import output
    from localspec.core import paths

    output.hand_over(f"{paths.history_file()}\n")


@contextmanager
def opened(*, reading: bool = False) -> Iterator[History]:
    """The history; what had to be done to open it stands on stderr."""
    from localspec.cli.output import tell
    from localspec.history import History

    with History(reading=reading) as kept:
        for notice in kept.notices:
            tell(notice)
        yield kept


def newest_first(kept: History) -> list[Chat]:
    """Every chat, pinned or not."""
    return sorted(kept.chats(), key=lambda chat: chat.updated_at, reverse=True)


def named(kept: History, beginnings: Sequence[str]) -> list[Chat]:
    """Each once, however often it was named."""
    found = [kept.find_chat(beginning) for beginning in beginnings]
    return list({chat.id: chat for chat in found}.values())


def confirmed(doomed: Sequence[Chat]) -> bool:
    """Asks on the terminal; where nobody can be asked, that is an error and not a yes."""
    from localspec.cli.output import remark
    from localspec.history.text.lists import chat_table, count, id_length

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Nobody can be asked whether to delete: this is no terminal.", hint="Add --yes.")
    remark(chat_table(doomed, letters=id_length(doomed)))
    messages = count(sum(chat.num_messages for chat in doomed), "message")
    return click.confirm(f"Delete {count(len(doomed), 'chat')} with {messages} for good?", err=True)


def print_json(records: Sequence[object]) -> None:
    import msgspec

    from localspec.cli.output import as_json

    print(as_json(msgspec.to_builtins(records)))
