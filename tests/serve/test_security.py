"""Who may ask: each row is an attack that a local server of another project let in, and what this one answers.

The engine must not hear of any of them.
"""

from __future__ import annotations

import pytest

from localspec.core.events import Failure, Loading
from localspec.serve.engine import STARTING
from localspec.serve.security import AccessRules, host_name, is_loopback
from tests.serve.test_answers import SCRIPT
from tests.support.asgi_client import Call
from tests.support.scripted_engine import READY, ScriptedEngine
from tests.support.site import Stage, answering, stage

CHAT = {"messages": [{"role": "user", "content": "the secret prompt"}]}
KEY = "k3y-of-the-server"


async def refused(world: Stage, status: int, call: Call) -> Call:
    await call.end()
    assert call.status == status
    assert call.error["message"]
    assert world.engine.requests == []
    assert not any(name.startswith("access-control") for name in call.headers)
    return call


REBOUND = [  # CVE-2024-28224 (Ollama), CVE-2025-66414 (MCP SDK): a page's own name that leads here; prefixes, suffixes
    "evil.com",
    "localhost.evil.com",
    "127.0.0.1.evil.com:11535",
    "evil.com:11535",
    "localhostx",
    "xlocalhost",
    "127.0.0.1@evil.com",
    "evil.com#localhost",
    "localhost..",
    "localhost:11535:80",
    "127.0.0.2",
    "2130706433",
    "0.0.0.0:11535",
    "[::2]",
    "[::1].evil.com",
    "localhost, evil.com",
    "",
]


@pytest.mark.parametrize("host", REBOUND)
async def test_a_host_that_is_not_ours_is_refused(host: str):
    async with answering(SCRIPT) as world:
        await refused(world, 403, world.post("/v1/chat/completions", CHAT, headers=[("host", host)]))
        assert (await world.get("/v1/models", headers=[("host", host)]).end()).status == 403


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:11535", "localhost", "LocalHost:80", "localhost.", "[::1]", "[::1]:11535"]
)
async def test_a_host_of_this_machine_is_answered_on_any_port(host: str):
    """The port is not compared: that stops nothing and breaks `ssh -L`."""
    async with answering(SCRIPT) as world:
        assert (await world.get("/health", headers=[("host", host)]).end()).status == 200


async def test_two_hosts_or_none_are_no_request():
    async with answering(SCRIPT) as world:
        await refused(world, 400, world.post("/v1/chat/completions", CHAT, without=("host",)))
        two = [("host", "localhost"), ("host", "localhost")]
        await refused(world, 400, world.post("/v1/chat/completions", CHAT, headers=two))


async def test_forwarded_headers_are_never_read():
    async with answering(SCRIPT) as world:
        told = [("x-forwarded-host", "localhost"), ("forwarded", "host=localhost"), ("host", "evil.com")]
        await refused(world, 403, world.post("/v1/chat/completions", CHAT, headers=told))
        foreign = [("x-forwarded-host", "evil.com"), ("x-forwarded-for", "8.8.8.8")]
        assert (await world.get("/health", headers=foreign).end()).status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.com", "null", "http://localhost:3000", "http://127.0.0.1:11535.evil.com", "file://", "*", ""],
)
async def test_a_foreign_origin_is_refused_and_gets_no_cors_header(origin: str):
    """llama-server once answered every page, with credentials (its pull request 25655)."""
    async with answering(SCRIPT) as world:
        await refused(world, 403, world.post("/v1/chat/completions", CHAT, headers=[("origin", origin)]))
        await refused(world, 403, world.get("/v1/models", headers=[("origin", origin)]))
        await refused(world, 403, Call(world.app, "OPTIONS", "/v1/chat/completions", headers=[("origin", origin)]))


async def test_the_servers_own_origin_may_ask():
    async with answering(SCRIPT) as world:
        call = await world.get("/health", headers=[("origin", "http://127.0.0.1:11535")]).end()
        assert call.status == 200
        assert not any(name.startswith("access-control") for name in call.headers)


async def test_a_second_origin_does_not_ride_on_the_first():
    origins = [("origin", "http://localhost:3000"), ("origin", "http://evil.com")]
    async with answering(SCRIPT, rules=AccessRules(origins=frozenset({"http://localhost:3000"}))) as world:
        await refused(world, 403, world.post("/v1/chat/completions", CHAT, headers=origins))


async def test_an_origin_that_was_allowed_asks_first_and_reads_the_answer():
    page = ("origin", "http://localhost:3000")
    async with answering(SCRIPT, rules=AccessRules(origins=frozenset({page[1]}), key=KEY)) as world:
        asks = await Call(world.app, "OPTIONS", "/v1/chat/completions", headers=[page]).end()
        assert (asks.status, asks.headers["access-control-allow-origin"]) == (204, page[1])
        assert "authorization" in asks.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in asks.headers
        answered = await world.post("/v1/models", headers=[page, ("authorization", f"Bearer {KEY}")]).end()
        assert answered.status == 405
        assert (answered.headers["access-control-allow-origin"], answered.headers["vary"]) == (page[1], "Origin")
        await refused(
            world, 403, world.post("/v1/chat/completions", CHAT, headers=[("origin", "http://localhost:3001")])
        )


async def test_a_page_may_send_the_headers_of_its_client():
    """openai's package for JavaScript sends x-stainless-lang and more, which the preflight must let through."""
    page = ("origin", "http://localhost:3000")
    headers = [page, ("x-stainless-lang", "js"), ("authorization", "Bearer any")]
    named = "authorization,content-type,x-stainless-lang"
    async with answering(SCRIPT, rules=AccessRules(origins=frozenset({page[1]}))) as world:
        asks = Call(
            world.app, "OPTIONS", "/v1/chat/completions", headers=[page, ("access-control-request-headers", named)]
        )
        assert (await asks.end()).headers["access-control-allow-headers"].split(", ") == named.split(",")
        answered = await world.post("/v1/chat/completions", CHAT, headers=headers).end()
        assert (answered.status, answered.headers["access-control-allow-origin"]) == (200, page[1])


@pytest.mark.parametrize("named", ["", "x: y", "a b", "ä", "x-a,,x-b", "x\r\nset-cookie: a"])
async def test_what_is_no_headers_name_is_not_echoed(named: str):
    page = ("origin", "http://localhost:3000")
    async with answering(SCRIPT, rules=AccessRules(origins=frozenset({page[1]}))) as world:
        asks = Call(world.app, "OPTIONS", "/v1/models", headers=[page, ("access-control-request-headers", named)])
        assert (await asks.end()).headers["access-control-allow-headers"] == "authorization, content-type"


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", ""],
)
async def test_only_json_is_read_so_that_no_form_can_ask(kind: str):
    async with answering(SCRIPT) as world:
        await refused(world, 415, world.post("/v1/chat/completions", CHAT, headers=[("content-type", kind)]))


async def test_no_content_type_and_two_are_refused_and_a_charset_is_not():
    async with answering(SCRIPT) as world:
        await refused(world, 415, world.post("/v1/chat/completions", CHAT, without=("content-type",)))
        two = [("content-type", "application/json"), ("content-type", "text/plain")]
        await refused(world, 415, world.post("/v1/chat/completions", CHAT, headers=two))
        kind = ("content-type", "Application/JSON; charset=utf-8")
        assert (await world.post("/v1/chat/completions", CHAT, headers=[kind]).end()).status == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_nothing_is_asked_by_get(path: str, method: str):
    """llama.cpp's issue 25790: a link with ?q= that is followed must not start an answer."""
    async with answering(SCRIPT) as world:
        call = await refused(world, 405, Call(world.app, method, path))
        assert call.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path",
    ["/api/pull", "/api/delete", "/v1/load", "/slots", "/props", "/api/generate", "/", "//health"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_nothing_is_pulled_deleted_or_loaded_over_http(path: str, method: str):
    """CVE-2026-5530: a pull that is asked for over HTTP reaches where only the server can."""
    async with answering(SCRIPT) as world:
        call = await refused(world, 404, Call(world.app, method, path, headers=[("content-type", "application/json")]))
        assert "/v1/chat/completions" in call.error["message"]


@pytest.mark.parametrize("protocol", ["Responses", "Messages"])
@pytest.mark.parametrize("at", ["", "/v1"])
async def test_other_protocols_are_named_and_what_there_is(protocol: str, at: str):
    async with answering(SCRIPT) as world:
        call = await refused(world, 404, world.post(f"{at}/{protocol.lower()}", CHAT))
        assert call.error["message"].startswith(protocol)
        assert "/v1/chat/completions" in call.error["message"]


@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", f"Basic {KEY}", KEY, "Bearer ö"]
)
async def test_a_key_is_needed_where_there_is_one(sent: str | None):
    headers = [] if sent is None else [("authorization", sent)]
    async with answering(SCRIPT, rules=AccessRules(key=KEY)) as world:
        call = await refused(world, 401, world.post("/v1/chat/completions", CHAT, headers=headers))
        assert call.headers["www-authenticate"] == "Bearer"
        assert KEY not in call.body.decode()
        assert (await world.get("/v1/models", headers=headers).end()).status == 401
        assert (await world.get("/metrics", headers=headers).end()).status == 401
        assert (await world.get("/health", headers=headers).end()).status == 200


async def test_health_without_the_key_names_no_model():
    right = ("authorization", f"Bearer {KEY}")
    failure = Failure("does_not_fit", "guide does not fit.", "Use a smaller model than guide.")
    loads = ScriptedEngine(opening=[Loading("loading guide", 3, 12), READY], paused=True)
    async with stage(loads, loaded=False, rules=AccessRules(key=KEY)) as world:
        loads.permit(1)
        await world.until(lambda: world.host.state == "loading")
        while world.host.progress is STARTING:
            await world.get("/health").end()
        without = await world.get("/health").end()
        assert (without.status, without.error["message"]) == (503, "Loading model")
        assert "guide" not in without.body.decode()
        assert "loading guide" in (await world.get("/health", headers=[right]).end()).body.decode()
        loads.permit()
        await world.enters("ready")
        assert (await world.get("/v1/health").end()).json == {"status": "ok"}
        assert (await world.get("/health", headers=[("authorization", "Bearer x")]).end()).json == {"status": "ok"}
        assert (await world.get("/health", headers=[right]).end()).json["model"] == "guide"
    async with stage(ScriptedEngine(opening=[failure]), loaded=False, rules=AccessRules(key=KEY)) as world:
        await world.enters("failed")
        without = await world.get("/health").end()
        assert (without.status, without.error["code"]) == (503, "not_loaded")
        assert "guide" not in without.body.decode()
        assert (await world.get("/health", headers=[right]).end()).error["message"].startswith("guide does not fit.")


async def test_the_right_key_opens_and_two_do_not():
    right = ("authorization", f"bearer {KEY}")
    async with answering(SCRIPT, rules=AccessRules(key=KEY)) as world:
        assert (await world.post("/v1/chat/completions", CHAT, headers=[right, right]).end()).status == 401
        assert (await world.post("/v1/chat/completions", CHAT, headers=[right]).end()).status == 200


async def test_a_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("localspec.serve.security.hmac.compare_digest", compare)
    async with answering(SCRIPT, rules=AccessRules(key=KEY)) as world:
        await world.get("/metrics", headers=[("authorization", "Bearer wrong")]).end()
    assert compared == [(b"wrong", KEY.encode())]


async def test_an_allowed_host_is_compared_whole_too():
    async with answering(SCRIPT, rules=AccessRules(hosts=frozenset({"box.local"}))) as world:
        for host, status in (("box.local:11535", 200), ("BOX.local.", 200), ("x.box.local", 403), ("box.local.x", 403)):
            assert (await world.get("/health", headers=[("host", host)]).end()).status == status


async def test_what_the_rules_refuse_is_counted_beside_the_rest():
    async with answering(SCRIPT) as world:
        await world.get("/health", headers=[("host", "evil.com")]).end()
        await world.post("/v1/chat/completions", CHAT, headers=[("content-type", "text/plain")]).end()
        counted = (await world.get("/metrics").end()).body.decode().splitlines()
    assert {f'localspec:requests_refused_total{{status="{status}"}} 1' for status in (403, 415)} <= set(counted)


async def test_an_error_of_ours_shows_neither_prompt_nor_traceback(capsys: pytest.CaptureFixture[str]):
    async with answering(SCRIPT) as world:

        def fail(*_: object) -> None:
            raise ValueError(CHAT["messages"][0]["content"])

        world.site.host.ask = fail  # type: ignore[method-assign,assignment]
        call = await world.post("/v1/chat/completions", CHAT).end()
        assert (call.status, call.error["message"]) == (500, "The server failed.")
        assert world.queue.answering == 0
    shown = capsys.readouterr().err
    assert "ValueError" in shown
    assert "secret" not in shown + call.body.decode()


async def test_prompts_and_answers_are_never_printed(capfd: pytest.CaptureFixture[str]):
    async with answering(SCRIPT) as world:
        await world.post("/v1/chat/completions", CHAT).end()
        await world.post("/v1/chat/completions", b'{"messages": "the secret prompt"').end()
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_what_only_this_machine_reaches(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "box.local", ""])
def test_what_others_reach_too(host: str):
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["http://box", "a b", "a/b", "a@b", "[::1", ":80", "a:b"])
def test_what_is_no_host_has_no_name(host: str):
    assert host_name(host) == ""
