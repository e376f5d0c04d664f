"""Two terminals: curls stream from a server while a chat with the same server goes on, ahead of those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from localspec.config.tables import Config
from localspec.core.events import Stats
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.remote.engine import RemoteEngine
from localspec.remote.server import Remote
from localspec.tui.control.tuning import Tuning
from tests.serve.test_in_turn import QUESTIONS, body, curl, text_of
from tests.support.chat_stage import Stage, open_chat
from tests.support.served import PATIENCE, Server, started

pytestmark = pytest.mark.heavy

GREEDY = SamplingOptions(temperature=0)


class Watched(RemoteEngine):
    """Knows whether it was closed, as the stage asks."""

    @property
    def closed(self) -> bool:
        return self._closed


@asynccontextmanager
async def chat_with(server: Server) -> AsyncIterator[Stage]:
    tuning = Tuning(Config(), load=LoadRequest("served"), name="served", server="served", chosen=GREEDY)
    async with open_chat(Watched(Remote(server.address, "served")), tuning=tuning) as stage:  # type: ignore[arg-type]
        await stage.ready()
        yield stage


async def test_a_chat_goes_on_between_two_curls(served: Server):
    """One curl is answered first, the other waits, and the chat's question goes ahead of it."""
    alone = {
        question: served.send("POST", "/v1/chat/completions", body(question)).json["choices"][0]["message"]["content"]
        for question in QUESTIONS
    }
    assert all(alone.values())
    async with chat_with(served) as stage:
        with served.frozen():
            first = curl(served, QUESTIONS[0])
            await stage.until(lambda: served.queue == (1, 0))
            second = curl(served, QUESTIONS[1])
            await stage.until(lambda: served.queue == (1, 1))
            await stage.send(QUESTIONS[0])
            await stage.until(lambda: served.queue == (1, 2))
        printed = [
            await asyncio.to_thread(lambda one=one: one.communicate(timeout=PATIENCE)[0]) for one in (first, second)
        ]
        await stage.until(lambda: stage.turns and stage.turns[-1].role == "assistant")
        await stage.ready()
        answered = stage.turns[-1].content
    assert [text_of(one) for one in printed] == [alone[question] for question in QUESTIONS]
    assert answered.startswith(alone[QUESTIONS[0]])
    assert printed[1].index(b": queued 1") < printed[1].index(b": queued 2")


@pytest.mark.slow
async def test_eight_curls_and_a_chat_at_once_are_each_what_they_are_alone(tmp_path_factory: pytest.TempPathFactory):
    """Four are written at once, four wait and fill the queue, and the chat is still let in, ahead of them."""
    state = tmp_path_factory.getbasetemp() / "one-state"
    with started(state, tmp_path_factory.mktemp("eight"), "--parallel", "4") as server:
        await asyncio.to_thread(server.wait_until_ready)
        asked = [QUESTIONS[count % 2] for count in range(8)]
        answers = [server.send("POST", "/v1/chat/completions", body(question)).json for question in QUESTIONS]
        alone = {
            question: answer["choices"][0]["message"]["content"]
            for question, answer in zip(QUESTIONS, answers, strict=True)
        }
        async with chat_with(server) as stage:
            with server.frozen():
                curls = []
                for count, question in enumerate(asked, 1):
                    curls.append(curl(server, question))
                    await stage.until(lambda count=count: sum(server.queue) == count)  # type: ignore[misc]
                await stage.send(QUESTIONS[0])
                await stage.until(lambda: server.queue == (4, 5))
            printed = [await asyncio.to_thread(one.communicate, timeout=PATIENCE) for one in curls]
            await stage.until(lambda: stage.turns and stage.turns[-1].role == "assistant")
            await stage.ready()
            answered = stage.turns[-1].content
    assert [text_of(out) for out, _ in printed] == [alone[question] for question in asked]
    assert answered.startswith(alone[QUESTIONS[0]])
    assert all(b": queued 5" not in out for out, _ in printed[:7])
    assert b": queued 5" in printed[7][0], "the chat went ahead of it"


async def test_figures_and_who_wrote_each_token_are_the_servers_and_f5_turns_drafts_off(served: Server):
    async with chat_with(served) as stage:
        await stage.send("/k 4")  # always: of itself, the policy may find that drafts do not pay
        await stage.until(lambda: stage.chat.state.spec and stage.chat.state.spec.k == 4)
        await stage.send(QUESTIONS[0])
        await stage.until(lambda: len(figures(stage)) == 1)
        await stage.ready()
        (drafted,) = figures(stage)
        assert (drafted.draft_kind, drafted.draft_n > 0) == ("early-exit", True)
        assert 0 < drafted.draft_n_accepted <= drafted.draft_n
        tokens = [token for step in stage.chat.conversation.branch[-1].rounds for token in step.tokens]
        assert len(tokens) == drafted.predicted_n
        assert sum(token.source == "draft" for token in tokens) == drafted.draft_n_accepted
        await stage.pilot.press("f5", "f5")  # on, auto, then off
        await stage.sees("speculation off")
        await stage.send(QUESTIONS[0])
        await stage.until(lambda: len(figures(stage)) == 2)
        await stage.ready()
        plain = figures(stage)[-1]
        assert (plain.draft_n, plain.predicted_n > 0) == (0, True)


def figures(stage: Stage) -> list[Stats]:
    """The figures of the answers, in order."""
    return [said.made.stats for said in stage.chat.conversation.branch if said.made is not None]
