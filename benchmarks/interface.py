"""Compares what scripts rely on between two clones: exit codes, flags in help, and the keys of JSON.

python -m benchmarks.interface OLDER_CLONE. Each clone runs in folders of its own, on the same kept chats; values,
sentences and figures are not compared. Knows nothing about what is right, only about what has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: whatever JSON holds

HERE = Path(__file__).parents[1]
SECONDS = 300  # for one invocation
CHAT = """
from localspec.history import History, NewChat
with History() as kept:
    print(kept.begin(NewChat("guide"), "Why?").chat_id)
"""
HELP = ["", "chat", "run", "bench", "doctor", "config", "history", "verify", "trace"]
HELP += ["pull", "ls", "show", "rm", "verify-files", "fit", "pair", "remote", "serve", "ps", "stop"]
HELP += [f"config {name}" for name in ("edit", "path", "schema", "set", "show", "unset")]
HELP += [f"history {name}" for name in ("export", "ls", "path", "rm", "search", "show", "stats")]
HELP += [f"remote {name}" for name in ("add", "find", "ls", "probe", "rm")]
INVOCATIONS = (
    *(f"{name} --help".strip() for name in HELP),
    "--version",
    "run guide 'What is a drafter?' --json --max-tokens 12",
    "run guide 'What is a drafter?' --jsonl --max-tokens 12 --quant int8 --k 4",
    "run guide 'What is a drafter?' --json --max-tokens 12 --draft off --quant bf16 --seed 3 --temperature 0.7",
    "run guide 'What is a drafter?' --stats --max-tokens 12 --draft early-exit:2 --quant int4",
    "run guide hi --quant int3",
    "run guide hi --k 99",
    "run guide hi --temperature -1",
    "run guide hi --draft early-exit:99",
    "run guide hi --max-memory lots",
    "run guide hi --ctx 5",
    "run no-such-model hi",
    "run guide",
    "bench guide -n 8 -r 1 -o json",
    "bench guide -n 8 -r 1 -o jsonl --format int8",
    "bench guide -n 8 -r 1 -o csv --sweep k=0:2:2",
    "doctor --json",
    "config show --json",
    "config set sampling.temperature warm",
    "config schema",
    "history ls --json",
    "history stats --json",
    "history search why --json",
    "history show {chat}",
    "history export {chat} --format json",
    "history export no-such-chat",
    "history rm {chat}",
    "pull",
    "ls --json",
    "show guide --json",
    "show no-such-model --json",
    "fit guide --json",
    "pair guide --json",
    "verify guide --json --prompts 1 --max-tokens 8",
    "verify-files guide --json",
    "remote ls --json",
    "ps --json",
    "stop",
    "trace no-such-file",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An invocation's exit code, the flags that it prints, and the paths of keys in its JSON."""

    exit_code: int
    flags: frozenset[str]
    keys: frozenset[str]

    def changes(self, after: Outcome) -> Iterator[str]:
        if self.exit_code != after.exit_code:
            yield f"exit code {self.exit_code} -> {after.exit_code}"
        for word, old, new in (("flag", self.flags, after.flags), ("key", self.keys, after.keys)):
            yield from (f"{word} {name} is gone" for name in sorted(old - new))
            yield from (f"{word} {name} is new" for name in sorted(new - old))


def paths(value: Any, above: str = "") -> Iterator[str]:
    """The path of every key: `stats.draft_n`; all entries of a list are one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{above}{key}"
            yield from paths(inner, f"{above}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, above)


def keys(printed: str) -> frozenset[str]:
    found: set[str] = set()
    for text in (printed, *printed.splitlines()):
        try:
            found.update(paths(json.loads(text)))
        except ValueError:
            continue
    return frozenset(found)


class Clone:
    """A clone of localspec with state, chats and settings of its own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        own = {f"LOCALSPEC_{name}_DIR": str(folder / name.lower()) for name in ("STATE", "DATA", "CONFIG")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALSPEC_")}
        self.environment = kept | own | {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def run(self, invocation: str) -> Outcome:
        done = self.python("-m", "localspec", *shlex.split(invocation))
        is_help = invocation.endswith("--help")
        flags = re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout) if is_help else ()
        return Outcome(done.returncode, frozenset(flags), keys(done.stdout) | keys(done.stderr))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interface", description=__doc__)
    parser.add_argument("older", type=Path, help="a clone to compare this one with")
    older = parser.parse_args(words).older.resolve()
    changed = 0
    with tempfile.TemporaryDirectory() as folder:
        before, after = (Clone(root, Path(folder) / name) for root, name in ((older, "before"), (HERE, "after")))
        before.folder.mkdir()
        chat = before.python("-c", CHAT).stdout.strip()
        shutil.copytree(before.folder, after.folder)
        for invocation in INVOCATIONS:
            shown = invocation.format(chat=chat)
            found = list(before.run(shown).changes(after.run(shown)))
            changed += bool(found)
            print(f"localspec {invocation}: {'; '.join(found) or 'the same'}", flush=True)
    print(f"{len(INVOCATIONS)} invocations, {changed} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
