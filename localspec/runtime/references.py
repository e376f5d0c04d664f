"""The texts that a request lets a look-up copy from, as ids: encoded once, bounded, forgotten once they are not named.

An answer's ids are those that a chat has there: what the template writes before it, then the tokens that the model
wrote; of an answer from elsewhere those of its text. Knows no drafter.
"""

from __future__ import annotations

from localspec.core.errors import Cancelled, LocalspecError
from localspec.core.events import Step
from localspec.core.requests import GenerateRequest, Reference, Template
from localspec.engine.drafters.lookup import KINDS, LookupText
from localspec.engine.drafters.ngram import LONGEST
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.models.spelling import Folding

MOST_IDS = 16_384  # of all texts together: searched in every round, in about 40 µs


class References:
    """Encodes the references of one request after another, each text once as long as it is named. What was written here
    is remembered in the model's own tokens, the last MOST_IDS of them."""

    def __init__(self, folding: Folding | None = None) -> None:
        self._folding = folding
        self._known: dict[tuple[Reference, Template | None], list[int]] = {}
        self._written: dict[str, list[int]] = {}  # by its text
        self._text, self._ids = "", list[int]()  # of the answer that is being written

    def begin(self) -> None:
        """Begins an answer; the one before is written."""
        if self._text:
            self._written.pop(self._text, None)
            self._written[self._text] = self._ids
        self._text, self._ids = "", []
        while sum(map(len, self._written.values())) > MOST_IDS:
            del self._written[next(iter(self._written))]

    def add(self, step: Step) -> None:
        """Adds what was written of it."""
        self._text += step.text
        self._ids += [token.id for token in step.tokens]

    def texts(self, request: GenerateRequest, prompter: AnyPrompter) -> list[LookupText]:
        """The texts for `LookupDrafter.refer`, of a kind the newest last. Beyond MOST_IDS the rest of them is cut,
        kept chats first."""
        known: dict[tuple[Reference, Template | None], list[int]] = {}
        texts: list[LookupText] = []
        left = MOST_IDS
        for one in sorted(request.references, key=lambda one: KINDS.index(one.kind)):
            if left <= 0:
                break
            key = (one, request.template)
            ids = self._known[key] if key in self._known else self._encode(one, prompter)
            known[key] = ids
            texts.append(LookupText(one.kind, one.name, ids[:left]))
            left -= len(ids)
        self._known = known
        return texts[::-1]

    def _encode(self, one: Reference, prompter: AnyPrompter) -> list[int]:
        """The ids of a text, after the few by which it is recognised; none where it cannot be encoded, since an answer
        does without it."""
        try:
            if not one.before or not prompter.can_chat:
                return prompter.words((), f"\n{one.text}")  # as at the beginning of a line
            before = self._folding.messages(one.before) if self._folding else one.before
            words = self._written.get(one.text) or prompter.words(before, one.text)
            return [*prompter.chat(before)[-LONGEST:], *words]
        except Cancelled:
            raise
        except (LocalspecError, UnicodeEncodeError):  # half of a surrogate pair
            return []
