"""Records as one line of JSON, for the commands' --json."""

from __future__ import annotations

import msgspec

from localspec.cli.io import as_json


def print_records(records: object) -> None:
    print(as_json(msgspec.to_builtins(records)))
