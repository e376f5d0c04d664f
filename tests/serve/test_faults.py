"""What goes wrong around a server that runs: clients that leave, too many of them, an engine that dies, the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.support.hostile.request import request
from tests.support.served import PATIENCE, TRAP, Object, Server, environment, events, started, until

pytestmark = pytest.mark.heavy

ROUND = 17  # tokens that a round adds at most: 16 drafted, and the model's own
SILENCE = 0.5  # seconds without a chunk, after which an engine that stands still has sent all
JSON = {"content-type": "application/json"}
ENDLESS: Object = {"prompt": TRAP, "temperature": 0, "timings_per_token": True}
SECRET = "the green heron nests in the third willow"
KEY = "0f2d6c1b-key-of-this-test"


def program(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    """localspec beside the server, as the same user."""
    command = [sys.executable, "-m", "localspec", *words]
    own = environment(server.state, server.folder)
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=PATIENCE, check=False)


def notice_who_left(server: Server) -> None:
    """The server reads lines in order of what happened: what closed before these requests is closed for it, too."""
    for _ in range(3):
        assert server.get("/health").status == 200


# --- clients that leave


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_before_its_answer_begins_costs_a_round_at_most(served: Server, stream: bool):
    before = served.predicted()
    with served.frozen():
        with closing(HTTPConnection("127.0.0.1", served.port)) as line:
            line.request("POST", "/v1/completions", json.dumps({**ENDLESS, "stream": stream}), JSON)
            until(lambda: served.queue == (1, 0), "it is answered")
        notice_who_left(served)
    served.wait_until_idle()
    assert served.predicted() - before <= ROUND


def test_a_client_that_leaves_in_the_middle_costs_a_round_at_most(served: Server):
    """The engine stands still from the first chunk until the server knows: what it writes after is counted."""
    before, cancelled = served.predicted(), served.ended("cancelled")
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)) as line:
        line.request("POST", "/v1/completions", json.dumps({**ENDLESS, "stream": True}), JSON)
        response = line.getresponse()
        next(events(response))
        with served.frozen():
            written = received(line, response)
            line.close()
            notice_who_left(served)
    served.wait_until_idle()
    assert served.ended("cancelled") == cancelled + 1
    assert written <= served.predicted() - before <= written + ROUND


def received(line: HTTPConnection, response: HTTPResponse) -> int:
    """How many tokens were written, by the last chunk that has come."""
    assert line.sock is not None
    line.sock.settimeout(SILENCE)
    count = 0
    try:
        for event in events(response):
            count = event["timings"]["predicted_n"]
    except TimeoutError:
        return count
    raise AssertionError("the answer had ended before the engine could be stopped")


def test_who_waits_and_leaves_lets_the_next_one_in(served: Server):
    before = served.predicted()
    with served.frozen():
        with served.crowd(5):
            assert served.queue == (1, 4)
        until(lambda: served.queue == (1, 0), "those that waited have left")
    served.wait_until_idle()
    assert served.predicted() - before <= ROUND


def test_a_client_that_does_not_read_holds_no_one_up(served: Server):
    """Its answer is written, and waits for it; the next one is asked meanwhile."""
    before = served.predicted()
    with closing(socket.socket()) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect(("127.0.0.1", served.port))
        told = json.dumps({**ENDLESS, "stream": True, "max_tokens": 200, "localspec": {"tokens": True}})
        line.sendall(request("POST", "/v1/completions", told.encode()))
        assert served.complete("To stop a model,", max_tokens=2)["usage"]["completion_tokens"] == 2
        served.wait_until_idle()
    assert served.predicted() - before == 202


def test_after_a_storm_of_clients_that_leave_the_next_is_answered_as_the_first_was(served: Server):
    """Each leaves after some bytes of its own, or of the answer's; several at a time."""
    before, cancelled = served.complete("To stop a model,", max_tokens=16)["choices"], served.ended("cancelled")
    random = Random(11)
    whole = request("POST", "/v1/completions", json.dumps({**ENDLESS, "stream": True, "max_tokens": 40}).encode())
    lines: list[socket.socket] = []
    for _ in range(60):
        lines.append(socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE))
        is_whole = random.random() < 0.7
        lines[-1].sendall(whole if is_whole else whole[: random.randrange(len(whole))])
        if is_whole and random.random() < 0.5:
            lines[-1].recv(random.choice((1, 20, 400)))
        if len(lines) > 5 or random.random() < 0.3:
            lines.pop(random.randrange(len(lines))).close()
    for line in lines:
        line.close()
    served.wait_until_idle()
    assert served.ended("cancelled") > cancelled
    assert served.complete("To stop a model,", max_tokens=16)["choices"] == before
    assert "Traceback" not in served.printed


# --- too many


def test_the_sixth_is_refused_and_those_before_it_are_answered_in_their_order(served: Server):
    with served.frozen():
        lines = [HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE) for _ in range(5)]
        for number, line in enumerate(lines):
            body = {"prompt": f"Number {number}", "max_tokens": 2, "stream": True}
            line.request("POST", "/v1/completions", json.dumps(body), JSON)
            until(lambda: sum(served.queue) == number + 1, "it is in the queue")  # noqa: B023 - waits here
        refused = served.send("POST", "/v1/completions", {"prompt": "Number 6"})
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        waiting = lines[2].getresponse()
        assert waiting.readline() == b": queued 2\n"
    others = [line.getresponse() for line in lines if line is not lines[2]]
    ends = [list(events(response))[-1] for response in [*others, waiting]]
    for line in lines:
        line.close()
    assert ends == ["[DONE]"] * 5


# --- the engine


def test_an_engine_that_is_killed_is_replaced_and_the_text_is_the_same(served: Server):
    """503 while the next one loads, as while the first did; who was being answered is told."""
    before, starts = (
        served.complete("To stop a model,", max_tokens=16),
        served.metrics()["localspec:engine_starts_total"],
    )
    with served.opened("POST", "/v1/completions", {**ENDLESS, "stream": True}) as response:
        found = events(response)
        next(found)
        engine = served.engine
        engine.suspend()  # else it might end its answer first
        engine.kill()
        last = list(found)[-1]
    assert last["error"]["code"] == "engine_died"
    assert last["error"]["type"] == "server_error"
    loading = served.send("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert loading.status == 503
    assert loading.error["message"] == "Loading model"
    assert served.get("/health").status == 503
    served.wait_until_ready()
    assert served.engine.pid != engine.pid
    assert served.metrics()["localspec:engine_starts_total"] == starts + 1
    assert served.complete("To stop a model,", max_tokens=16)["choices"] == before["choices"]
    assert "Traceback" not in served.printed


# --- the key, and the end


def test_no_key_no_network(localspec, tmp_path):
    code, _, err = localspec("serve", "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "clients need a key" in err
    for mode in (0o644, 0o660, 0o604):
        file = tmp_path / f"{mode}"
        file.write_text(KEY)
        file.chmod(mode)
        code, _, err = localspec("serve", "--key-file", file, "--port", "0")
        assert code == 2
        assert "chmod 600" in err
        assert KEY not in err


def test_a_server_with_a_key_from_its_first_line_to_its_last(served: Server, tmp_path: Path):
    """It shares the other's folders, as two servers of one user do. On every address, with the key in a file whose name
    needs quotes."""
    file = tmp_path / "the key's file"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    words = ("--key-file", str(file), "--host", "0.0.0.0", "--k", "3")
    with started(served.state, served.folder, *words) as server:
        server.wait_until_ready()
        check_printed(server)
        for given in (None, "Bearer wrong", f"Bearer {KEY}x", KEY, f"Basic {KEY}"):
            refused = server.send("GET", "/v1/models", headers={"authorization": given} if given else {})
            assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
        asked = {"prompt": SECRET, "max_tokens": 5}
        answer = server.send("POST", "/v1/completions", asked, {"authorization": f"Bearer {KEY}"})
        assert answer.status == 200
        too_long = {"messages": [{"role": "user", "content": SECRET * 3000}]}
        assert server.send("POST", "/v1/chat/completions", too_long, {"authorization": f"Bearer {KEY}"}).status == 400
        check_listed(served, server)
        check_silent(server)
        check_stopped(served, server)


def check_printed(server: Server) -> None:
    """The command that it prints asks it, and what a request leaves open is as its flags say."""
    assert "--allow-host NAME" in server.printed
    if shutil.which("curl"):
        command = server.printed.splitlines()[1]
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=PATIENCE, check=True)
        assert json.loads(done.stdout)["choices"][0]["message"]["content"]
    asked = {"prompt": "To stop", "max_tokens": 2, "localspec": {"spec": "on"}}
    answered = server.send("POST", "/v1/completions", asked, {"authorization": f"Bearer {KEY}"}).json
    assert (answered["localspec"]["spec"]["mode"], answered["localspec"]["spec"]["k"]) == ("on", 3)


def check_listed(first: Server, second: Server) -> None:
    listed = program(second, "ps")
    assert listed.returncode == 0
    assert first.address in listed.stdout
    assert second.address in listed.stdout
    found = json.loads(program(second, "ps", "--json").stdout)
    assert [one["pid"] for one in found] == [first.process.pid, second.process.pid]
    assert {one["state"] for one in found} == {"ready"}
    which = program(second, "stop")
    assert which.returncode == 2
    assert "Several servers are running" in which.stderr


def check_silent(server: Server) -> None:
    """Neither the key nor a prompt is in what was printed, in a command line, or in a file."""
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    words = [word for process in family for word in process.cmdline()]
    assert not [word for word in words if KEY in word]
    files = [file for folder in (server.state, server.folder) for file in folder.rglob("*") if file.is_file()]
    assert server.output in files
    for file in files:
        content = file.read_bytes()
        assert KEY.encode() not in content, file
        assert SECRET.encode() not in content, file


def check_stopped(first: Server, second: Server) -> None:
    children = psutil.Process(second.process.pid).children(recursive=True)
    stopped = program(second, "stop", str(second.port))
    assert (stopped.returncode, second.process.wait(PATIENCE)) == (0, 0)
    assert second.address in stopped.stderr
    assert "The server is stopped." in second.printed
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []
    assert "Traceback" not in second.printed
    left = json.loads(program(second, "ps", "--json").stdout)
    assert [one["pid"] for one in left] == [first.process.pid]


@pytest.mark.slow
def test_a_signal_ends_the_answer_under_way_the_engine_and_the_server(served: Server):
    with started(served.state, served.folder) as server:
        server.wait_until_ready()
        children = psutil.Process(server.process.pid).children(recursive=True)
        with server.opened("POST", "/v1/completions", {**ENDLESS, "stream": True}) as response:
            found = events(response)
            next(found)
            os.kill(server.process.pid, signal.SIGTERM)
            last = list(found)[-1]
        assert last == "[DONE]" or last["error"]["code"] == "engine_stopped"
        assert server.process.wait(PATIENCE) == 0
        assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []
        assert "Traceback" not in server.printed
