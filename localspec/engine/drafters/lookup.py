"""Look-up: copies what followed the last tokens where they stood before. No model, no weights, no memory of a GPU.

Searched are the conversation itself, then other texts: branches of the chat, files, kept chats. The longest match wins,
and the earlier in this order of two that are as long. It keeps the conversation's ids in step by a counter, so a
rewind, a branch and a cancel need nothing more. arXiv 2304.04487 (LLMA); prompt look-up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from localspec.core.events import Origin
from localspec.core.requests import MAX_DRAFT
from localspec.engine.drafters.empty import empty
from localspec.engine.drafters.ngram import LONGEST, Match, NgramFinder, joined
from localspec.engine.protocols import Choice, Draft, Offer
from localspec.engine.session import Session

KINDS = ("branch", "file", "chat")  # by precedence, behind the conversation
LENGTHS = (1, 2, 4, 8, 16)  # the greatest match length of each class but the last
AGREEMENTS = 3  # one occurrence; all of several agree; not all do
NUM_BUCKETS = AGREEMENTS * (len(LENGTHS) + 1)


@dataclass(frozen=True, slots=True)
class LookupText:
    """The ids of a text to copy from, with the few before it that it is recognised by."""

    kind: str
    name: str
    ids: Sequence[int]


class Corpus:
    """All texts of a kind, as one."""

    def __init__(self, kind: str, texts: Sequence[LookupText]) -> None:
        self.kind, self.names = kind, [text.name for text in texts]
        self.starts = list(accumulate((len(text.ids) + 1 for text in texts), initial=0))[:-1]
        self.ids = joined([text.ids for text in texts])

    def origin(self, position: int) -> Origin:
        """The text that a position of the whole is in, and which of its tokens it is."""
        index = bisect_right(self.starts, position) - 1
        return Origin(self.kind, self.names[index], position - self.starts[index])  # type: ignore[arg-type]


class LookupDrafter:
    """Offers one continuation, whose tokens are known beforehand; `refer` sets the other texts."""

    kind = "lookup"

    def __init__(self) -> None:
        self.find = NgramFinder()
        self.ids = array("i")  # the session's tokens
        self.corpora: tuple[Corpus, ...] = ()

    def refer(self, texts: Sequence[LookupText]) -> None:
        """Sets the texts beside the conversation, in place of those before. Of texts of a kind the last one is the
        newest."""
        kinds = [(kind, [text for text in texts if text.kind == kind]) for kind in KINDS]
        self.corpora = tuple(Corpus(kind, some) for kind, some in kinds if some)

    def prefill(self, session: Session) -> None:
        pass

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        self.ids.extend(session.tokens[len(self.ids) :])
        match, corpus = self.longest(min(most, MAX_DRAFT))
        if match is None:
            return ()
        tokens = up_to_stop(match.tokens, session.stop_ids)
        origin = corpus.origin(match.end) if corpus else Origin("conversation", position=match.end)
        return (Offer(self.kind, len(tokens), tokens, bucket(match), origin),) if tokens else ()

    def longest(self, most: int) -> tuple[Match | None, Corpus | None]:
        """The longest match, and the corpus that it is in; None for the conversation."""
        best, where = self.find(self.ids, self.ids, most), None
        for corpus in self.corpora:
            if best is not None and best.length == LONGEST:
                break
            found = self.find(self.ids, corpus.ids, most)
            if found is not None and (best is None or found.length > best.length):
                best, where = found, corpus
        return best, where

    def draft(self, session: Session, choice: Choice) -> Draft:
        offers = (choice.offer,) if choice.offer is not None and choice.offer.tokens else ()
        for offer in offers or self.offers(session, choice.k):
            tokens = offer.tokens[: choice.k]
            return Draft(torch.tensor(tokens, device=session.device), drafters=(self.kind,) * len(tokens))
        return empty(session)

    def crop(self, length: int) -> None:
        del self.ids[length:]


def up_to_stop(tokens: tuple[int, ...], stop_ids: frozenset[int]) -> tuple[int, ...]:
    """The tokens to the first that ends an answer: nothing after it would be tested."""
    for index, token in enumerate(tokens):
        if token in stop_ids:
            return tokens[: index + 1]
    return tokens


def bucket(match: Match) -> int:
    """How far a match can be trusted, 0 to NUM_BUCKETS - 1: the class of its length (1, 2, 3-4, 5-8, 9-16, more) times
    three, and 0 where the last tokens stand nowhere else, 1 where all of several occurrences went on with the same
    token, 2 where not all did."""
    length = sum(match.length > most for most in LENGTHS)
    agrees = bool(match.votes) and match.votes[0] == match.voters
    return AGREEMENTS * length + (2 if not agrees else int(match.voters > 1))
