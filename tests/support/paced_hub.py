"""A scripted hub whose answers wait for the test: an Event in a script holds up what follows until it is set, or until
the process that was asked is closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import pytest

from localspec.core.errors import PullError
from localspec.hub.process import HubProcess
from localspec.hub.records import AnyAsk, Ask, HubAnswer
from tests.support.scripted_hub import ScriptedHub

LOOK_SECONDS = 0.005


class PacedHub:
    """`asked`: all questions so far, of every process."""

    def __init__(self, scripts: dict[type[Ask], Sequence[Sequence[HubAnswer | Exception | Event]]]) -> None:
        self.script: Any = ScriptedHub(scripts)  # type: ignore[arg-type]
        self.ended: set[int] = set()

    @property
    def asked(self) -> list[AnyAsk]:
        return list(self.script.asked)

    def of(self, kind: type[Ask]) -> list[Any]:
        """The questions of one kind."""
        return [question for question in self.asked if isinstance(question, kind)]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> PacedHub:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(HubProcess, "ask", lambda process, question: self.answers(process, question))  # noqa: PLW0108 - bound to the process
        monkeypatch.setattr(HubProcess, "close", lambda process: self.ended.add(id(process)))
        return self

    def answers(self, process: HubProcess, question: AnyAsk) -> Iterator[HubAnswer]:
        self.ended.discard(id(process))
        for answer in self.script.ask(question):
            while isinstance(answer, Event) and not answer.wait(LOOK_SECONDS):
                if id(process) in self.ended:
                    raise PullError("The download's process ended.")
            if not isinstance(answer, Event):
                yield answer
