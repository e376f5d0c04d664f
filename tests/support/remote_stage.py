"""A RemoteEngine with a stand-in server: questions go in, events come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from localspec.core.events import AnyEvent, Done, Failure, Ready
from localspec.core.requests import GenerateRequest, Message
from localspec.remote.engine import RemoteEngine
from localspec.remote.exchange import ServerTimeouts
from localspec.remote.server import Remote
from tests.support.recorded_servers import models
from tests.support.stand_in_server import Answer, Route, StandIn, stand_in

PATIENT = ServerTimeouts(connect=10, short=20, silence=20)
CHAT = "POST /v1/chat/completions"
QUESTION = GenerateRequest(messages=(Message("user", "Hello?"),))


def serving(owner: str, *answers: Answer, path: str = CHAT, **more: Route) -> dict[str, Route]:
    """The routes of a server of this owner's, which answers so."""
    routes: dict[str, Route] = {"GET /v1/models": Answer.json(models(owner)), path: list(answers)}
    return routes | {name.replace("_", " ", 1).replace("__", "/"): route for name, route in more.items()}


@dataclass
class Talk:
    """An engine under way."""

    server: StandIn
    engine: RemoteEngine
    events: Iterator[AnyEvent]
    opening: list[AnyEvent] = field(default_factory=list)

    def open(self) -> AnyEvent:
        """Ready, or why it is not."""
        for event in self.events:
            self.opening.append(event)
            if isinstance(event, Ready | Failure):
                return event
        raise AssertionError("it ended without a word")

    def ask(self, request: GenerateRequest = QUESTION) -> list[AnyEvent]:
        """The events of one answer."""
        self.engine.ask(request)
        return self.rest()

    def rest(self) -> list[AnyEvent]:
        found = []
        for event in self.events:
            found.append(event)
            if isinstance(event, Done | Failure):
                break
        return found


@contextmanager
def talk(routes: dict[str, Route], deadlines: ServerTimeouts = PATIENT, **remote: str) -> Iterator[Talk]:
    with stand_in(routes) as server:
        engine = RemoteEngine(Remote(server.url, **remote), deadlines)
        engine.start()
        try:
            yield Talk(server, engine, engine.events())
        finally:
            engine.close()


def text_of(events: list[AnyEvent]) -> str:
    return "".join(getattr(event, "text", "") for event in events)


def done_of(events: list[AnyEvent]) -> Done:
    assert isinstance(events[-1], Done), events[-1]
    return events[-1]


def failure_of(events: list[AnyEvent]) -> Failure:
    assert isinstance(events[-1], Failure), events[-1]
    return events[-1]
