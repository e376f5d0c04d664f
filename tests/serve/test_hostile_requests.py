"""What web pages, scanners and broken programs send: refused in OpenAI's shape or cut off, and the engine never hears
of it. The attacks are in tests/support/hostile/."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, suppress
from http.client import HTTPException, HTTPResponse
from random import Random

import pytest

from tests.support.hostile import attacks
from tests.support.hostile.bodies import announced_giant, giant, giant_in_chunks
from tests.support.hostile.request import TEXT, Attack, Build, request
from tests.support.hostile.senders import HOSTS, ORIGINS, TYPES
from tests.support.served import PATIENCE, Response, Server

pytestmark = pytest.mark.heavy

OK, REFUSED = 200, range(400, 500)
IDLE = 400  # lines; more than the server keeps


def sent(server: Server, attack: Attack) -> Response | None:
    """What came back; None where the line was closed without an answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as line:
        with suppress(OSError):  # it may be closed before all is sent
            line.sendall(attack.content)
            if attack.is_cut:
                line.shutdown(socket.SHUT_WR)
        try:
            response = HTTPResponse(line)
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, headers, response.read())
        except (ConnectionError, HTTPException):
            return None


def check(attack: Attack, response: Response | None) -> None:
    shown = f"{attack.kind}: {attack.content[:300]!r}"
    if response is None:
        assert attack.may_close, f"not answered: {shown}"
        return
    assert b"Traceback" not in response.content, shown
    if attack.is_harmless and response.status == OK:
        return
    assert response.status in REFUSED, f"{response.status} {response.content[:200]!r}: {shown}"
    assert response.headers["content-type"] == "application/json", shown
    assert response.error["message"], shown
    assert "access-control-allow-origin" not in response.headers, shown


@pytest.mark.parametrize(("count", "seed"), [(100, 1), pytest.param(1000, 2, marks=pytest.mark.slow)])
def test_hostile_requests_are_refused_and_never_reach_the_engine(served, count, seed):
    before, engine = served.metrics(), served.engine.pid
    usual = served.complete("To stop a model,", max_tokens=8)["choices"]
    answered = 1
    for attack in attacks(count, seed):
        response = sent(served, attack)
        check(attack, response)
        answered += attack.is_harmless and response is not None and response.status == OK
    served.wait_until_idle()
    after = served.metrics()
    assert written(after) - written(before) == answered
    assert after["localspec:engine_starts_total"] == before["localspec:engine_starts_total"]
    assert served.engine.pid == engine
    assert served.complete("To stop a model,", max_tokens=8)["choices"] == usual
    assert "Traceback" not in served.printed
    assert "error:" not in served.printed


def written(metrics: dict[str, float]) -> float:
    """How many answers the engine wrote; a prompt that is longer than the context is an error, and none."""
    counts = {name: value for name, value in metrics.items() if name.startswith("localspec:answers_total")}
    return sum(value for name, value in counts.items() if "error" not in name)


@pytest.mark.parametrize("host", HOSTS)
def test_every_wrong_host_is_refused_as_such(served, host):
    """CVE-2024-28224, CVE-2025-66414: a name that resolves to this machine, or only looks like it."""
    response = sent(served, Attack("host", request("POST", TEXT, b'{"prompt": "x", "max_tokens": 1}', Host=host)))
    assert response is not None
    assert response.status in (400, 403)
    assert response.error["code"] in ("host", "not_http")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "localhost.", "[::1]:11535", "127.0.0.1:80"])
def test_every_name_of_this_machine_is_served(served, host):
    response = sent(served, Attack("host", request("GET", "/v1/models", Host=host)))
    assert response is not None
    assert response.status == OK


@pytest.mark.parametrize("origin", ORIGINS)
def test_every_foreign_page_is_refused_as_such(served, origin):
    response = sent(served, Attack("origin", request("POST", TEXT, b'{"prompt": "x", "max_tokens": 1}', Origin=origin)))
    assert response is not None
    assert (response.status, response.error["code"]) == (403, "origin")
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("kind", TYPES)
def test_every_other_kind_of_body_is_refused_as_such(served, kind):
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    response = sent(served, Attack("type", request("POST", TEXT, body, Content_Type=kind)))
    assert response is not None
    assert (response.status, response.error["code"]) == (415, "content_type")


def test_a_preflight_lets_no_page_ask(served):
    asked = {"Origin": "http://evil.com", "Access_Control_Request_Method": "POST"}
    response = sent(served, Attack("preflight", request("OPTIONS", TEXT, **asked)))
    assert response is not None
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("build", [giant, giant_in_chunks, announced_giant])
def test_a_body_that_is_too_large_is_refused_as_such(served: Server, build: Build):
    response = sent(served, build(Random(1)))
    assert response is not None
    assert (response.status, response.error["code"]) == (413, "too_large")


def test_a_request_inside_another_is_not_heard(served: Server):
    """CL.TE: what a proxy in front of us takes for a body must not be a request of its own."""
    before = written(served.metrics())
    inner = request("POST", TEXT, json.dumps({"prompt": "x", "max_tokens": 1}).encode())
    outer = request("POST", TEXT, b"0\r\n\r\n" + inner, Transfer_Encoding="chunked")
    response = sent(served, Attack("smuggled", outer))
    assert response is not None
    assert response.status == 400
    assert response.headers["connection"] == "close"
    served.wait_until_idle()
    assert written(served.metrics()) == before


def test_lines_that_say_nothing_keep_no_one_out(served: Server):
    with ExitStack() as lines:
        for _ in range(IDLE):
            lines.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE))
        assert served.complete("To stop a model,", max_tokens=2)["usage"]["completion_tokens"] == 2
    assert "Traceback" not in served.printed
