"""Speculation seen from outside (check 22): the text is that of plain decoding and of `localspec run`, and the figures
count what was written, not what was drafted in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any  # Any: a fixture that is a function of any words

import pytest

from tests.real.things import SMOLLM2, SMOLLM2_GGUF
from tests.support.served import Object, Server, started

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "warm_engines")]

PROMPTS = "To stop a model,", "def add(a, b):", "localspec localspec localspec"
SPECULATING = {"spec": "on", "k": 4}, {"spec": "on", "k": 16}, {"spec": "auto"}
LENGTH = 48


def check(plain: Object, drafted: list[Object]) -> None:
    """One text, one count of tokens, and figures that agree with themselves."""
    written = plain["usage"]["completion_tokens"]
    assert "draft_n" not in plain["timings"]
    for answer in drafted:
        timings, stats = answer["timings"], answer["localspec"]["stats"]
        assert answer["choices"] == plain["choices"]
        assert answer["usage"]["completion_tokens"] == timings["predicted_n"] == written
        mode = answer["localspec"]["spec"]["mode"]
        assert "draft_n" in timings or mode == "auto"  # whose policy may find that on this machine drafts do not pay
        drafted_n, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        assert drafted_n >= accepted
        assert answer["usage"]["completion_tokens_details"] == {"accepted_prediction_tokens": accepted}
        assert stats["draft_n_rejected"] + stats["draft_n_ignored"] == drafted_n - accepted
        assert accepted <= written <= accepted + rounds(stats)


def rounds(stats: Object) -> int:
    """Each adds what it accepted and one token of the model's own."""
    return int(stats["draft_rounds"] + stats["plain_rounds"])


def answers(server: Server, prompt: str) -> tuple[Object, list[Object]]:
    """That of plain decoding, and those of each way of speculating."""
    plain, *drafted = [
        server.complete(prompt, max_tokens=LENGTH, localspec=spec) for spec in ({"spec": "off"}, *SPECULATING)
    ]
    return plain, drafted


def run(localspec: Any, model: str, prompt: str) -> str:
    greedy = ("--raw", "--temperature", "0", "--max-tokens", str(LENGTH), "--threads", "1")
    code, out, _ = localspec("run", model, *greedy, prompt)
    assert code == 0
    return str(out)


def test_greedy_text_is_plain_text_and_no_rejected_draft_counts(served: Server):
    found = [answers(served, prompt) for prompt in PROMPTS]
    for plain, drafted in found:
        check(plain, drafted)
    rejected = [answer["localspec"]["stats"]["draft_n_rejected"] for _, drafted in found for answer in drafted]
    assert sum(rejected) > 0, "no draft was rejected: this could not have failed"


def test_the_text_is_that_of_run(served: Server, localspec: Any):
    text = served.complete(PROMPTS[0], max_tokens=LENGTH)["choices"][0]["text"]
    assert run(localspec, "guide", PROMPTS[0]).strip() == text.strip() != ""


@pytest.mark.slow
@pytest.mark.real
def test_the_same_on_a_model_that_others_trained(localspec: Any, tmp_path: Path):
    smollm = str(SMOLLM2.file(SMOLLM2_GGUF))
    with started(tmp_path / "state", tmp_path, model=smollm) as server:
        server.wait_until_ready()
        for prompt in PROMPTS[:2]:
            plain, drafted = answers(server, prompt)
            check(plain, drafted)
        assert run(localspec, smollm, prompt).strip() == plain["choices"][0]["text"].strip() != ""
