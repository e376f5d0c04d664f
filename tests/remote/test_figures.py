"""Check 23: of every server's recorded answer the right figures or "not reported", never 0 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.core.events import Stats, Steered, Step
from localspec.core.requests import GenerateRequest, Message, SamplingOptions, SpecOptions
from localspec.core.server_speculation import speculation
from localspec.remote.figures import Figures
from localspec.remote.totals import ServerTotals, of_one_answer, read
from tests.support import recorded_servers as recorded
from tests.support.recorded_servers import STEP, TEXTS, chunk, event, last, models, stream, vllm_metrics
from tests.support.remote_stage import CHAT, QUESTION, done_of, serving, talk, text_of
from tests.support.stand_in_server import Answer, Asked, Route


@dataclass(frozen=True)
class Case:
    routes: dict[str, Route]
    words: str
    counts: tuple[int, int, int]  # rounds, drafted, accepted
    kind: str = "server"


V0 = "/api/v0"
HALF = "50 % of 8 drafted accepted"
LM_MODELS = Answer.json({"data": [{"id": "m", "type": "llm", "state": "loaded", "loaded_context_length": 4096}]})


def lm_studio(pieces: list[bytes]) -> dict[str, Route]:
    routes = serving("organization_owner", Answer(pieces), path=f"POST {V0}/chat/completions")
    return {**routes, f"GET {V0}/models": LM_MODELS}


CASES = {
    "llama-server": Case(serving("llamacpp", Answer(recorded.LLAMA_SERVER)), f"{HALF} (server)", (0, 8, 4)),
    "llama-server, nothing drafted": Case(
        serving("llamacpp", Answer(recorded.LLAMA_SERVER_WITHOUT_DRAFTS)),
        "speculation: not reported",
        (0, 0, 0),
        "unreported",
    ),
    "vLLM": Case(serving("vllm", Answer(recorded.VLLM)), f"{HALF}, 1.3 accepted per round (server)", (3, 8, 4)),
    "vLLM, without the flag": Case(
        serving("vllm", Answer(recorded.VLLM_WITHOUT_THE_FLAG)), "speculation: not reported", (0, 0, 0), "unreported"
    ),
    "vLLM, null": Case(
        serving("vllm", Answer(recorded.VLLM_WITH_NULL)), "speculation: not reported", (0, 0, 0), "unreported"
    ),
    "SGLang": Case(serving("sglang", Answer(recorded.SGLANG)), f"{HALF}, 1.3 accepted per round (server)", (3, 8, 4)),
    "SGLang, older names": Case(
        serving("sglang", Answer(recorded.SGLANG_OLDER)), f"{HALF}, 1.3 accepted per round (server)", (3, 8, 4)
    ),
    "SGLang, before it": Case(
        serving("sglang", Answer(recorded.SGLANG_BEFORE_IT)), "speculation: not reported", (0, 0, 0), "unreported"
    ),
    "LM Studio": Case(lm_studio(recorded.LM_STUDIO), f"{HALF} (server)", (0, 8, 4)),
    "LM Studio, no draft model": Case(
        lm_studio(recorded.LM_STUDIO_WITHOUT_DRAFTS), "speculation: not reported", (0, 0, 0), "unreported"
    ),
    "Ollama": Case(
        serving("library", Answer(recorded.OLLAMA, content_type="application/x-ndjson"), path="POST /api/chat"),
        "speculation: not reported",
        (0, 0, 0),
        "unreported",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_figures_are_what_the_server_reports(name: str):
    case = CASES[name]
    with talk(case.routes) as with_server:
        with_server.open()
        answer = with_server.ask()
    stats = done_of(answer).stats
    assert text_of(answer) == "".join(TEXTS)
    assert (stats.draft_rounds, stats.draft_n, stats.draft_n_accepted) == case.counts
    assert stats.draft_kind == case.kind
    assert speculation(stats) == case.words
    assert (stats.prompt_n, stats.predicted_n, stats.context_used) == (12, 7, 19)
    assert stats.finish_reason == "stop"


@pytest.mark.parametrize("name", ["llama-server", "LM Studio", "Ollama"])
def test_the_speed_is_the_servers_own_where_it_reports_one(name: str):
    with talk(CASES[name].routes) as with_server:
        with_server.open()
        stats = done_of(with_server.ask()).stats
    assert stats.predicted_per_second == pytest.approx(70.0)


def test_drafts_that_lm_studio_never_tested_are_not_called_rejected():
    with talk(CASES["LM Studio"].routes) as with_server:
        with_server.open()
        stats = done_of(with_server.ask()).stats
    assert (stats.draft_n_accepted, stats.draft_n_rejected, stats.draft_n_ignored) == (4, 3, 1)


def test_sglangs_meta_info_is_read_where_a_choice_carries_it():
    """As its /generate names them."""
    ended = chunk(finish="stop")
    ended["choices"][0]["meta_info"] = recorded.SGLANG_DETAILS
    pieces = [event(chunk("Hello")), event(ended), event(last(usage=recorded.USAGE)), b"data: [DONE]\n\n"]
    with talk(serving("sglang", Answer(pieces))) as with_server:
        with_server.open()
        stats = done_of(with_server.ask()).stats
    assert (stats.draft_rounds, stats.draft_n, stats.draft_n_accepted) == (3, 8, 4)


def test_a_burst_of_text_in_one_chunk_counts_as_the_server_counts_it():
    """Rates come from usage: several tokens may share a chunk, and no chunk is a token."""
    burst = [event(chunk("a b c d e f g", "stop")), event(last(usage=recorded.USAGE)), b"data: [DONE]\n\n"]
    with talk(serving("vllm", Answer(burst))) as with_server:
        with_server.open()
        assert done_of(with_server.ask()).stats.predicted_n == 7


IMPOSSIBLE: list[dict[str, Any]] = [
    {"timings": {"draft_n": 3, "draft_n_accepted": 9}},
    {"timings": {"draft_n": -3, "draft_n_accepted": -9}},
    {"timings": {"draft_n": "8", "draft_n_accepted": 4}},
    {"timings": {"draft_n": 1 << 62, "draft_n_accepted": 1}},
    {"timings": "none"},
    {"metrics": {"speculative_decoding": [1]}},
    {"metrics": 7, "sglext": 7, "stats": 7, "usage": 7, "localspec": 7},
    {"usage": {"prompt_tokens": -1, "completion_tokens": "7"}},
]


@pytest.mark.parametrize("found", IMPOSSIBLE, ids=str)
def test_figures_that_cannot_be_true_are_not_shown(found: dict[str, Any]):
    with talk(serving("llamacpp", Answer(stream(last(**found))))) as with_server:
        with_server.open()
        answer = with_server.ask()
    assert text_of(answer) == "".join(TEXTS)
    assert speculation(done_of(answer).stats) == "speculation: not reported"


# --- totals


def pages(*counts: tuple[int, int, int, int]) -> list[Answer]:
    return [Answer.text(vllm_metrics(*each)) for each in counts]


def vllm_between(first: tuple[int, int, int, int], then: tuple[int, int, int, int]) -> Stats:
    """The figures of one answer of a vLLM whose totals are these before and after it. The first page is the probe's."""
    routes = serving("vllm", Answer(recorded.VLLM_WITHOUT_THE_FLAG))
    with talk({**routes, "GET /metrics": pages(first, first, then)}) as with_server:
        with_server.open()
        return done_of(with_server.ask()).stats


def test_totals_that_one_answer_explains_are_its_own():
    stats = vllm_between((100, 400, 200, 900), (103, 408, 204, 907))
    assert (stats.draft_rounds, stats.draft_n, stats.draft_n_accepted) == (3, 8, 4)


@pytest.mark.parametrize(
    "then", [(203, 708, 504, 1500), (103, 408, 204, 930), (120, 408, 204, 907)], ids=["many", "tokens", "rounds"]
)
def test_totals_with_somebody_elses_answer_in_them_are_shown_as_shared(then: tuple[int, int, int, int]):
    assert speculation(vllm_between((100, 400, 200, 900), then)) == "speculation: shared server, totals only"


@pytest.mark.parametrize("then", [(100, 400, 200, 907), (1, 4, 2, 9)], ids=["nothing drafted", "started anew"])
def test_totals_that_did_not_move_rightly_say_nothing(then: tuple[int, int, int, int]):
    assert speculation(vllm_between((100, 400, 200, 900), then)) == "speculation: not reported"


def test_a_vllm_that_reports_each_answer_is_asked_for_no_totals_after_the_first():
    routes = serving("vllm", Answer(recorded.VLLM))
    with talk({**routes, "GET /metrics": pages((1, 4, 2, 9))}) as with_server:
        with_server.open()
        with_server.ask()
        before = len(with_server.server.asked)
        with_server.ask()
        assert [one.path for one in with_server.server.asked[before:]] == ["/v1/chat/completions"]


def test_a_hostile_page_of_metrics_is_no_figure():
    page = "vllm:spec_decode_num_drafts_total 1e400\nvllm:spec_decode_num_draft_tokens_total nan\nx" + "{" * 9999
    assert read(page) == ServerTotals()
    assert of_one_answer(Figures(predicted_n=7), read(page), read(page)) == Figures(predicted_n=7)


# --- localspec's own


OWN_STATS = {
    "draft_kind": "model",
    "draft_rounds": 3,
    "draft_n": 8,
    "draft_n_accepted": 4,
    "predicted_n": 7,
    "speedup": 1.5,
}
OWN_SPEC = {"kind": "model", "name": "small", "k": 4, "mode": "auto"}


def own(**stats: object) -> list[bytes]:
    said = chunk("Hello there")
    said["choices"][0]["delta"]["localspec"] = STEP
    figures = {"spec": OWN_SPEC, "stats": {**OWN_STATS, **stats}}
    return [
        *map(event, (said, chunk(finish="stop"), last(usage=recorded.USAGE, localspec=figures))),
        b"data: [DONE]\n\n",
    ]


def test_another_localspec_says_who_wrote_each_token_and_all_its_figures():
    with talk(serving("localspec", Answer(own()))) as with_server:
        with_server.open()
        answer = with_server.ask()
    (step,) = [one for one in answer if isinstance(one, Step)]
    assert [token.source for token in step.tokens] == ["draft", "fix"]
    assert done_of(answer).stats.speedup == 1.5
    assert [one.spec.name for one in answer if isinstance(one, Steered)] == ["small"]


@pytest.mark.parametrize("change", [{"draft_n": -1}, {"speedup": 1e300}, {"accepted_counts": [1] * 99999}], ids=str)
def test_a_localspec_with_mad_sums_is_not_believed(change: dict[str, object]):
    with talk(serving("localspec", Answer(own(**change)))) as with_server:
        with_server.open()
        assert speculation(done_of(with_server.ask()).stats) == "speculation: not reported"


@pytest.mark.parametrize(
    "change", [{"drafted": 10**18, "accepted": 10**17}, {"accepted": 9}, {"verify_ms": -1.0}], ids=str
)
def test_a_round_that_cannot_be_is_text_alone(change: dict[str, object]):
    said = chunk("Hello there", "stop")
    said["choices"][0]["delta"]["localspec"] = {**STEP, **change}
    with talk(serving("localspec", Answer([event(said), b"data: [DONE]\n\n"]))) as with_server:
        with_server.open()
        answer = with_server.ask()
    assert text_of(answer) == "Hello there"
    assert not [one for one in answer if isinstance(one, Step)]


# --- what is asked


def body_of(
    owner: str, request: GenerateRequest, options: SpecOptions | None = None, path: str = CHAT, **of_model: Any
) -> Any:
    return sent_to(owner, request, options, path, **of_model).body


def sent_to(
    owner: str, request: GenerateRequest, options: SpecOptions | None = None, path: str = CHAT, **of_model: Any
) -> Asked:
    pieces = Answer(recorded.OLLAMA, content_type="application/x-ndjson") if owner == "library" else Answer(stream())
    routes = serving(owner, pieces, path=path) | {"GET /v1/models": Answer.json(models(owner, **of_model))}
    with talk(routes) as with_server:
        with_server.open()
        if options is not None:
            with_server.engine.steer(options)
        done_of(with_server.ask(request))
        return with_server.server.questions[-1]


FULL = GenerateRequest(
    messages=(Message("system", "Be brief."), Message("user", "Hello?")),
    max_tokens=50,
    stop=("###",),
    sampling=SamplingOptions(temperature=0.5, top_k=20, repetition_penalty=1.1, seed=3),
)


def test_a_question_says_what_was_asked_for_and_no_more():
    asked = body_of("nobody", QUESTION)
    assert set(asked) == {"model", "messages", "stream", "stream_options"}


def test_another_localspec_and_no_other_hears_that_a_person_waits():
    assert sent_to("localspec", QUESTION).headers["Localspec-Chat"] == "1"
    assert "Localspec-Chat" not in sent_to("vllm", QUESTION).headers


def test_options_beyond_openais_go_only_to_who_knows_them():
    assert body_of("nobody", FULL).keys() & {"top_k", "repetition_penalty", "repeat_penalty"} == set()
    assert body_of("llamacpp", FULL)["repeat_penalty"] == 1.1
    assert body_of("vllm", FULL)["repetition_penalty"] == 1.1
    options = body_of("library", FULL, path="POST /api/chat")["options"]
    assert options == {
        "temperature": 0.5,
        "top_k": 20,
        "repeat_penalty": 1.1,
        "seed": 3,
        "num_predict": 50,
        "stop": ["###"],
    }


def test_the_switch_is_a_field_of_the_next_question():
    """Until it is touched, another localspec speculates as it was started."""
    assert body_of("localspec", QUESTION)["localspec"] == {"tokens": True}
    assert body_of("localspec", QUESTION, SpecOptions("off"))["localspec"] == {"tokens": True, "spec": "off"}
    assert body_of("localspec", QUESTION, SpecOptions("on", 4))["localspec"] == {
        "tokens": True,
        "spec": "on",
        "k": 4,
    }
    off = body_of("library", QUESTION, SpecOptions("off"), "POST /api/chat")
    assert off["options"]["draft_num_predict"] == 0
    assert "draft_num_predict" not in body_of("library", QUESTION, path="POST /api/chat")["options"]


def test_only_what_the_user_changed_is_asked_of_a_localspec():
    """One that was started with --k 3 keeps that, whatever the mode."""
    started = {"localspec": {"spec": {"kind": "lookup", "k": 3, "mode": "on"}}}

    def asked(options: SpecOptions | None, request: GenerateRequest = QUESTION) -> Any:
        sent = body_of("localspec", request, options, **started)["localspec"]
        assert sent.pop("tokens") is True
        return sent

    assert asked(None) == asked(SpecOptions("on", 3)) == {}
    assert asked(SpecOptions("auto", 3)) == {"spec": "auto"}
    assert asked(SpecOptions("on", 5)) == {"k": 5}
    assert asked(SpecOptions("auto", "auto")) == {"spec": "auto", "k": "auto"}
    assert asked(SpecOptions("off", 3), replace(QUESTION, speculate=True)) == {"spec": "auto"}


def test_a_localspec_that_is_not_steered_drafts_as_it_was_started():
    """Its own --spec and --k would be overridden by ours."""
    assert body_of("localspec", QUESTION)["localspec"] == {"tokens": True}
    plain, drafted = (replace(QUESTION, speculate=each) for each in (False, True))
    assert body_of("localspec", plain)["localspec"] == {"tokens": True, "spec": "off"}
    assert body_of("localspec", drafted)["localspec"] == {"tokens": True}


def test_sglang_is_asked_for_its_details():
    assert body_of("sglang", QUESTION)["return_spec_tokens_details"] is True
