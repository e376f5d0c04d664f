"""The hub's process with a library that prints, on the descriptor as well, and then fails in a way of its own."""

from __future__ import annotations

import os

from localspec.hub import answers, child


def prepare(*_: object, **__: object) -> None:
    print("printed by a library")
    os.write(1, b"written past Python\n")
    raise ValueError("a fault that nobody expected")


if __name__ == "__main__":
    answers.prepare = prepare  # type: ignore[assignment]
    child.main()
