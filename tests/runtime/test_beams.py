"""Beams of a loaded model: transformers' text, honest figures, what is refused, and the answers that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.events import Done, Notice, Step
from localspec.core.requests import MOST_BEAMS, GenerateRequest
from localspec.engine.beams import beam_search
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.runtime import beams as own
from localspec.runtime.api import LLM, load
from localspec.runtime.beams import NO_DRAFTS, check_beams
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

STORY = "The quick brown fox jumps over"
LENGTH = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its own sampling options would not be greedy."""
    made = save_snapshot(tmp_path_factory.mktemp("beams") / "target", gpt2_like(), template=CHATML, eos="<|im_end|>")
    (made / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.9, "top_k": 5}')
    return made


@pytest.fixture
def llm(folder: Path) -> Iterator[LLM]:
    with load(str(folder), draft="early-exit:2", quant="fp64", threads=1) as opened:
        yield opened


def test_the_answer_is_the_search_of_the_prompt_whatever_the_model_samples_with(llm: LLM):
    model: Any = llm._model
    session = Session(model.state.parts.target.beside(), NoDrafter())
    session.begin(Greedy(Sampling()), stop_ids=model.state.parts.stop_ids)
    deque(session.prefill(gpt2_like().encode(STORY).ids), maxlen=0)
    found = beam_search(session, session.target, Sampling(), beams=4, max_tokens=LENGTH)
    result = llm.generate(STORY, beams=4, max_tokens=LENGTH)
    assert [token.id for token in result.tokens] == [token for done in found for token in done.tokens]


def test_the_figures_are_those_of_forwards_that_sped_up_nothing(llm: LLM):
    plain = llm.generate(STORY, max_tokens=40, speculate=False, temperature=0)
    events = list(llm.stream(STORY, beams=3, max_tokens=40))
    done = events[-1]
    assert isinstance(done, Done)
    steps, stats = [event for event in events if isinstance(event, Step)], done.stats
    assert stats.predicted_n == sum(len(step.tokens) for step in steps) == 40
    assert stats.plain_rounds == len(steps) >= 40
    assert (stats.draft_rounds, stats.draft_n, stats.speedup) == (0, 0, None)
    assert stats.baseline_tps == pytest.approx(plain.stats.baseline_tps), "their rounds are no plain ones"
    assert {token.source for step in steps for token in step.tokens} == {"plain"}
    assert stats.kv_bytes == 4 * plain.stats.kv_bytes
    assert stats.read_bytes > 0
    assert stats.ttft_ms >= stats.prompt_ms


def test_one_beam_is_no_search_and_still_drafts(llm: LLM):
    one = llm.generate(STORY, beams=1, max_tokens=20, temperature=0, speculate=True)
    assert one.text == llm.generate(STORY, max_tokens=20, temperature=0, speculate=False).text
    assert one.stats.draft_n > 0


@pytest.mark.parametrize("options", [{"speculate": True}, {"speculate": False}, {}])
def test_that_nothing_is_drafted_is_said_to_who_asked_for_drafts(llm: LLM, options: dict[str, bool]):
    events = list(llm.stream(STORY, beams=2, max_tokens=4, **options))
    assert [event for event in events if isinstance(event, Notice)] == [NO_DRAFTS] * bool(options.get("speculate"))


@pytest.mark.parametrize(
    "options", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"seed": 4}, {"seed": -1}]
)
def test_sampling_is_refused_by_name(llm: LLM, options: dict[str, Any]):
    with pytest.raises(UsageError, match=f"does not sample, so {next(iter(options))} has"):
        llm.generate(STORY, beams=2, **options)


def test_log_probabilities_are_refused(llm: LLM):
    with pytest.raises(UsageError, match="beam search reports no log-probabilities"):
        llm.generate(STORY, beams=2, logprobs=1)


def test_a_penalty_and_temperature_0_are_not_refused(llm: LLM):
    usual = llm.generate(STORY, beams=3, max_tokens=20, temperature=0)
    other = llm.generate(STORY, beams=3, max_tokens=20, repetition_penalty=1.8)
    assert usual.text != other.text


@pytest.mark.parametrize("beams", [0, -1, MOST_BEAMS + 1])
def test_a_number_of_beams_out_of_range_is_refused(llm: LLM, beams: int):
    with pytest.raises(UsageError, match=f"beams {beams} is out of range"):
        llm.answer(GenerateRequest(prompt=STORY, beams=beams)).result()


def test_a_stop_text_ends_the_answer_where_it_is_decided(llm: LLM):
    whole = llm.generate(STORY, beams=3, max_tokens=40)
    stop = whole.text[4:8]
    cut = llm.generate(STORY, beams=3, max_tokens=40, stop=stop)
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert cut.stats.plain_rounds <= whole.stats.plain_rounds


def test_an_answer_that_is_stopped_keeps_its_text_and_the_next_one_is_as_ever(llm: LLM):
    greedy = {"max_tokens": 30, "temperature": 0}
    expected = llm.generate(STORY, **greedy).text
    whole, stream, said = (
        llm.generate(STORY, beams=3, max_tokens=60).text,
        llm.stream(STORY, beams=3, max_tokens=60),
        "",
    )
    for event in stream:
        said += event.text if isinstance(event, Step) else ""
        if said:
            stream.cancel()
    assert stream.result().finish_reason == "cancelled"
    assert whole.startswith(said)
    assert len(said) < len(whole)
    assert llm.generate(STORY, **greedy).text == expected


def test_a_conversation_goes_on_behind_a_searched_answer_without_reading_it_again(llm: LLM):
    chat = llm.chat(beams=3, max_tokens=20)
    chat.send("hello there general")
    second = chat.send("and more")
    assert second.stats.cached_n > 20


def test_caches_that_do_not_fit_are_a_sentence(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own, "available_bytes", lambda: 1000)
    with pytest.raises(DoesNotFit, match=r"Not enough memory for 3 beams \(needs .*, 1 kB free\)"):
        llm.generate(STORY, beams=3)
    assert llm.generate(STORY, max_tokens=3, temperature=0).finish_reason == "length"


def test_a_model_that_transformers_runs_searches_no_beams():
    target: Any = SimpleNamespace(cache=SimpleNamespace(num_bytes=1), device=torch.device("cpu"))
    with pytest.raises(UsageError, match="transformers runs it"):
        check_beams(target, 2)
