"""What other people's servers answer, as streams of bytes. Written from their sources, not recorded from a run, except
where a name says `recorded`:

llama-server: tools/server of llama.cpp as llama-cpp-python 0.3.36 ships it; what that answered is in tests/recorded.
vLLM: pull request 48915 (per-request metrics), vllm/v1/spec_decode/metrics.py. SGLang: pull request 33518, and
entrypoints/openai/protocol.py. LM Studio: docs/1_developer/2_rest/endpoints.mdx, whose `stats` of drafts are those of
its lmstudio-js. Ollama: docs/api.md. All as pull-serve.md, D1, names them.
"""

from __future__ import annotations

import json
from typing import Any

TEXTS = ("Hello", " there", ", world.")
USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


def event(found: object) -> bytes:
    return b"data: " + json.dumps(found).encode() + b"\n\n"


def chunk(text: str | None = None, finish: str | None = None, **more: object) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def last(**more: object) -> dict[str, Any]:
    """The chunk of include_usage: it has no choices."""
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], **more}


def stream(*after: dict[str, Any], finish: str = "stop", done: bool = True) -> list[bytes]:
    """An answer of TEXTS, with these chunks behind it."""
    opening = chunk("")
    opening["choices"][0]["delta"]["role"] = "assistant"
    chunks = [opening, *map(chunk, TEXTS), chunk(finish=finish), *after]
    return [*map(event, chunks), *([b"data: [DONE]\n\n"] if done else [])]


TIMINGS = {
    "cache_n": 4,
    "prompt_n": 8,
    "prompt_ms": 20.0,
    "prompt_per_second": 400.0,
    "predicted_n": 7,
    "predicted_ms": 100.0,
    "predicted_per_second": 70.0,
}
LLAMA_SERVER = stream(last(usage=USAGE, timings={**TIMINGS, "draft_n": 8, "draft_n_accepted": 4}))
LLAMA_SERVER_WITHOUT_DRAFTS = stream(last(usage=USAGE, timings=TIMINGS))

VLLM_SPECULATION = {
    "mean_acceptance_length": 2.33,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [0, 2, 1],
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 8,
    "num_spec_tokens": 4,
}
VLLM = stream(last(usage=USAGE, metrics={"speculative_decoding": VLLM_SPECULATION}))
VLLM_WITHOUT_THE_FLAG = stream(last(usage=USAGE))
VLLM_WITH_NULL = stream(last(usage=USAGE, metrics={"speculative_decoding": None}))

SGLANG_DETAILS = {
    "spec_verify_ct": 3,
    "spec_accept_length": 2.33,
    "spec_accept_rate": 0.5,
    "spec_num_correct_drafts": 4,
    "spec_num_proposed_drafts": 8,
}
SGLANG = stream(last(usage=USAGE, sglext={"spec_tokens_details": SGLANG_DETAILS}))
SGLANG_OLDER = stream(
    last(
        usage=USAGE,
        sglext={"spec_tokens_details": {"spec_verify_ct": 3, "spec_accept_token_num": 4, "spec_draft_token_num": 8}},
    )
)
SGLANG_BEFORE_IT = stream(last(usage=USAGE))

LM_STUDIO_STATS = {
    "tokens_per_second": 70.0,
    "time_to_first_token": 0.111,
    "generation_time": 0.1,
    "stop_reason": "eosFound",
}
LM_STUDIO_DRAFTS = {
    "draft_model": "small",
    "total_draft_tokens_count": 8,
    "accepted_draft_tokens_count": 4,
    "rejected_draft_tokens_count": 3,
    "ignored_draft_tokens_count": 1,
}
LM_STUDIO = stream(last(usage=USAGE, stats={**LM_STUDIO_STATS, **LM_STUDIO_DRAFTS}))
LM_STUDIO_WITHOUT_DRAFTS = stream(last(usage=USAGE, stats=LM_STUDIO_STATS))


def ollama_line(text: str, **more: object) -> bytes:
    found = {"model": "m", "created_at": "2026-11-01T00:00:00Z", "message": {"role": "assistant", "content": text}}
    return json.dumps({**found, "done": False, **more}).encode() + b"\n"


OLLAMA = [
    *map(ollama_line, TEXTS),
    ollama_line(
        "",
        done=True,
        done_reason="stop",
        total_duration=200_000_000,
        load_duration=1_000_000,
        prompt_eval_count=12,
        prompt_eval_duration=20_000_000,
        eval_count=7,
        eval_duration=100_000_000,
    ),
]


def models(owner: str, *names: str, **more: object) -> dict[str, Any]:
    rows = [{"id": name, "object": "model", "created": 1, "owned_by": owner, **more} for name in names or ("m",)]
    return {"object": "list", "data": rows}


def vllm_metrics(drafts: int, drafted: int, accepted: int, written: int) -> str:
    """vLLM's Prometheus page, as far as it is read."""
    lines = [
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}.0',
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}.0',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}.0',
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {accepted}.0',
        f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {written}.0',
        'vllm:request_success_total{finished_reason="stop"} 1.0',
    ]
    return "\n".join(lines) + "\n"


STEP = {
    "type": "step",
    "kind": "draft",
    "tokens": [
        {"id": 1, "text": "Hello", "source": "draft", "pos": 0, "logprobs": [], "alt": None, "drafter": "model"},
        {"id": 2, "text": " there", "source": "fix", "pos": None, "logprobs": [], "alt": None, "drafter": ""},
    ],
    "drafted": 3,
    "accepted": 1,
    "ignored": 1,
    "draft_ms": 2.0,
    "verify_ms": 8.0,
    "rejected": [{"id": 5, "text": "x", "p_drafter": None, "p_target": None}],
    "drafters": ["model", "model", "model"],
    "origin": None,
    "position": 12,
}
