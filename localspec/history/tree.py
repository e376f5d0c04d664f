"""The messages of a chat as a tree: branches, siblings and where each ends. Knows ids and parents, no texts and no SQL.

A message is always older than its answers, so its id is smaller; what says otherwise is damaged, and stands at the top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Node(Protocol):
    """What has an id and may stand below another."""

    @property
    def id(self) -> int: ...

    @property
    def parent_id(self) -> int | None: ...


N = TypeVar("N", bound=Node)


class Tree(Generic[N]):
    """A picture of a chat: what is added or removed here is not in the history for it."""

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
        """Said after all that is here."""
        self.nodes[node.id] = node
        self._children[self._parent(node)].append(node.id)

    def remove(self, message_id: int) -> None:
        """The message and all that was said after it."""
        self._children[self._parent(self.nodes[message_id])].remove(message_id)
        waiting = [message_id]
        while waiting:
            here = waiting.pop()
            del self.nodes[here]
            waiting.extend(self._children.pop(here, ()))

    def path(self, head_id: int | None) -> list[N]:
        """From the top to this message; empty for a message that is not here."""
        found: list[N] = []
        while head_id is not None and head_id in self.nodes:
            found.append(self.nodes[head_id])
            head_id = self._parent(found[-1])
        return found[::-1]

    def children(self, message_id: int | None) -> tuple[int, ...]:
        """What was said after it, oldest first; None asks for how the chat begins."""
        return tuple(self._children.get(message_id, ()))

    def siblings(self, message_id: int) -> tuple[int, ...]:
        """The message among the others that were said in its place, oldest first."""
        return self.children(self._parent(self.nodes[message_id]))

    def beside(self, message_id: int, places: int) -> int:
        """The sibling so many places later, or earlier; the first and the last have nobody behind them."""
        siblings = self.siblings(message_id)
        place = siblings.index(message_id) + places
        return siblings[max(0, min(place, len(siblings) - 1))]

    def tip(self, message_id: int) -> int:
        """Where the branch through this message was continued last: the newest message at or below it."""
        newest, waiting = message_id, [message_id]
        while waiting:
            here = waiting.pop()
            newest = max(newest, here)
            waiting.extend(self._children.get(here, ()))
        return newest
