"""A pair in other programs' words: vLLM's speculative configuration, llama-server's and SGLang's command.

Their options are those of the programs' own documentation (SGLang's: docs/advanced_features/speculative_decoding.md).
Runs nothing and reads no files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from localspec.core.errors import IncompatiblePair, UsageError
from localspec.engine.drafters import table
from localspec.models.sandbox_jobs import TRANSLATE

Program = Literal["vllm", "llama-server", "sglang"]
PROGRAMS: tuple[Program, ...] = ("vllm", "llama-server", "sglang")
DEFAULT_DRAFT = 5  # tokens; these programs have no "auto"
MOST_CONTEXT = 8192
LOOKUP = table.LOOKUP.name
LOOKUP_NGRAMS = {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
TARGET_FILE, DRAFTER_FILE = "T.gguf", "D.gguf"
PADDED = "padding"  # the verdict of equal tokens and unequal rows, which vLLM refuses unless it is asked not to, as it
# does other tokens (its pull request 38174)


@dataclass(frozen=True, slots=True)
class OtherPair:
    """A target and its drafter: a model, or a row of DRAFTERS. `reason`: of a draft model's verdict, "" for none;
    `num_draft_tokens` at most, `context` in tokens, 0 where the program is to find it out."""

    target: str
    drafter: str
    reason: str = ""
    ok: bool = True
    num_draft_tokens: int = DEFAULT_DRAFT
    context: int = 0

    def context_as(self, flag: str) -> str:
        return f" {flag} {self.context}" if self.context else ""


def printed(pair: OtherPair, program: str) -> str:
    """The command that runs the pair there; UsageError for drafters that no other program has."""
    if program not in PROGRAMS:
        raise UsageError(
            f"There is no command for '{program[:40]}'.",
            hint=f"Use --print {', '.join(PROGRAMS[:-1])} or {PROGRAMS[-1]}.",
        )
    if table.names_row(pair.drafter) and pair.drafter != LOOKUP:
        name = table.label(table.parse(pair.drafter))
        raise UsageError(
            f"Only localspec drafts for {pair.target} by {name}: {program} cannot.",
            hint=f"Use the same target with look-up: localspec pair {pair.target} {LOOKUP} --print {program}",
        )
    if not pair.ok:
        raise IncompatiblePair(
            f"'{pair.drafter}' cannot draft for '{pair.target}' in any program ({pair.reason}).",
            hint=f"Find one that can: localspec pair {pair.target} --hub",
        )
    match program:
        case "vllm":
            return vllm(pair)
        case "sglang":
            return sglang(pair)
    return llama_server(pair)


def vllm(pair: OtherPair) -> str:
    config = shlex.quote(json.dumps(speculative_config(pair), separators=(",", ":")))
    return f"vllm serve {shlex.quote(pair.target)}{pair.context_as('--max-model-len')} --speculative-config {config}"


def speculative_config(pair: OtherPair) -> dict[str, str | int | bool]:
    """vLLM's --speculative-config."""
    if pair.drafter == LOOKUP:
        return {"method": "ngram", "num_speculative_tokens": pair.num_draft_tokens, **LOOKUP_NGRAMS}
    padded = {"use_heterogeneous_vocab": True} if pair.reason in (PADDED, TRANSLATE) else {}
    return {
        "method": "draft_model",
        "model": pair.drafter,
        "num_speculative_tokens": pair.num_draft_tokens,
        **padded,
    }


def llama_server(pair: OtherPair) -> str:
    """llama-server loads GGUF files, which localspec does not make: for another model the file is left open. Without
    --spec-type it would load the drafter and never use it."""
    refuse_translation(pair, "llama-server")
    target = file_of(pair.target, TARGET_FILE)
    rest = f"{pair.context_as('-c')} --metrics"
    if pair.drafter == LOOKUP:
        return f"llama-server -m {target} --spec-type ngram-mod{rest}"
    draft = (
        f"-md {file_of(pair.drafter, DRAFTER_FILE)} --spec-type draft-simple --spec-draft-n-max {pair.num_draft_tokens}"
    )
    return f"llama-server -m {target} {draft}{rest}"


def sglang(pair: OtherPair) -> str:
    """A chain of drafts, without branches: one more token is verified than drafted. Its look-up runs on CUDA only."""
    refuse_translation(pair, "SGLang")
    context = pair.context_as("--context-length")
    first = f"python3 -m sglang.launch_server --model-path {shlex.quote(pair.target)}{context}"
    if pair.drafter == LOOKUP:
        options = f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {pair.num_draft_tokens}"
        return f"{first} {options} --enable-metrics"
    draft = f"--speculative-algorithm STANDALONE --speculative-draft-model-path {shlex.quote(pair.drafter)}"
    length = f"--speculative-num-steps {pair.num_draft_tokens} --speculative-eagle-topk 1"
    return f"{first} {draft} {length} --speculative-num-draft-tokens {pair.num_draft_tokens + 1} --enable-metrics"


def refuse_translation(pair: OtherPair, program: str) -> None:
    """IncompatiblePair where the drafter has other tokens, which only vLLM and localspec translate."""
    if pair.reason == TRANSLATE:
        raise IncompatiblePair(
            f"'{pair.drafter}' has a different tokenizer from '{pair.target}', and {program} does not translate.",
            hint=f"Find one with the same tokenizer: localspec pair {pair.target} --hub",
        )


def file_of(model: str, stand_in: str) -> str:
    return shlex.quote(model) if is_file(model) else stand_in


def is_file(model: str) -> bool:
    return model.lower().endswith(".gguf")


def stand_ins(pair: OtherPair) -> Iterator[str]:
    """What stands for a file in llama-server's command, a sentence each, and which repository might have it."""
    for stand_in, model in ((TARGET_FILE, pair.target), (DRAFTER_FILE, pair.drafter)):
        if model != LOOKUP and not is_file(model):
            perhaps = f"; {model}-GGUF on the hub might have one, which was not looked up" if is_name(model) else ""
            yield f"{stand_in} stands for a GGUF file of {model}{perhaps}."


def is_name(model: str) -> bool:
    """Whether this is a repository's name, not a path."""
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))
