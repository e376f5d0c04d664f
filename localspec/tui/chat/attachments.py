"""Files and long pastes as attachments: found in what is typed, read, refused. Knows files, and no widgets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from localspec.core.errors import UsageError
from localspec.core.plain_file import plain
from localspec.core.sanitize import one_line
from localspec.core.text_file import not_utf8
from localspec.history import Attachment
from localspec.tui.chat.file_lines import LINES, FileLines, whole_name

MAX_BYTES = 1_000_000  # more than a context holds
PASTE_CHARACTERS = 2500  # a longer paste would bury what is typed around it
QUOTES = "\"'“„«‘‚"
BEFORE = rf"(?:^|(?<=[\s(\[{{{QUOTES}]))"  # what a mention may begin after
MENTION = re.compile(rf'{BEFORE}@(?:"([^"\n]+)"((?:{LINES})(?!\w))?|(\S+))')
BEFORE_CURSOR = re.compile(f"{MENTION.pattern}\\s$")
PUNCTUATION = ".,;:!?)]}\"'”“»’‘"
FILE_NAME = re.compile(r"[^\s()\[\]{}<>=*|;,]*")  # code has those after an @, and so do few names of files
EXTENSION = re.compile(r"\.(?=\w*[a-zA-Z])\w{1,5}$")
DECORATED = re.compile(r"\s*\n\s*(?:@|def |async |class |function |export |public |private |protected |static )")


def from_paste(text: str) -> Attachment:
    return attachment(text, None)


def from_file(typed: str) -> Attachment:
    """The file as text, or the lines of it that are named; a UsageError in one sentence if it is not a text file. Waits
    for the disk."""
    try:
        lines = None if Path(path_of(typed)).exists() else FileLines.named(typed)
        file = lines.file if lines is not None else typed
        path = Path(path_of(file))
        if not path.exists():
            raise UsageError(f"There is no file {file}.", hint="Choose a file: /attach PATH")
        with plain(path).open("rb") as opened:
            raw = lines.read(opened, MAX_BYTES) if lines is not None else opened.read(MAX_BYTES + 1)
    except OSError as fault:
        reason = fault.strerror or type(fault).__name__
        raise UsageError(f"{typed} cannot be read ({reason}).", hint="Name a text file: /attach PATH") from fault
    if len(raw) > MAX_BYTES:
        raise too_large(typed, lines)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise not_utf8(typed) from fault
    if "\0" in text:
        raise UsageError(f"{typed} is not a text file.", hint="Attach a text file.")
    named = str(path) if lines is None else replace(lines, file=str(path)).name
    return attachment(text.replace("\r\n", "\n"), named)


def too_large(typed: str, lines: FileLines | None) -> UsageError:
    """Says how to attach less."""
    file = f'"{typed}"' if any(map(str.isspace, typed)) else typed
    hint = f"Attach some of its lines: @{file}:1-200" if lines is None else "Name fewer lines."
    return UsageError(f"{typed} is larger than {MAX_BYTES // 1_000_000} MB.", hint=hint)


def attachment(text: str, path: str | None) -> Attachment:
    return Attachment(path, "text/plain", sha256(text.encode(errors="replace")).hexdigest(), text)


def mentioned(text: str) -> Iterator[str]:
    """The names that @ marks; most of them are no files."""
    for quoted, lines, bare in MENTION.findall(text):
        yield quoted + lines or bare


def paths_mentioned(text: str) -> set[str]:
    """The paths of the attachments that these mentions make, where they are files. Knows no disk."""
    names = mentioned(text) if "@" in text else ()
    return {path for name in names for each in meant(name) for path in paths_of(each)}


def left_out(text: str, attachments: Iterable[Attachment]) -> set[str]:
    """The paths that a message mentions and does not have."""
    attached = {one.path for one in attachments}
    return {path for path in paths_mentioned(text) if attached.isdisjoint(paths_of(path))}


def path_of(name: str) -> str:
    """The path of the attachment that this name makes. Knows no disk."""
    return str(Path(os.path.expanduser(name)))


def paths_of(name: str) -> Iterator[str]:
    """The paths that its attachment may have: that of a file, or of some lines of one. Knows no disk."""
    yield path_of(name)
    if (lines := FileLines.named(name)) is not None:
        yield replace(lines, file=path_of(lines.file)).name


def path_there(name: str) -> str:
    """The one of these that it has. Waits for the disk."""
    path, *of_lines = paths_of(name)
    return of_lines[0] if of_lines and not os.path.exists(path) else path


def is_among(path: str, others: Iterable[str]) -> bool:
    """Whether one of these is a name of the same file, or of the same lines of it. Waits for the disk."""
    return whole_name(path) in map(whole_name, others)


def meant(name: str) -> tuple[str, str]:
    """What a mention may mean: a full stop, a bracket or a quotation mark may follow it."""
    return name, name.rstrip(PUNCTUATION)


def doubtful(text: str, is_there: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
    """The mentions that look like files: with a slash, a home, an extension or in quotes; or whose name `is_there`; not
    a decorator's name, nor the name of a JavaScript package, which has a slash and stands after a quotation mark."""
    for found in MENTION.finditer(text):
        quoted, name = found[1] and found[1] + (found[2] or ""), (found[3] or "").rstrip(PUNCTUATION)
        is_package = "/" in name and text[found.start() - 1 : found.start()] in [*QUOTES]
        begins_line = not text[: found.start()].rpartition("\n")[2].strip()
        is_code = not FILE_NAME.fullmatch(name) or (begins_line and DECORATED.match(text, found.end()))
        if quoted:
            yield quoted
        elif is_code or is_package or "://" in name:
            continue
        elif is_like_file(name) or (name and is_there(name)):
            yield name


def is_like_file(name: str) -> bool:
    has_extension = EXTENSION.search(name) or EXTENSION.search(re.split("[:#]", name)[0])
    return name != "/" and bool("/" in name or os.sep in name or name[:1] == "~" or has_extension)


def exists(name: str) -> bool:
    """Whether there is something of this name, which may be a folder. Waits for the disk."""
    return os.path.exists(os.path.expanduser(name))


def no_file(name: str) -> str:
    """Says why a mention is not a file. Waits for the disk."""
    name = lines.file if (lines := FileLines.named(name)) is not None and not exists(name) else name
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return f"{one_line(name)} is a folder."
    return f"{one_line(name)} is not a file." if exists(name) else f"There is no file {one_line(name)}."


def just_mentioned(line: str) -> str | None:
    """The name that the blank at the line's end has just completed."""
    found = BEFORE_CURSOR.search(line)
    return next(mentioned(found[0])) if found else None


def file_named(name: str) -> str | None:
    """What a mention means, if that is a file or some lines of one. Waits for the disk."""
    return next((each for each in meant(name) if is_file(each)), None)


def is_file(name: str) -> bool:
    lines = FileLines.named(name)
    names = (name, lines.file) if lines is not None else (name,)
    return any(os.path.isfile(os.path.expanduser(each)) for each in names)
