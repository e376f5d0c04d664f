"""The messages of a chat as a tree: branches, siblings and where each ends. Knows ids and parents, no texts and no SQL.

A message is older than its answers, so its id is smaller; a damaged row that says otherwise is put at the top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Node(Protocol):
    """Anything with an id and perhaps a parent."""

    @property
    def id(self) -> int: ...

    @property
    def parent_id(self) -> int | None: ...


N = TypeVar("N", bound=Node)


class Tree(Generic[N]):
    """The tree of a chat's messages in memory: adding or removing one does not change the history."""

    def __init__(self, nodes: Iterable[N]) -> None:
        self.nodes = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
        self._children: defaultdict[int | None, list[int]] = defaultdict(list)
        for node in self.nodes.values():
            self._children[self._parent(node)].append(node.id)

    def __len__(self) -> int:
        return len(self.nodes)

    def _parent(self, node: N) -> int | None:
        parent = node.parent_id
        return parent if parent in self.nodes and parent is not None and parent < node.id else None

    def add(self, node: N) -> None:
        """Adds a node that is newer than all others."""
        self.nodes[node.id] = node
        self._children[self._parent(node)].append(node.id)

    def remove(self, message_id: int) -> None:
        """Removes the message and all below it."""
        self._children[self._parent(self.nodes[message_id])].remove(message_id)
        waiting = [message_id]
        while waiting:
            here = waiting.pop()
            del self.nodes[here]
            waiting.extend(self._children.pop(here, ()))

    def path(self, head_id: int | None) -> list[N]:
        """The messages from the top to this one; none if it is not in the tree."""
        found: list[N] = []
        while head_id is not None and head_id in self.nodes:
            found.append(self.nodes[head_id])
            head_id = self._parent(found[-1])
        return found[::-1]

    @property
    def newest(self) -> int | None:
        """The newest message: the end of the branch that was continued last."""
        return next(reversed(self.nodes), None)

    def leaves(self) -> Iterator[int]:
        """The messages that end a branch, oldest first."""
        return (message_id for message_id in self.nodes if not self._children.get(message_id))

    def children(self, message_id: int | None) -> tuple[int, ...]:
        """The ids directly below the message, oldest first; None: those at the top."""
        return tuple(self._children.get(message_id, ()))

    def siblings(self, message_id: int) -> tuple[int, ...]:
        """The message and its alternatives, with the same parent, oldest first."""
        return self.children(self._parent(self.nodes[message_id]))

    def beside(self, message_id: int, offset: int) -> int:
        """The sibling `offset` further on, or back when negative; stops at the first and the last."""
        siblings = self.siblings(message_id)
        index = siblings.index(message_id) + offset
        return siblings[max(0, min(index, len(siblings) - 1))]

    def tip(self, message_id: int) -> int:
        """The newest message at or below this one: where its branch was continued last."""
        newest, waiting = message_id, [message_id]
        while waiting:
            here = waiting.pop()
            newest = max(newest, here)
            waiting.extend(self._children.get(here, ()))
        return newest
