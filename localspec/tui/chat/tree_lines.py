"""A chat's tree as lines: one for each message, and one for what is folded of a long run without a fork.

A fork's branches stand below it: others indented, then the one that is shown, or else the one continued last, on its
own level. So a chat that was edited a hundred times is as wide as its deepest side branch. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from localspec.history import Tree
from localspec.history.tree import N

ENDS = 2  # messages that stay at either end of a run
LEAST = 3  # fewer are not worth folding


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A message; or `hidden` messages from this one on, folded."""

    message_id: int
    depth: int
    hidden: int = 0


def tree_lines(tree: Tree[N], shown: AbstractSet[int], unfolded: AbstractSet[int]) -> list[TreeLine]:
    """`shown`: ids of the branch that is; `unfolded`: ids whose run is not folded."""
    newest = newest_below(tree)

    def forks(message_id: int | None, depth: int) -> list[tuple[int, int]]:
        """What follows, last to first."""
        below = tree.children(message_id)
        main = max(below, key=lambda one: (one in shown, newest[one]), default=0)
        sides = [(one, depth + 1) for one in reversed(below) if one != main]
        return [(main, depth), *sides] if below else []

    found, waiting = list[TreeLine](), forks(None, 0)
    while waiting:
        top, depth = waiting.pop()
        run = [*run_from(tree, top)]
        found.extend(folded(run, depth, unfolded))
        waiting.extend(forks(run[-1], depth))
    return found


def newest_below(tree: Tree[N]) -> dict[int, int]:
    """The newest message at or below each: where its branch was continued last."""
    found: dict[int, int] = {}
    for message_id in reversed(tree.nodes):  # a message is older than those below it
        found[message_id] = max((found[one] for one in tree.children(message_id)), default=message_id)
    return found


def run_from(tree: Tree[N], message_id: int) -> Iterator[int]:
    """The messages from this one to the next fork, or to the end."""
    below: tuple[int, ...] = (message_id,)
    while len(below) == 1:
        yield below[0]
        below = tree.children(below[0])


def folded(run: Sequence[int], depth: int, unfolded: AbstractSet[int]) -> Iterator[TreeLine]:
    middle = run[ENDS:-ENDS]
    if len(middle) < LEAST or not unfolded.isdisjoint(middle):
        yield from (TreeLine(one, depth) for one in run)
        return
    yield from (TreeLine(one, depth) for one in run[:ENDS])
    yield TreeLine(middle[0], depth, len(middle))
    yield from (TreeLine(one, depth) for one in run[-ENDS:])
