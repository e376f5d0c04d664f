"""A chat with a server on the screen that every chat has: its words, its figures, and what cannot be done with it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from localspec.config.tables import Config
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.history import History, Unsent, Writer, recall
from localspec.history.text.transcript import transcript
from localspec.remote.engine import RemoteEngine
from localspec.remote.server import Remote
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.tuning import Tuning
from tests.support import recorded_servers as recorded
from tests.support.chat_stage import Stage, open_chat
from tests.support.recorded_servers import STEP, chunk, event, last, stream
from tests.support.remote_stage import PATIENT, serving
from tests.support.stand_in_server import Answer, Route, StandIn, stand_in

pytestmark = pytest.mark.heavy


class Watched(RemoteEngine):
    """Knows whether it was closed, as the stage asks."""

    @property
    def closed(self) -> bool:
        return self._closed


@asynccontextmanager
async def chat_with(
    routes: dict[str, Route],
    *,
    sink: Writer | None = None,
    engines: int = 1,
    size: tuple[int, int] = (80, 24),
    **remote: str,
) -> AsyncIterator[tuple[Stage, StandIn]]:
    with stand_in(routes) as server:
        tuning = Tuning(Config(), load=LoadRequest("box"), name="box", server="box")
        made = [Watched(Remote(server.url, "box", **remote), PATIENT) for _ in range(engines)]
        async with open_chat(*made, size=size, tuning=tuning, sink=sink) as stage:  # type: ignore[arg-type]
            yield stage, server


async def test_an_answer_its_figures_and_the_server_are_in_sight():
    async with chat_with(serving("llamacpp", Answer(recorded.LLAMA_SERVER))) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.", "50 % of 8 drafted accepted (server)")
        await stage.sees("70.0 tok/s", f"llama-server at 127.0.0.1:{server.port}"[:20])
        assert "×" not in stage.seen
        assert "lossless" not in stage.seen


async def test_an_empty_chat_says_where_words_go():
    async with chat_with(serving("vllm", Answer(stream()))) as (stage, _):
        await stage.sees("What you write is sent to box, which answers.")
        assert "nothing you write leaves" not in stage.seen
        assert "find and download models" not in stage.seen


async def test_a_context_that_nobody_counts_yet_is_no_zero():
    gate = threading.Event()
    routes = serving("vllm", Answer(recorded.VLLM_WITHOUT_THE_FLAG, gate=(3, gate)))
    routes["GET /v1/models"] = Answer.json(recorded.models("vllm", max_model_len=64))
    async with chat_with(routes) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there", "ctx –/64")
        gate.set()
        await stage.sees("ctx 19/64 30 %")
        await stage.ready()


async def test_what_is_not_reported_is_called_so_and_is_no_zero():
    async with chat_with(serving("vllm", Answer(recorded.VLLM_WITHOUT_THE_FLAG))) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.", "7 tokens", "speculation: not reported")
        assert " 0 %" not in stage.seen


async def test_the_second_question_brings_the_first_answer_along():
    async with chat_with(serving("vllm", Answer(stream()))) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        await stage.send("And you?")
        await stage.until(lambda: len(server.questions) == 2)
        said = server.questions[-1].body["messages"]
        assert [one["content"] for one in said] == ["Hello?", "Hello there, world.", "And you?"]
        await stage.ready()


async def test_a_chat_that_waits_says_for_what():
    """A localspec's comments; what another server says in one means nothing here."""
    comments = ("loading 40 %", "queued 2", "reading 3 of 12", "ping")
    gates = [threading.Event() for _ in comments]

    def pieces() -> Iterator[bytes]:
        for words, gate in zip(comments, gates, strict=True):
            yield f": {words}\n\n".encode()
            gate.wait(30)
        yield from stream()

    async with chat_with(serving("localspec", Answer(pieces()))) as (stage, _):
        await stage.ready()
        await stage.send("Hello?")
        for words, gate in zip(
            ("waiting: the server loads its model, 40 %", "waiting: 2 before you", "reading 3 of 12 tokens"),
            gates,
            strict=False,
        ):
            await stage.sees(words)
            gate.set()
        gates[-1].set()
        await stage.sees("Hello there, world.")
        await stage.ready()


async def test_a_lost_connection_keeps_the_answer_and_one_key_asks_again():
    lost, whole = Answer(stream()[:3], cut=True), Answer(stream())
    async with chat_with(serving("vllm", lost, whole)) as (stage, server):
        await stage.ready()
        await stage.asks(
            "Hello?", "Hello there", "in the middle of the answer", "Ctrl+R asks again", "/continue goes on"
        )
        await stage.ready()
        await stage.pilot.press("ctrl+r")
        await stage.sees("Hello there, world.")
        assert len(server.questions) == 2
        await stage.ready()


async def test_a_command_in_a_hint_is_followed_by_nothing():
    page, busy = Answer([b"<html>"], 200, "text/html"), Answer.json({}, 503)
    async with chat_with(serving("vllm", page, busy), size=(200, 24)) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", f"Ctrl+R asks again. Look at it: localspec remote probe {server.url}")
        await stage.ready()
        await stage.asks("Hello?", "Wait a moment. Ctrl+R asks again.")
        await stage.ready()


async def test_an_answer_that_never_began_is_no_version_and_hides_none():
    """The server went down behind the first answer, and comes back for the last."""
    sink = Writer()
    answers = Answer(stream()), Answer.json({}, 503), Answer.json({}, 503), Answer(stream(finish="length"))
    async with chat_with(serving("vllm", *answers), sink=sink) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        await stage.pilot.press("ctrl+r")
        await stage.sees("Hello there, world.", "cannot answer now", "Ctrl+R asks")
        await stage.asks("Anyone?", "Anyone?", "cannot answer now")
        await stage.ready()
        await stage.send("/continue")
        await stage.hints("There is no answer to continue. Ctrl+R asks for one.")
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: stage.turns[-1].content == "Hello there, world." and len(stage.turns) == 4)
        await stage.ready()
        assert "/2›" not in stage.seen
    assert sink.close() is None
    assert len(recall(None).tree) == 4


async def test_escape_before_an_answer_began_leaves_what_was_there():
    gate = threading.Event()
    async with chat_with(serving("vllm", Answer(stream()), Answer(stream(), gate=(0, gate)))) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: len(server.questions) == 2)
        await stage.pilot.press("escape")
        await stage.sees("Hello there, world.", "stopped")
        assert "/2›" not in stage.seen
        gate.set()


async def test_escape_ends_the_answer_and_keeps_it():
    gate = threading.Event()
    async with chat_with(serving("vllm", Answer(stream(), gate=(2, gate)))) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello")
        await stage.pilot.press("escape")
        await stage.sees("stopped")
        await stage.ready()
        gate.set()
        assert stage.turns[-1].content == "Hello"


async def test_a_server_that_is_not_there_is_tried_again_with_one_key():
    with stand_in({}) as gone:
        pass  # nothing listens at its address any more
    with stand_in(serving("vllm", Answer(stream()))) as server:
        tuning = Tuning(Config(), load=LoadRequest("box"), name="box", server="box")
        made = [Watched(Remote(url, "box"), PATIENT) for url in (gone.url, server.url)]
        async with open_chat(*made, size=(80, 24), tuning=tuning) as stage:  # type: ignore[arg-type]
            await stage.sees("cannot be reached", "Not connected")
            assert server.asked == []
            await stage.pilot.press("ctrl+r")
            await stage.ready()
            await stage.asks("Hello?", "Hello there, world.")
            await stage.ready()


async def test_a_draft_that_comes_back_does_not_hide_that_nothing_answers():
    with History() as history:
        history.keep_unsent(None, Unsent("half a thought", server="box"))
        history.keep_unsent(None, Unsent("for a model here"))
    with stand_in({}) as gone:
        pass  # nothing listens at its address any more
    tuning = Tuning(Config(), load=LoadRequest("box"), name="box", server="box")
    engine = Watched(Remote(gone.url, "box"), PATIENT)
    async with open_chat(engine, size=(80, 24), tuning=tuning, sink=Writer()) as stage:  # type: ignore[arg-type]
        await stage.until(lambda: stage.chat.state.phase == "gone" and stage.chat.prompt.text == "half a thought")
        await stage.hints("Not connected: Ctrl+R tries again.")


async def test_loading_says_whom_it_asks_and_a_failure_offers_the_same_again():
    async with chat_with({"GET /v1/models": [Answer.text("<html>"), *[Answer.json({}, 503)] * 9]}, engines=2) as (
        stage,
        s,
    ):
        await stage.sees("cannot be read", "Not connected: Ctrl+R tries again.")
        s.routes |= serving("vllm", Answer(stream()))
        await stage.pilot.press("ctrl+r")
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")


async def test_what_needs_a_model_here_is_one_sentence():
    async with chat_with(serving("vllm", Answer(stream()))) as (stage, _):
        await stage.ready()
        lacking = [command for command in COMMANDS.values() if command.lacks]
        assert {"model", "draft", "quant", "bench"} <= {command.name for command in lacking}
        for command in lacking:
            stage.chat.prompt.text = ""
            await stage.send(f"/{command.name}")
            await stage.hints(command.lack("box"))
            assert stage.chat.state.phase == "idle"


async def test_keys_that_need_more_than_the_server_gives_say_so_and_are_not_offered():
    async with chat_with(serving("vllm", Answer(stream()))) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        assert "F2 Speed" in stage.seen
        assert not {"F3 Tokens", "F5 Spec"} & {key.strip() for key in stage.seen.splitlines()[-1].split("  ")}
        await stage.pilot.press("f5")
        await stage.hints("vLLM cannot switch speculation for one answer")
        await stage.pilot.press("f3")
        await stage.hints("The server does not say who wrote which token.")
        await stage.pilot.press("ctrl+o")
        await stage.hints("This chat is with box")
        await stage.send("/compare")
        await stage.hints("vLLM cannot switch speculation for one answer")


async def test_show_and_stats_say_what_is_known_of_it():
    async with chat_with(serving("llamacpp", Answer(recorded.LLAMA_SERVER))) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "50 % of 8")
        await stage.ready()
        await stage.asks("/stats", "drafts", "19 tokens")
        await stage.asks("/show", "the server does not say")


async def test_f5_turns_it_off_where_the_server_can():
    answer = Answer(recorded.OLLAMA, content_type="application/x-ndjson")
    async with chat_with(serving("library", answer, path="POST /api/chat")) as (stage, server):
        await stage.ready()
        await stage.pilot.press("f5")  # auto, then off
        await stage.sees("speculation off")
        await stage.asks("Hello?", "Hello there, world.")
        assert server.questions[-1].body["options"] == {"draft_num_predict": 0}
        await stage.ready()


async def test_a_comparison_asks_the_server_with_and_without_drafts():
    answer = Answer(recorded.OLLAMA, content_type="application/x-ndjson")
    async with chat_with(serving("library", answer, path="POST /api/chat")) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        await stage.pilot.press("f6")
        await stage.sees("same text")
        plain, drafted = (one.body["options"].get("draft_num_predict") for one in server.questions[1:])
        assert (plain, drafted) == (0, None)
        await stage.pilot.press("escape")


async def test_a_comparison_that_breaks_says_it_on_both_sides():
    answer = Answer(recorded.OLLAMA, content_type="application/x-ndjson")
    async with chat_with(serving("library", answer, Answer.json({}, 503), path="POST /api/chat")) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there, world.")
        await stage.ready()
        await stage.pilot.press("f6")
        await stage.sees("cannot answer", "not asked", "Nothing was compared.")
        await stage.pilot.press("escape")


def own(kind: str = "model") -> list[bytes]:
    said = chunk("Hello there")
    said["choices"][0]["delta"]["localspec"] = STEP
    stats = {"draft_kind": "model", "draft_rounds": 1, "draft_n": 3, "draft_n_accepted": 1, "draft_n_rejected": 1}
    figures = {"spec": {"kind": kind, "name": "small"}, "stats": {**stats, "predicted_n": 2, "predicted_ms": 10.0}}
    return [
        *map(event, (said, chunk(finish="stop"), last(usage=recorded.USAGE, localspec=figures))),
        b"data: [DONE]\n\n",
    ]


async def test_another_localspec_shows_who_wrote_each_token():
    async with chat_with(serving("localspec", Answer(own()))) as (stage, server):
        await stage.ready()
        await stage.asks("Hello?", "Hello there", "50 % of 2 drafted accepted")
        assert server.questions[-1].body["localspec"]["tokens"] is True
        assert [token.source for step in stage.chat.state.rounds for token in step.tokens] == ["draft", "fix"]
        await stage.pilot.press("f3")
        await stage.until(lambda: stage.chat.transcript.view == "tokens")
        await stage.ready()


async def test_an_answer_of_a_localspec_that_is_stopped_keeps_its_figures():
    gate = threading.Event()
    async with chat_with(serving("localspec", Answer(own(), gate=(1, gate)))) as (stage, _):
        await stage.ready()
        await stage.send("Hello?")
        await stage.sees("Hello there")
        await stage.pilot.press("escape")
        await stage.sees("stopped · 2 tokens", "33 % of 3 drafted accepted")
        gate.set()


async def test_f5_where_a_localspec_drafts_nothing_names_the_server():
    async with chat_with(serving("localspec", Answer(own("off")))) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "Hello there")
        await stage.ready()
        await stage.pilot.press("f5")
        await stage.hints(COMMANDS["draft"].lack("box"))
        assert stage.app.screen is stage.chat


async def test_it_is_kept_and_exported_like_every_chat():
    sink = Writer()
    async with chat_with(serving("llamacpp", Answer(recorded.LLAMA_SERVER)), sink=sink) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "50 % of 8")
        await stage.ready()
    assert sink.close() is None
    opened = recall(None)
    answer = opened.branch[-1]
    assert answer.content == "Hello there, world."
    assert answer.generation is not None
    assert (answer.generation.stats.draft_kind, answer.generation.stats.draft_n_accepted) == ("server", 4)
    assert "50 % of 8 drafted accepted (server)" in transcript(opened)


async def test_escape_codes_of_a_server_never_reach_the_screen():
    evil = "\x1b[2J\x1b]0;owned\x07\u202eevil"
    routes = serving("vllm", Answer([event(chunk(evil, "stop")), b"data: [DONE]\n\n"]))
    routes["GET /v1/models"] = Answer.json({"data": [{"id": f"m{evil}", "owned_by": "vllm"}]})
    async with chat_with(routes) as (stage, _):
        await stage.ready()
        await stage.asks("Hello?", "evil")
        assert not {"\x1b", "\x07", "\u202e"} & set(stage.seen)
        await stage.ready()


async def test_only_what_the_user_set_is_asked_of_a_server():
    """A server has its own defaults: ours for a model here would replace them."""
    async with chat_with(serving("vllm", Answer(stream()))) as (stage, server):
        await stage.ready()
        await stage.send("/set temperature=0.3")
        await stage.asks("Hello?", "Hello there, world.")
        asked = server.questions[-1].body
        assert asked["temperature"] == 0.3
        assert asked.keys().isdisjoint({"top_p", "top_k", "min_p", "repetition_penalty"})
        assert SamplingOptions(temperature=0.3) == stage.chat.tuning.sampling
        await stage.ready()
