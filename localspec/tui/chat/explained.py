"""What stands on the screen of a chat, in a line each, for readers to whom drafting is new: F1 begins with them, and
the mouse shows them. Knows no widget; the marks of tokens are in `transcript/sources.py`."""

from __future__ import annotations

from typing import Final, NamedTuple

from localspec.runtime.stats import PROBES_NEEDED


class Shown(NamedTuple):
    """What is seen, and what it means."""

    sign: str
    says: str

    @property
    def sentence(self) -> str:
        return f"{self.sign}: {self.says}."


DRAFTER: Final = Shown("⇐", "the drafter, which quickly guesses the next tokens")
LAYERS: Final = Shown("layers 1–2", "early exit: the model's own first layers are the drafter")
ROUND: Final = Shown("round", "the drafter guesses tokens, the model keeps the right ones")
SPEED: Final = Shown("tok/s", "tokens (words or parts of words) per second")
GAIN: Final = Shown("×1.50 ±0.10", "times as fast as without drafting, with its 95 % interval")
CERTAIN: Final = Shown("▲ ▼", "faster, slower for certain: the interval does not reach 1")
NOT_YET: Final = Shown("×–", f"not known yet: it takes {PROBES_NEEDED} rounds without a draft")
RIBBON: Final = Shown("▁▅█ ·", "a cell a round, as high as its draft was right; · no draft")
ACCEPTED: Final = Shown("accepted", "the share of guesses that were right")
CONTEXT: Final = Shown("ctx", "tokens that the model last read and wrote, and how many fit")
PLAIN: Final = Shown("plain", "the speed without drafting: speed divided by speed-up")
PROBES: Final = Shown("probes", "rounds without a draft, to measure the speed-up by")

WHAT_YOU_SEE: Final = (DRAFTER, LAYERS, ROUND, SPEED, GAIN, CERTAIN, NOT_YET, RIBBON, ACCEPTED, CONTEXT, PLAIN, PROBES)
UNDER_AN_ANSWER: Final = f"Tokens written; seconds to the first one; {ACCEPTED.sentence}"
