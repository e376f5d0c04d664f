"""Speculation seen from outside (check 22): the text is that of plain decoding and of `localspec run`, and the figures
count what was written, not what was drafted in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.real.things import SMOLLM2, SMOLLM2_GGUF
from tests.support.served import Object, Server, started

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "warm_engines")]

PROMPTS = "To stop a model,", "def add(a, b):", "localspec localspec localspec"
SPECULATING = {"spec": "on", "k": 4}, {"spec": "on", "k": 16}, {"spec": "auto"}
LENGTH = 48


def check_figures(answer: Object) -> None:
    timings, usage = answer["timings"], answer["usage"]
    stats = answer["localspec"]["stats"]
    drafted, accepted = timings["draft_n"], timings["draft_n_accepted"]
    assert drafted >= accepted >= 0
    assert usage["completion_tokens"] == timings["predicted_n"] == LENGTH
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": accepted}
    rounds = stats["draft_rounds"] + stats["plain_rounds"]
    assert accepted + rounds >= usage["completion_tokens"]  # a round adds what it accepted and one token of its own
    assert stats["draft_n_rejected"] + accepted + stats["draft_n_ignored"] == drafted


def texts(server: Server, prompt: str) -> tuple[str, list[Object]]:
    """The text of plain decoding, and the answers with each way of speculating."""
    plain = server.complete(prompt, max_tokens=LENGTH, localspec={"spec": "off"})
    assert "draft_n" not in plain["timings"]
    assert plain["usage"]["completion_tokens"] == LENGTH
    drafted = [server.complete(prompt, max_tokens=LENGTH, localspec=spec) for spec in SPECULATING]
    return plain["choices"][0]["text"], drafted


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_plain_text_and_that_of_run(served: Server, localspec: Any, prompt: str):
    plain, drafted = texts(served, prompt)
    assert [answer["choices"][0]["text"] for answer in drafted] == [plain] * len(SPECULATING)
    greedy = ("--raw", "--temperature", "0", "--max-tokens", str(LENGTH), "--threads", "1")
    code, out, _ = localspec("run", "guide", *greedy, prompt)
    assert (code, out.removesuffix("\n")) == (0, plain.removesuffix("\n"))
    for answer in drafted:
        check_figures(answer)


def test_rejected_drafts_were_among_what_was_counted(served: Server):
    """Else the test above could not fail: on these prompts some drafts are rejected, and some are kept."""
    answers = [answer for prompt in PROMPTS for answer in texts(served, prompt)[1]]
    assert sum(answer["localspec"]["stats"]["draft_n_rejected"] for answer in answers) > 0
    assert sum(answer["timings"]["draft_n_accepted"] for answer in answers) > 0


@pytest.mark.slow
@pytest.mark.real
def test_the_same_on_a_model_that_others_trained(localspec: Any, tmp_path: Path):
    smollm = str(SMOLLM2.file(SMOLLM2_GGUF))
    with started(tmp_path, model=smollm) as server:
        server.wait_until_ready()
        plain, drafted = texts(server, PROMPTS[1])
        assert [answer["choices"][0]["text"] for answer in drafted] == [plain] * len(SPECULATING)
        greedy = ("--raw", "--temperature", "0", "--max-tokens", str(LENGTH), "--threads", "1")
        code, out, _ = localspec("run", smollm, *greedy, PROMPTS[1])
        assert (code, out.removesuffix("\n")) == (0, plain.removesuffix("\n"))
        for answer in drafted:
            check_figures(answer)
