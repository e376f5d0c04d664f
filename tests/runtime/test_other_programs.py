"""A pair as other programs' commands: valid for them, and saying no more than localspec knows."""

from __future__ import annotations

import json
import shlex

import pytest

from localspec.core.errors import IncompatiblePair, UsageError
from localspec.runtime.other_programs import LOOKUP, PROGRAMS, OtherPair, printed, stand_ins

# vLLM's fields, by method (pull-serve.md, D2)
FIELDS = {
    "draft_model": {"method", "model", "num_speculative_tokens"},
    "ngram": {"method", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max"},
}
# SGLang's options, by algorithm (its docs/advanced_features/speculative_decoding.md)
SGLANG = {
    "STANDALONE": {
        "--speculative-draft-model-path",
        "--speculative-num-steps",
        "--speculative-eagle-topk",
        "--speculative-num-draft-tokens",
    },
    "NGRAM": {"--speculative-num-draft-tokens"},
}
# llama-server's, by type (common/arg.cpp, as llama-cpp-python 0.3.36 has it)
LLAMA_SERVER = {"draft-simple": {"--spec-type", "--spec-draft-n-max"}, "ngram-mod": {"--spec-type"}}
REASONS = ("same", "padding", "extra-tokens", "controls-differ")
HOSTILE = "o/m'; rm -rf ~ #"


def option(command: str, flag: str) -> str:
    words = shlex.split(command)
    return words[words.index(flag) + 1]


def config(command: str) -> dict[str, object]:
    found = json.loads(option(command, "--speculative-config"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("reason", REASONS)
def test_vllms_configuration_is_json_of_its_fields(reason: str):
    """Check 24: use_heterogeneous_vocab exactly where the rows differ and the tokens do not."""
    found = config(printed(OtherPair("o/target", "o/draft", reason, num_draft_tokens=4), "vllm"))
    extra = {"use_heterogeneous_vocab"} if reason == "padding" else set()
    assert found.keys() == FIELDS["draft_model"] | extra
    assert (found["model"], found["num_speculative_tokens"]) == ("o/draft", 4)
    assert found.get("use_heterogeneous_vocab") is (True if extra else None)


def test_lookup_needs_no_second_model():
    vllm, llama, sglang = (printed(OtherPair("o/target", "lookup"), program) for program in PROGRAMS)
    assert option(sglang, "--speculative-algorithm") == "NGRAM"
    assert config(vllm).keys() == FIELDS["ngram"]
    assert option(llama, "--spec-type") == "ngram-mod"


@pytest.mark.parametrize("drafter", ["o/draft", "./draft.gguf", "lookup"])
def test_llama_server_always_has_a_spec_type(drafter: str):
    """Check 24: without one it loads the drafter and never uses it."""
    command = printed(OtherPair("o/target", drafter, "same", context=4096), "llama-server")
    assert option(command, "--spec-type") == ("ngram-mod" if drafter == "lookup" else "draft-simple")
    assert option(command, "-c") == "4096"
    assert option(command, "-m") == "T.gguf"
    assert drafter == "lookup" or option(command, "-md") == ("./draft.gguf" if "gguf" in drafter else "D.gguf")


def test_what_stands_open_is_said_and_no_repository_is_invented():
    both = list(stand_ins(OtherPair("o/target", "/models/draft", "same")))
    assert both == [
        "T.gguf stands for a GGUF file of o/target; o/target-GGUF on the hub might have one, which was not looked up.",
        "D.gguf stands for a GGUF file of /models/draft.",
    ]
    assert list(stand_ins(OtherPair("./t.gguf", LOOKUP))) == []


def flags(command: str, beginning: str) -> set[str]:
    return {word for word in shlex.split(command) if word.startswith(beginning)}


@pytest.mark.parametrize(("drafter", "algorithm"), [("o/draft", "STANDALONE"), ("lookup", "NGRAM")])
def test_sglangs_options_are_those_of_its_algorithm(drafter: str, algorithm: str):
    command = printed(OtherPair("o/target", drafter, "same", num_draft_tokens=4, context=4096), "sglang")
    assert flags(command, "--speculative-") == {"--speculative-algorithm", *SGLANG[algorithm]}
    assert option(command, "--speculative-algorithm") == algorithm
    assert option(command, "--model-path") == "o/target"
    assert option(command, "--context-length") == "4096"
    assert option(command, "--speculative-num-draft-tokens") == ("5" if algorithm == "STANDALONE" else "4")


@pytest.mark.parametrize(("drafter", "kind"), [("o/draft", "draft-simple"), ("lookup", "ngram-mod")])
def test_llama_servers_options_are_those_of_its_type(drafter: str, kind: str):
    command = printed(OtherPair("o/target", drafter, "same"), "llama-server")
    assert flags(command, "--spec-") == LLAMA_SERVER[kind]
    assert "--draft-max" not in command  # it was removed


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_early_exit_is_only_ours_and_lookup_is_offered(program: str):
    with pytest.raises(UsageError, match="Only localspec drafts for o/target by early exit 4") as raised:
        printed(OtherPair("o/target", "early-exit:4"), program)
    assert raised.value.hint.endswith(f"localspec pair o/target lookup --print {program}")


def test_other_tokens_are_vllms_to_map_and_nothing_to_llama_server():
    other = OtherPair("o/target", "o/draft", "translate")
    assert '"use_heterogeneous_vocab":true' in printed(other, "vllm")
    with pytest.raises(IncompatiblePair, match="llama-server does not translate"):
        printed(other, "llama-server")
    with pytest.raises(IncompatiblePair, match="SGLang does not translate"):
        printed(other, "sglang")


def test_what_cannot_draft_has_no_command():
    with pytest.raises(IncompatiblePair, match="untranslatable"):
        printed(OtherPair("o/target", "o/draft", "untranslatable", ok=False), "vllm")
    with pytest.raises(UsageError, match="no command for 'ollama'"):
        printed(OtherPair("o/target", "o/draft", "same"), "ollama")


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_are_words_to_a_shell(program: str):
    """A name runs nothing when the line is pasted."""
    words = shlex.split(printed(OtherPair(HOSTILE, f"{HOSTILE}.gguf", "same"), program))
    assert "rm" not in words
    assert any(HOSTILE in word for word in words)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_context_that_is_not_known_is_left_to_the_program(program: str):
    command = printed(OtherPair("T", LOOKUP), program)
    assert not {"--max-model-len", "--context-length", "-c"} & set(command.split())
