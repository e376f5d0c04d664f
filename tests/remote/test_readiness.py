"""A server that still loads its model is waited for, when a chat begins and before an answer; Esc ends that, too."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.core.events import Done, Failure, Loading, Ready, Waiting
from localspec.core.requests import GenerateRequest
from localspec.remote import readiness
from tests.support.recorded_servers import models, stream
from tests.support.remote_stage import CHAT, QUESTION, failure_of, serving, talk, text_of
from tests.support.stand_in_server import Answer, Route

LOADS = "the server loads its model"
HEALTHY = Answer.json({"status": "ok"})


def still_loading(**progress: Any) -> Answer:
    """localspec's; of llama-server, whose words are the same, there is no progress."""
    error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
    return Answer.json({"error": {**error, **({"progress": progress} if progress else {})}}, 503)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "TICK", 0)


def routes(
    *health: Answer, answers: tuple[Answer, ...] = (Answer(stream()),), owner: str = "localspec"
) -> dict[str, Route]:
    return {**serving(owner, *answers), "GET /health": list(health)}


def test_a_chat_begins_once_the_model_is_loaded_and_knows_what_the_server_then_says():
    without = Answer.json(models("localspec"))
    with_context = Answer.json(models("localspec", meta={"n_ctx": 2048}))
    steps = still_loading(), still_loading(stage="loading weights", done=40, total=100, unit="bytes", eta_s=None)
    with talk({**routes(*steps, HEALTHY), "GET /v1/models": [without, with_context]}) as with_server:
        ready = with_server.open()
        assert isinstance(ready, Ready)
        assert ready.model.context_max == 2048
        seen = [event for event in with_server.opening if isinstance(event, Loading)][1:]
        assert [(one.stage, one.done, one.total) for one in seen] == [
            (LOADS, 0, 1),
            (f"{LOADS}: loading weights", 40, 100),
        ]
        assert with_server.server.questions == []


def test_a_llama_server_refuses_all_until_it_has_loaded():
    """As tools/server/server-http.cpp has it: not even its list of models is to be had."""
    loads = still_loading()
    names = ("GET /v1/models", "GET /props", "GET /server_info", "GET /api/v0/models", "GET /api/version")
    with talk({**dict.fromkeys(names, loads), "GET /health": loads}) as with_server:
        events = with_server.events
        while getattr(next(events), "stage", "") != LOADS:
            pass
        loaded = {"default_generation_settings": {"n_ctx": 2048}}
        with_server.server.routes |= {**routes(HEALTHY, owner="llamacpp"), "GET /props": Answer.json(loaded)}
        ready = with_server.open()
        assert isinstance(ready, Ready)
        assert ready.model.context_max == 2048


def test_a_server_that_refuses_for_another_reason_is_not_waited_for():
    with talk({"GET /v1/models": Answer.json({}, 502)}) as with_server:
        assert "502 Bad Gateway" in getattr(with_server.open(), "message", "")


@pytest.mark.parametrize("owner", ["localspec", "llamacpp"])
def test_a_question_that_is_refused_since_the_model_loads_is_asked_again(owner: str):
    health = HEALTHY, still_loading(done=2, total=4), still_loading(), HEALTHY
    with talk(routes(*health, answers=(still_loading(), Answer(stream())), owner=owner)) as with_server:
        with_server.open()
        events = with_server.ask()
        assert [event.reason for event in events if isinstance(event, Waiting)] == [f"{LOADS}, 50 %", LOADS]
        assert text_of(events) == "Hello there, world."
        first, second = with_server.server.questions
        assert first.body == second.body


def test_a_server_that_is_unavailable_for_another_reason_is_not_waited_for():
    busy = Answer.json({"error": {"message": "overloaded"}}, 503)
    with talk(routes(HEALTHY, busy, answers=(busy, Answer(stream())))) as with_server:
        with_server.open()
        assert "cannot answer now" in failure_of(with_server.ask()).message
        assert len(with_server.server.questions) == 1


def test_an_answer_that_broke_is_never_asked_for_again_by_itself():
    """The engine ended in the middle, and the next one loads: what was written is kept, and the user decides."""
    ended = b'data: {"error": {"message": "The engine stopped.", "code": "engine_died"}}\n\n'
    broken = Answer([*stream()[:3], ended])
    with talk(routes(HEALTHY, still_loading(), answers=(broken, Answer(stream())))) as with_server:
        with_server.open()
        events = with_server.ask()
        assert isinstance(events[-1], Failure)
        assert len(with_server.server.questions) == 1


def test_a_wait_is_ended_like_an_answer():
    with talk(routes(HEALTHY, still_loading(), answers=(still_loading(),))) as with_server:
        with_server.open()
        with_server.engine.ask(QUESTION)
        assert isinstance(next(with_server.events), Waiting)
        with_server.engine.cancel()
        rest = with_server.rest()
        assert isinstance(rest[-1], Done)
        assert rest[-1].finish_reason == "cancelled"
        with_server.server.routes |= {"GET /health": HEALTHY, CHAT: Answer(stream())}
        assert text_of(with_server.ask(GenerateRequest(messages=QUESTION.messages))) == "Hello there, world."


def test_a_chat_that_is_closed_waits_no_longer():
    with talk(routes(still_loading())) as with_server:
        events = iter(with_server.events)
        while LOADS not in getattr(next(events), "stage", ""):
            pass
        with_server.engine.close()
        assert not [event for event in events if isinstance(event, Failure)]


@pytest.mark.parametrize(
    "progress",
    [
        {"stage": 7, "done": 1, "total": 2},
        {"stage": "x", "done": -1, "total": 2},
        {"stage": "x", "done": 1, "total": 1 << 80},
        {"stage": "x", "done": "1"},
    ],
)
def test_progress_that_cannot_be_is_none(progress: dict[str, Any]):
    with talk(routes(still_loading(**progress), HEALTHY)) as with_server:
        assert isinstance(with_server.open(), Ready)
        (_, seen) = [event for event in with_server.opening if isinstance(event, Loading)]
        assert (seen.stage, seen.done, seen.total) == (LOADS, 0, 1)


def test_a_stage_is_a_strangers_words():
    with talk(routes(still_loading(stage="a\x1b[2J\n" + "b" * 900), HEALTHY)) as with_server:
        with_server.open()
        (_, seen) = [event for event in with_server.opening if isinstance(event, Loading)]
        assert "\x1b" not in seen.stage
        assert len(seen.stage) < 100
