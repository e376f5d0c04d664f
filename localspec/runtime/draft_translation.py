"""A drafter with another tokenizer, along one answer: the conversation in its own template, and the Translation behind.

Both tokenizers run in their sandboxes. Knows no model and no round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from localspec.core.errors import LocalspecError
from localspec.core.events import Notice
from localspec.core.requests import GenerateRequest
from localspec.models.checkpoint import Snapshot
from localspec.models.pieces import TokenBytes
from localspec.models.prompt_sandbox import AnyPrompter, SandboxedPrompter
from localspec.models.translation import Tongue, Translation

REMEMBERED = 4096  # texts of a few words: asking a sandbox takes as long as a small draft


@dataclass(slots=True)
class Translating:
    """`drafter`: the drafter's own prompter, closed with this."""

    translation: Translation
    drafter: SandboxedPrompter
    is_reported: bool = False

    @classmethod
    def open(cls, target: AnyPrompter, ends: Snapshot, drafter: Snapshot) -> Translating:
        """`ends`: the target's snapshot, which says what ends its turns."""
        own = SandboxedPrompter.open(drafter)
        translation = Translation(
            Tongue(TokenBytes(target.tokenizer), lru_cache(REMEMBERED)(target.running)),
            Tongue(TokenBytes(own.tokenizer), lru_cache(REMEMBERED)(own.running)),
            end_ids=drafter.eos_ids,
            end_id=end_of_turn(ends, target),
        )
        return cls(translation, own)

    def begin(self, request: GenerateRequest, prompt: Sequence[int], target: AnyPrompter) -> None:
        """Begins an answer, whose prompt has these ids to the target."""
        self.translation.begin(self.prompt(request, prompt, target), len(prompt))

    def prompt(self, request: GenerateRequest, prompt: Sequence[int], target: AnyPrompter) -> list[int]:
        """The prompt in the drafter's ids: its own template of the messages, else the target's text without control
        tokens. None where the drafter's files refuse it: then nothing is drafted."""
        try:
            if request.messages is None or not self.drafter.can_chat:
                return self.drafter.text(target.tokenizer.decode(list(prompt)))
            if not request.continues:
                return self.drafter.chat(request.messages)
            *asked, last = request.messages
            return [*self.drafter.chat(asked), *self.drafter.words(asked, last.content)]
        except LocalspecError:
            return []

    def notice(self, name: str) -> Notice | None:
        """What to say, once, where the answer's text does not survive both tokenizers."""
        if self.is_reported or not self.translation.broken:
            return None
        self.is_reported = True
        message = f"{name} has another tokenizer, and this text cannot be translated exactly, so it drafts nothing."
        return Notice("info", "translation", message, "It drafts again where the text can be. Answers stay the same.")

    def close(self) -> None:
        self.drafter.close()


def end_of_turn(snapshot: Snapshot, prompter: AnyPrompter) -> int | None:
    """The id that ends a turn: the tokenizer's own end token where it ends texts, else the first that does."""
    id = prompter.tokenizer.token_to_id(snapshot.special_tokens.get("eos_token", ""))
    return id if id in snapshot.eos_ids else next(iter(snapshot.eos_ids), None)
