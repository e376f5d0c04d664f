"""A hub's process whose download reports its progress fifty times a second: what a chat's screen must bear.

python -m benchmarks.ui.busy_hub SILENCE, in place of `localspec.hub.child`. Downloads nothing and knows no network.
"""

from __future__ import annotations

import sys
from itertools import count
from time import sleep

import msgspec

from localspec.hub.records import (
    Access,
    Answer,
    AnyAsk,
    AskPull,
    DraftOffer,
    Go,
    Licence,
    Progress,
    PullPlan,
    RemoteFile,
    Repository,
)

TOTAL = 1 << 40
EVENTS_PER_SECOND = 50
ASKED = msgspec.json.Decoder(AnyAsk)


def plan(repo: str) -> PullPlan:
    target = Repository(repo, "main", "0" * 40, (RemoteFile("model.safetensors", TOTAL),), Licence(), Access())
    return PullPlan(target, None, DraftOffer("none"), None, 2 * TOTAL, TOTAL)


def say(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    for line in sys.stdin.buffer:
        match ASKED.decode(line):
            case AskPull(request):
                say(plan(request.repo))
            case Go():
                for step in count():
                    share = min(step / 1000, 1.0)
                    say(Progress("", "downloading", int(TOTAL * share), TOTAL, bytes_per_second=9e7, eta_s=60.0))
                    sleep(1 / EVENTS_PER_SECOND)
            case _:
                return


if __name__ == "__main__":
    main()
