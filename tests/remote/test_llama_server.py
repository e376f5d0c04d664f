"""What a real llama-server answered, word for word (its `note` says which), through the reader and the engine."""

from __future__ import annotations

import json
from pathlib import Path

from localspec.core.requests import GenerateRequest, Message
from localspec.core.server_speculation import speculation
from localspec.remote.server import Remote, find
from localspec.remote.totals import read
from tests.support.remote_stage import CHAT, QUESTION, done_of, failure_of, talk, text_of
from tests.support.stand_in_server import Answer, Route, stand_in

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "llama_server.json").read_text(encoding="utf-8"))


def replayed(name: str) -> Answer:
    status, content_type, body = RECORDED[name]
    return Answer([body.encode()], status, content_type)


def routes(name: str) -> dict[str, Route]:
    return {"GET /v1/models": replayed("models"), "GET /props": replayed("props"), CHAT: replayed(name)}


def test_it_is_known_with_its_model_and_context():
    with stand_in(routes("chat")) as server:
        found = find(Remote(server.url))
    assert found.kind.name == "llama-server"
    assert (found.model("").name, found.model("").context) == ("smollm2", 2048)


def test_its_totals_are_what_it_says_of_its_drafts():
    with stand_in({**routes("chat"), "GET /metrics": replayed("metrics")}) as server:
        assert find(Remote(server.url)).speculation == "on, accepted 77 % of all since its start"


def test_an_answer_with_its_drafts():
    with talk(routes("chat")) as with_server:
        with_server.open()
        answer = with_server.ask()
    assert text_of(answer) == ", ".join(["apple, pear, plum, cherry"] * 4)
    stats = done_of(answer).stats
    assert (stats.prompt_n, stats.cached_n, stats.predicted_n) == (62, 61, 32)
    assert speculation(stats) == "77 % of 30 drafted accepted (server)"


def test_an_answer_with_a_draft_models_drafts():
    with talk(routes("draft model")) as with_server:
        with_server.open()
        answer = with_server.ask()
    assert speculation(done_of(answer).stats) == "100 % of 20 drafted accepted (server)"


def test_an_answer_that_goes_on_is_not_said_twice():
    """It sends what there was of the answer once more, in one chunk with the first new word."""
    begun = (Message("user", "Count to five."), Message("assistant", "One, two,"))
    with talk(routes("continued")) as with_server:
        with_server.open()
        answer = with_server.ask(GenerateRequest(messages=begun, continues=True))
    assert text_of(answer).startswith(" three,")


def test_its_refusals():
    long = GenerateRequest(messages=(Message("user", "a"), Message("assistant", "b"), Message("user", "c")))
    with talk(routes("too long")) as with_server:
        with_server.open()
        failure = failure_of(with_server.ask(long))
    assert (failure.code, failure.turns_over) == ("context_overflow", 1)
    with talk(routes("wrong field")) as with_server:
        with_server.open()
        assert "Expected 'messages' to be an array" in failure_of(with_server.ask(QUESTION)).message


def test_its_metrics():
    totals = read(RECORDED["metrics"][2])
    assert totals.has_drafts
    assert (totals.rounds, totals.drafted, totals.accepted) == (10, 60, 46)
