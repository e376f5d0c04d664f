"""Turns rounds of ids into Steps of text: who wrote which token, stop strings, rejected proposals.

Knows tokenizers and records; no tensors, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from localspec.core.events import Likely, Proposal, Source, Step, Token
from localspec.engine.protocols import Round
from localspec.models.detokenize import REPLACEMENT, Detokenizer

LEAST_LOGPROB = -9999.0  # JSON has no infinity


class StepWriter:
    """Writes one answer. `stopped` is the stop string that ended it, complete: it is cut, with what follows."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.detokenizer = Detokenizer(tokenizer)
        self.stop = tuple(text for text in stop if text)
        self.held = ""  # what may yet turn out to begin a stop string
        self.stopped = ""

    def step(self, done: Round, before: int = 0, *, shared: bool = False) -> Step:
        """The round as text, with `before` tokens in the context. `shared`: its forward had rows of other answers.
        After a stop string, tokens are fewer than the round's."""
        tokens = []
        for position, id in enumerate(done.tokens):
            tokens.append(self.token(done, position, self.release(self.detokenizer.push(id))))
            if self.stopped:
                break
        if done.ended and tokens and not self.stopped:
            tokens[-1] = self.token(done, len(tokens) - 1, tokens[-1].text + self.rest())
        accepted, was_cut = min(done.accepted, len(tokens)), len(tokens) < len(done.tokens)
        ignored = done.drafted - accepted if was_cut else done.ignored
        return Step(
            kind="draft" if done.drafted else "plain",
            tokens=tuple(tokens),
            drafted=done.drafted,
            accepted=accepted,
            ignored=ignored,
            draft_ms=1000 * done.draft_seconds,
            verify_ms=1000 * done.verify_seconds,
            rejected=tuple(self.proposal(done, position) for position in range(accepted, done.drafted - ignored)),
            drafters=done.drafters,
            origin=done.copied.origin if done.copied else None,
            position=before,
            shared=shared,
        )

    def token(self, done: Round, position: int, text: str) -> Token:
        id, likely = done.tokens[position], self.likely(done, position)
        if position < done.accepted:
            drafter = done.drafters[position] if done.drafters else ""
            return Token(id, text, "draft", pos=position, drafter=drafter, logprobs=likely)
        missed = done.accepted < done.drafted
        source: Source = "fix" if missed else "bonus" if done.drafted else "plain"
        alt = self.proposal(done, position) if missed else None
        return Token(id, text, source, alt=alt, logprobs=likely)

    def likely(self, done: Round, position: int) -> tuple[Likely, ...]:
        found = done.logprobs[position] if done.logprobs else ()
        return tuple(Likely(id, self.spelled(id), max(value, LEAST_LOGPROB)) for id, value in found)

    def spelled(self, id: int) -> str:
        return self.tokenizer.decode([id], skip_special_tokens=False)

    def proposal(self, done: Round, position: int) -> Proposal:
        known = done.probabilities
        both = (known.drafter[position], known.target[position]) if known else ()
        return Proposal(done.draft[position], self.spelled(done.draft[position]), *both)

    def release(self, piece: str) -> str:
        """The text that may be shown now; what could begin a stop string waits."""
        self.held += piece
        found = [(at, stop) for stop in self.stop if (at := self.held.find(stop)) >= 0]
        if found:
            at, self.stopped = min(found)
            shown, self.held = self.held[:at], ""
            return shown
        keep = max((overlap(self.held, stop) for stop in self.stop), default=0)
        cut = len(self.held) - keep
        shown, self.held = self.held[:cut], self.held[cut:]
        return shown

    def rest(self) -> str:
        """All that was held back, but not half a character: the answer ended another way, and may yet go on."""
        last = self.detokenizer.flush()
        shown, self.held = self.release("" if REPLACEMENT in last else last) + self.held, ""
        return shown

    def resume(self, tokens: Sequence[int], shown: str) -> bool:
        """Go on after an answer so far, half a character and all. False: the tokens do not say what was shown."""
        text = "".join(self.release(self.detokenizer.push(id)) for id in tokens)
        return text == shown or text + self.rest() == shown


def overlap(text: str, stop: str) -> int:
    """How many of the last characters of `text` could begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
