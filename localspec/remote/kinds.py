"""KINDS: every server that is known, a row each: where it listens, how it is asked, and what it can. Asks nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Kind:
    """`owners`: who /v1/models says that its models belong to. `path`: where a chat goes on. `headers`: what it says
    of itself. `lines`: it streams JSON lines, not events. `extras`: sampling options beyond OpenAI's, by our names.
    `figures`: what a request has so that figures are reported. `reports`: when an answer's speculation is reported.

    `switches`: a request may turn speculation off. `continues`: what makes it go on with an answer; None: it cannot.
    `echoes`: it then begins with what there is of the answer. `loads`: it listens while it still loads, and says so.
    """

    name: str
    title: str
    port: int = 0
    owners: tuple[str, ...] = ()
    path: str = CHAT
    headers: dict[str, str] = field(default_factory=dict)
    lines: bool = False
    extras: dict[str, str] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)
    reports: str = "not reported"
    switches: bool = False
    continues: dict[str, object] | None = None
    echoes: bool = False
    loads: bool = False


REPEATS = {"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty"}
LLAMA = REPEATS | {"repetition_penalty": "repeat_penalty"}
GOES_ON: dict[str, object] = {"continue_final_message": True, "add_generation_prompt": False}

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "localspec",
            "localspec",
            11535,
            ("localspec",),
            extras=REPEATS,
            headers={"Localspec-Chat": "1"},  # a person waits: ahead of other requests
            figures={"localspec": {"tokens": True}},
            reports="always reported",
            switches=True,
            continues={},
            loads=True,
        ),
        Kind(
            "llama-server",
            "llama-server",
            8080,
            ("llamacpp",),
            extras=LLAMA,
            reports="reported where something was drafted",
            continues={},
            echoes=True,
            loads=True,
        ),
        Kind(
            "vllm",
            "vLLM",
            8000,
            ("vllm",),
            extras=REPEATS,
            reports="reported if it was started with --per-request-spec-decode-metrics summary",
            continues=GOES_ON,
        ),
        Kind(
            "sglang",
            "SGLang",
            30000,
            ("sglang",),
            extras=REPEATS,
            figures={"return_spec_tokens_details": True},
            reports="reported by versions since August 2026",
            continues=GOES_ON,
        ),
        Kind(
            "lmstudio",
            "LM Studio",
            1234,
            ("organization_owner",),
            path="/api/v0/chat/completions",
            extras={"top_k": "top_k", "repetition_penalty": "repeat_penalty"},
            reports="always reported, over /api/v0",
        ),
        Kind("ollama", "Ollama", 11434, ("library",), path="/api/chat", lines=True, switches=True, continues={}),
        Kind("openai", "OpenAI-compatible server"),
    )
}
PROBED = ("localspec", "llama-server", "vllm", "sglang", "lmstudio", "ollama")
