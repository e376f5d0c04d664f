"""Everything that can go wrong with a server is one sentence; what was written stays; the key goes nowhere else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import Failure, Ready, Text
from localspec.core.requests import ChangeDrafter, GenerateRequest, Message
from localspec.remote import exchange
from localspec.remote.address import Address, parse
from localspec.remote.engine import RemoteEngine
from localspec.remote.exchange import HttpExchange, ServerAccess, ServerTimeouts
from localspec.remote.server import Remote, find
from tests.support.recorded_servers import chunk, event, models, stream
from tests.support.remote_stage import PATIENT, QUESTION, done_of, failure_of, serving, talk, text_of
from tests.support.stand_in_server import Answer, stand_in

IMPATIENT = ServerTimeouts(connect=5, short=0.2, silence=0.2)
OK = stream()


def failing(answer: Answer, deadlines: ServerTimeouts = PATIENT) -> tuple[str, Failure]:
    """The text and the failure of one answer."""
    with talk(serving("nobody", answer), deadlines) as with_server:
        with_server.open()
        events = with_server.ask()
        return text_of(events), failure_of(events)


# --- an answer that breaks


def test_a_localspec_that_is_stopped_says_so_once():
    said = {"error": {"message": "The server was stopped.", "code": "engine_stopped"}}
    assert failing(Answer([event(said)]))[1].message.endswith(" was stopped.")


def test_a_probe_of_a_silent_port_speaks_of_no_answer():
    silent = Answer([b"{"], gate=(0, threading.Event()))
    with stand_in({"GET /v1/models": silent}) as server, pytest.raises(RemoteError) as caught:
        find(Remote(server.url), IMPATIENT)
    assert caught.value.message.endswith("took too long to answer.")


def test_a_probe_does_not_name_itself_as_the_next_command():
    with stand_in({}) as server, pytest.raises(RemoteError) as caught:
        find(Remote(server.url), PATIENT)
    assert caught.value.hint.endswith("localspec remote find")


def test_a_key_that_is_not_set_has_the_line_that_sets_it():
    with pytest.raises(UsageError, match="Set it: export NO_SUCH_KEY=KEY"):
        find(Remote("http://127.0.0.1:9", key_env="NO_SUCH_KEY"))


def test_a_connection_that_ends_in_the_middle_keeps_what_was_written():
    text, failure = failing(Answer(OK[:3], cut=True))
    assert text == "Hello there"
    assert (failure.code, failure.exit_code) == ("remote", 7)
    assert failure.message.endswith("ended the connection in the middle of the answer.")


def test_a_stream_that_ends_in_order_and_too_early_is_no_whole_answer():
    assert "in the middle" in failing(Answer(OK[:3]))[1].message


def test_half_an_event_is_not_shown():
    text, failure = failing(Answer([*OK[:2], event(chunk(" never"))[:-9]]))
    assert text == "Hello"
    assert "in the middle" in failure.message


def test_an_answer_without_done_that_says_why_it_ended_is_whole():
    with talk(serving("nobody", Answer(stream(done=False)))) as with_server:
        with_server.open()
        assert done_of(with_server.ask()).finish_reason == "stop"


def test_the_next_question_is_answered_after_a_lost_one():
    with talk(serving("nobody", Answer(OK[:2], cut=True), Answer(OK))) as with_server:
        with_server.open()
        failure_of(with_server.ask())
        assert text_of(with_server.ask()) == "Hello there, world."


def test_a_silent_server_is_given_up():
    never = threading.Event()
    text, failure = failing(Answer(OK, gate=(2, never)), IMPATIENT)
    never.set()
    assert text == "Hello"
    assert failure.message.endswith("took too long to answer.")


def test_a_slow_stream_is_not_silent():
    """Each byte restarts the silence: an answer may take as long as it takes."""
    with talk(serving("nobody", Answer(bytes([one]) for one in b"".join(OK)))) as with_server:
        with_server.open()
        assert text_of(with_server.ask()) == "Hello there, world."


def test_a_line_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "MOST_LINE", 4096)
    text, failure = failing(Answer([*OK[:2], b"data: " + b"x" * 9000]))
    assert text == "Hello"
    assert "too long to be read" in failure.message


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "MOST_STREAM", 4096)
    assert "too long" in failing(Answer([event(chunk("word "))] * 100))[1].message


@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: 7\n\n", b"data: " + b"[" * 5000 + b"\n\n"])
def test_what_is_no_json_is_unreadable(data: bytes):
    text, failure = failing(Answer([*OK[:2], data]))
    assert text == "Hello"
    assert failure.message.endswith("cannot be read.")


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/json", ""])
def test_an_answer_of_another_kind_is_named(content_type: str):
    assert "instead of a stream" in failing(Answer([b"<html>"], content_type=content_type))[1].message


def test_comments_and_strange_fields_of_a_stream_are_skipped():
    with talk(serving("nobody", Answer([b": queued 2\n\n", b"id: 4\nretry: 9\n\n", *OK]))) as with_server:
        with_server.open()
        assert text_of(with_server.ask()) == "Hello there, world."


def test_an_error_inside_a_stream_is_the_servers_own_sentence():
    error = b'data: {"error": {"message": "out\\u001b[31m of memory", "code": 500}}\n\n'
    text, failure = failing(Answer([*OK[:2], error]))
    assert text == "Hello"
    assert failure.message.endswith("failed: out\u241b[31m of memory.")


def test_thoughts_come_as_the_transcript_knows_them():
    def said(name: str, text: str) -> bytes:
        found = chunk()
        found["choices"][0]["delta"] = {name: text}
        return event(found)

    pieces = [said("reasoning_content", "Hm"), said("reasoning_content", "m."), said("content", "Hi."), OK[-2], OK[-1]]
    with talk(serving("vllm", Answer(pieces))) as with_server:
        with_server.open()
        assert text_of(with_server.ask()) == "<think>\nHmm.\n</think>\n\nHi."


# --- a question that is refused


def error(status: int, message: str, **headers: str) -> Answer:
    return Answer.json({"error": {"message": message, "type": "x", "code": status}}, status, **headers)


NOT_SERVED = "This host name is not served. Start the server with: --allow-host NAME"  # our serve's
LOOPHOLES = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT\x1b[2J"[:29]}


@pytest.mark.parametrize(
    ("answer", "code", "sentence"),
    [
        (error(401, "no"), "access_denied", "wants a key (401)."),
        (error(403, ""), "access_denied", "wants a key (403)."),
        (error(403, NOT_SERVED), "access_denied", f"refuses the question (403 Forbidden): {NOT_SERVED}."),
        (error(404, "model m does not exist"), "remote", "does not have that: model m does not exist."),
        (error(429, "busy", **{"Retry-After": "7"}), "remote", "Wait 7 s."),
        (error(429, "busy", **LOOPHOLES), "remote", "Wait a while."),
        (error(503, "Loading model"), "remote", "is still loading its model. Wait a moment."),
        (error(503, "overloaded"), "remote", "cannot answer now."),
        (error(500, "CUDA error"), "remote", "refuses the question (500 Internal Server Error): CUDA error."),
        (error(400, "bad\x1b]0;x\x07 field"), "remote", "bad\u241b]0;x field."),
        (Answer([b"<h1>nginx</h1>"], 502, "text/html"), "remote", "(502 Bad Gateway)."),
        (Answer([], 799, "text/html"), "remote", "(799 unknown status)."),
        (Answer([b'{"detail": "Not Found"}'], 404, "application/json"), "remote", "does not have that: Not Found."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_one_sentence(answer: Answer, code: str, sentence: str):
    failure = failing(answer)[1]
    assert failure.code == code
    assert sentence in f"{failure.message} {failure.hint}"


def test_a_chat_that_is_too_long_may_leave_its_oldest_turn():
    """llama-server's words, and vLLM's."""
    long = GenerateRequest(messages=(Message("user", "a"), Message("assistant", "b"), Message("user", "c")))
    for message in (
        "the request exceeds the available context size, try increasing it",
        "This model's maximum context length is 4096 tokens.",
    ):
        with talk(serving("nobody", error(400, message))) as with_server:
            with_server.open()
            assert (failure_of(with_server.ask(long)).code, failure_of(with_server.ask(long)).turns_over) == (
                "context_overflow",
                1,
            )
            assert failure_of(with_server.ask(QUESTION)).turns_over == 0


def test_what_a_server_cannot_do_is_said_before_it_is_asked():
    cut = GenerateRequest(messages=(Message("user", "a"), Message("assistant", "b")), continues=True)
    with talk(serving("nobody", Answer(OK))) as with_server:
        with_server.open()
        assert "cannot continue an answer" in failure_of(with_server.ask(cut)).message
        with_server.engine.change_drafter(ChangeDrafter())
        assert failure_of(with_server.rest()).message == "The server chooses its drafter."
        assert with_server.server.questions == []


# --- a server that is not there


def opened(url: str, deadlines: ServerTimeouts = PATIENT, **remote: str) -> Failure:
    engine = RemoteEngine(Remote(url, **remote), deadlines)
    (failure,) = [event for event in engine.events() if isinstance(event, Failure)]
    return failure


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_a_server_that_does_not_run_is_a_sentence():
    failure = opened(f"http://127.0.0.1:{free_port()}")
    assert failure.message.endswith("cannot be reached (Connection refused).")
    assert failure.exit_code == 7


@contextmanager
def saying(words: bytes) -> Iterator[str]:
    """A server that answers every connection with these bytes, and then is silent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connections.append(connection)
                connection.sendall(words)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()
        thread.join(5)


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00\xff" * 40 + b"\n"])
def test_what_does_not_speak_http_is_named(words: bytes):
    with saying(words) as url:
        assert opened(url).message.endswith("does not answer in HTTP.")


def test_a_server_that_accepts_and_never_answers_is_given_up():
    with saying(b"") as url:
        assert opened(url, IMPATIENT).message.endswith("took too long to answer.")


def test_headers_that_drip_do_not_hold_the_start_up():
    """A byte now and then restarts a socket's own deadline; a short answer has one for all of it."""
    with saying(b"HTTP/1.1 200 OK\r\nX-Slow: ") as url:
        assert opened(url, ServerTimeouts(connect=5, short=0.2, silence=60)).code == "remote"


def test_a_list_of_models_that_is_none_is_refused():
    with stand_in({"GET /v1/models": Answer.text("<html>")}) as server:
        assert opened(server.url).message.endswith("cannot be read.")


def test_a_model_that_is_not_there_names_those_that_are():
    with stand_in({"GET /v1/models": Answer.json(models("vllm", "a\x1b[1m", "b"))}) as server:
        failure = opened(server.url, model="c")
    assert "has no model 'c'" in failure.message
    assert failure.hint == "It has: a\u241b[1m, b."


def test_a_server_without_a_model_says_so():
    with stand_in(
        {"GET /v1/models": Answer.json({"object": "list", "data": []}), "GET /props": Answer.json({})}
    ) as server:
        assert "has no model loaded" in opened(server.url).message


# --- keys and redirects


def test_a_redirect_is_not_followed_and_no_key_goes_along(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_KEY", "secret-1")
    with stand_in({"GET /v1/models": Answer.json(models("vllm"))}) as elsewhere:
        there = Answer([], 307, headers={"Location": f"{elsewhere.url}/v1/models"}, length=0)
        with stand_in({"GET /v1/models": there, "POST /v1/chat/completions": there}) as server:
            failure = opened(server.url, key_env="THE_KEY")
        assert f"redirects to {elsewhere.url}/v1/models, which localspec does not follow" in failure.message
        assert elsewhere.asked == []


def test_the_key_is_sent_to_its_server_and_stands_in_no_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THE_KEY", "secret-1")
    with talk(serving("vllm", error(401, "wrong key secret")), key_env="THE_KEY") as with_server:
        with_server.open()
        failure = failure_of(with_server.ask())
        assert {one.headers["Authorization"] for one in with_server.server.asked} == {"Bearer secret-1"}
    assert failure.message.endswith("refuses the key in THE_KEY (401).")
    assert "secret-1" not in f"{failure}"


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-2")
    with talk(serving("vllm", Answer(OK))) as with_server:
        with_server.open()
        with_server.ask()
        assert not any("Authorization" in one.headers for one in with_server.server.asked)


@pytest.mark.parametrize(("value", "sentence"), [("", "is not set"), ("a\r\nX-Evil: 1", "cannot be a key")])
def test_a_key_that_is_missing_or_none_is_refused_before_a_word_is_sent(
    value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("THE_KEY", value)
    with pytest.raises(UsageError, match=sentence):
        _ = Remote("http://127.0.0.1:1", key_env="THE_KEY").access


def test_a_key_that_crosses_a_network_in_the_open_is_warned_of():
    assert parse("http://box:8000").is_open
    assert not parse("https://box").is_open
    assert not parse("http://localhost:8000").is_open


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    """Else a key, and the chat, would go to it."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with talk(serving("vllm", Answer(OK))) as with_server:
        assert isinstance(with_server.open(), Ready)


# --- TLS


@contextmanager
def tls_server() -> Iterator[str]:
    """A server whose certificate nobody has signed."""
    certificate = Path(__file__).parents[1] / "recorded" / "self_signed.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def test_a_certificate_that_nobody_signed_is_not_trusted():
    with tls_server() as url:
        assert "has a certificate that cannot be trusted" in opened(url).message


def test_tls_with_a_server_that_has_none_is_a_sentence():
    with stand_in({}) as server:
        assert "does not speak TLS" in opened(server.url.replace("http", "https")).message


# --- stopping


def test_stopping_ends_an_answer_at_once_and_the_server_sees_it():
    gate = threading.Event()
    with talk(serving("nobody", Answer(OK, gate=(2, gate)), Answer(OK))) as with_server:
        with_server.open()
        with_server.engine.ask(QUESTION)
        for one in with_server.events:
            if isinstance(one, Text):
                break
        with_server.engine.cancel()
        assert done_of(with_server.rest()).finish_reason == "cancelled"
        gate.set()
        assert with_server.server.gone.wait(20)  # what it still wrote went nowhere
        assert text_of(with_server.ask()) == "Hello there, world."


def test_an_answer_that_was_stopped_before_it_began_is_not_asked_for():
    with talk(serving("nobody", Answer(OK))) as with_server:
        with_server.open()
        with_server.engine.ask(QUESTION)
        with_server.engine.cancel()
        assert done_of(with_server.rest()).finish_reason == "cancelled"
        assert with_server.server.questions == []


@contextmanager
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No connection is made, nor refused; the event is set when one is tried."""
    tried, end = threading.Event(), threading.Event()

    def connect(_: object) -> None:
        tried.set()
        end.wait(30)

    with monkeypatch.context() as patched:
        patched.setattr(exchange.HTTPConnection, "connect", connect)
        yield tried
    end.set()


def test_closing_while_it_connects_ends_at_once(monkeypatch: pytest.MonkeyPatch):
    with nowhere(monkeypatch) as tried:
        engine = RemoteEngine(Remote("http://127.0.0.1:9"), PATIENT)
        seen: list[object] = []
        reading = threading.Thread(target=lambda: seen.extend(engine.events()))
        reading.start()
        assert tried.wait(20)
        engine.close()
        reading.join(5)
        assert not reading.is_alive()
        assert not any(isinstance(one, Failure) for one in seen)


def test_stopping_an_answer_while_it_connects_ends_at_once(monkeypatch: pytest.MonkeyPatch):
    with talk(serving("nobody", Answer(OK))) as with_server:
        with_server.open()
        with nowhere(monkeypatch) as tried:
            with_server.engine.ask(QUESTION)
            threading.Thread(target=lambda: tried.wait(20) and with_server.engine.cancel()).start()
            assert done_of(with_server.rest()).finish_reason == "cancelled"


def test_a_connection_that_is_never_made_has_a_deadline(monkeypatch: pytest.MonkeyPatch):
    with nowhere(monkeypatch), pytest.raises(RemoteError, match="does not answer"):
        find(Remote("http://127.0.0.1:9"), ServerTimeouts(connect=0.1, short=5, silence=5))


def test_closing_ends_what_waits():
    gate = threading.Event()
    with talk(serving("nobody", Answer(OK, gate=(1, gate)))) as with_server:
        with_server.open()
        with_server.engine.ask(QUESTION)
        closing = threading.Timer(0.05, with_server.engine.close)
        closing.start()
        left = list(with_server.events)
        gate.set()
        closing.join()
        assert not [one for one in left if isinstance(one, Failure)]


def test_closing_ends_the_question_at_the_start_too():
    with saying(b"") as url:
        engine = RemoteEngine(Remote(url), PATIENT)
        closing = threading.Timer(0.05, engine.close)
        closing.start()
        left = list(engine.events())
        closing.join()
    assert not [one for one in left if isinstance(one, Failure)]


# --- addresses


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("box:8000", "http://box:8000"),
        ("https://box", "https://box"),
        ("https://box:443/llm/v1", "https://box/llm"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_read_as_people_type_it(typed: str, url: str):
    assert parse(typed).url == url


@pytest.mark.parametrize(
    "typed", ["", "http://", "ftp://box", "http://u:secret@box", "http://box?x=1", "http://box:99999", "a b", "h\r\nx"]
)
def test_what_is_no_address_is_refused(typed: str):
    with pytest.raises(UsageError) as refused:
        parse(typed)
    assert "secret" not in str(refused.value)


def test_a_path_before_v1_is_kept():
    with stand_in({"GET /llm/v1/models": Answer.json(models("vllm"))}) as server:
        assert find(Remote(f"{server.url}/llm/v1")).kind.name == "vllm"


# --- kinds


@pytest.mark.parametrize(
    ("routes", "kind", "context"),
    [
        ({"GET /v1/models": Answer.json(models("vllm", max_model_len=4096))}, "vllm", 4096),
        ({"GET /v1/models": Answer.json(models("sglang", max_model_len=4096))}, "sglang", 4096),
        ({"GET /v1/models": Answer.json(models("llamacpp", meta={"n_ctx": 2048}))}, "llama-server", 2048),
        (
            {
                "GET /v1/models": Answer.json(models("me")),
                "GET /props": Answer.json({"default_generation_settings": {"n_ctx": 512}}),
            },
            "llama-server",
            512,
        ),
        (
            {"GET /v1/models": Answer.json(models("me")), "GET /server_info": Answer.json({"model_path": "m"})},
            "sglang",
            0,
        ),
        (
            {"GET /v1/models": Answer.json(models("me")), "GET /api/version": Answer.json({"version": "0.1"})},
            "ollama",
            0,
        ),
        ({"GET /v1/models": Answer.json(models("localspec", meta={"n_ctx": 64}))}, "localspec", 64),
        ({"GET /v1/models": Answer.json(models("me"))}, "openai", 0),
        ({"GET /v1/models": Answer.json(models("vllm", max_model_len="-1"))}, "vllm", 0),
    ],
)
def test_a_server_is_known_by_one_question(routes: dict[str, Answer], kind: str, context: int):
    with stand_in(dict(routes)) as server:
        found = find(Remote(server.url))
    assert (found.kind.name, found.model("").context) == (kind, context)


def test_a_kind_that_is_named_is_not_asked_about():
    with stand_in({"GET /v1/models": Answer.json(models("me"))}) as server:
        assert find(Remote(server.url, kind="openai")).kind.name == "openai"
        assert [one.path for one in server.asked] == ["/v1/models"]


def test_an_engine_asks_nothing_before_it_is_listened_to():
    with stand_in(serving("vllm", Answer(OK))) as server:
        engine = RemoteEngine(Remote(server.url))
        engine.start()
        engine.close()
        assert server.asked == []


def test_exchange_without_a_network_name_is_a_sentence():
    with pytest.raises(RemoteError), HttpExchange(ServerAccess(Address("http", "no-such-host.invalid", 80))) as asked:
        asked.ask("GET", "/")
