"""Whether a program, `hf download` for one, fetches into a repository of the shared cache now.

Its locks say so, and where there are none the age of its parts. Knows no network and not the hub's library.
"""

from __future__ import annotations

import time

from localspec.core.errors import UsageError
from localspec.core.locks import is_held
from localspec.core.sanitize import one_line
from localspec.hub import blobs, pulls

JUST_NOW = 60.0  # seconds since a part was written to


def refuse_written(repo: str) -> None:
    """UsageError where a program fetches into it now, this one or another."""
    if pulls.running(repo):
        raise UsageError(
            f"{one_line(repo)} is being downloaded.", hint=f"Stop it: localspec pull --stop {one_line(repo)}"
        )
    if is_written(repo):
        raise UsageError(
            f"Another program downloads {one_line(repo)} now.", hint="Wait for its end, or stop it there; then repeat."
        )


def is_written(repo: str) -> bool:
    """Whether one does. Not asked of parts with our own name: the notes of our downloads say more."""
    held = {file.stem: is_held(file) for file in blobs.locks(repo)}
    if True in held.values():
        return True
    now, foreign = time.time(), (part for part in blobs.parts(repo) if not part.name.endswith(blobs.PART))
    return any(
        held.get(part.name.partition(".")[0]) is None and abs(now - pulls.changed(part)) < JUST_NOW for part in foreign
    )
