"""A hub's process whose download reports its progress ten times a second: what a chat's screen must bear.

As a pull reports it: each with other bytes, another rate and another time left, and a percent more every second.

python -m benchmarks.ui.busy_hub SILENCE, in place of `localspec.hub.child`. Downloads nothing and knows no network.
"""

from __future__ import annotations

import sys
from itertools import count
from time import sleep

import msgspec

from localspec.hub.records import (
    Access,
    AnyAsk,
    AskPull,
    DraftOffer,
    Go,
    HubAnswer,
    Licence,
    Progress,
    PullPlan,
    RemoteFile,
    Repository,
)

TOTAL = 10**12
EVENTS_PER_SECOND = 10  # as many as a pull reports at most
EVENTS_OF_A_PERCENT = 10
RATE = 90e6  # bytes a second, about
ASKED = msgspec.json.Decoder(AnyAsk)


def plan(repo: str) -> PullPlan:
    target = Repository(repo, "main", "0" * 40, (RemoteFile("model.safetensors", TOTAL),), Licence(), Access())
    return PullPlan(target, None, DraftOffer("none"), None, 2 * TOTAL, TOTAL)


def progress(step: int) -> Progress:
    """The bytes after so many reports; the rate goes up and down around its mean, as a line's does."""
    done = min(TOTAL, TOTAL * step // (100 * EVENTS_OF_A_PERCENT))
    rate = RATE * (0.8 + 0.04 * (step % 11))
    return Progress("", "downloading", done, TOTAL, bytes_per_second=rate, eta_s=(TOTAL - done) / rate)


def say(answer: HubAnswer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    for line in sys.stdin.buffer:
        match ASKED.decode(line):
            case AskPull(request):
                say(plan(request.repo))
            case Go():
                for step in count():
                    say(progress(step))
                    sleep(1 / EVENTS_PER_SECOND)
            case _:
                return


if __name__ == "__main__":
    main()
