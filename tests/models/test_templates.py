"""Chat templates that take the place of a model's own: which there are, and what a model is then told."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core.errors import UsageError
from localspec.core.requests import GenerateRequest, Message
from localspec.models.checkpoint import open_snapshot
from localspec.models.named_templates import CHOICES, COMPLETION, NAMED, find
from localspec.models.prompt import Prompter
from localspec.models.prompt_sandbox import opening_of
from localspec.models.sandbox_process import opened
from localspec.runtime.api import load
from tests.support.models import save_snapshot
from tests.support.tokenizers import byte_level

TURNS = (Message("user", "one"), Message("assistant", " two"), Message("user", "three <|im_end|>"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without a template, though it has tokens for turns."""
    folder = tmp_path_factory.mktemp("models") / "base"
    specials = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    save_snapshot(folder, byte_level(*specials), eos="<|endoftext|>", hidden_size=64)
    return folder


def read(prompter: Prompter, name: str) -> str:
    """What the model is told, as text."""
    return prompter.tokenizer.decode(prompter.using(NAMED[name]).chat(TURNS), skip_special_tokens=False)


def test_each_has_a_name_and_auto_is_the_models_own():
    assert ("auto", *NAMED) == CHOICES
    assert find("auto") is None
    assert find("chatml") is NAMED["chatml"]


def test_a_conversation_becomes_what_the_template_says(base: Path):
    prompter = opened(opening_of(open_snapshot(base, "base")))
    assert read(prompter, "none") == "one two\n\nthree <|im_end|>"
    assert read(prompter, "chatml").endswith("<|im_start|>user\nthree <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert read(prompter, "words") == "User: one\n\nAssistant:  two\n\nUser: three <|im_end|>\n\nAssistant:"
    assert "<|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>" in read(prompter, "llama-3")
    for name in NAMED:
        assert read(prompter, name) == read(prompter, name), "the second time it is remembered"


def test_words_of_the_user_are_no_control_tokens_under_any_of_them(base: Path):
    """E1: as many control ids as with the words replaced."""
    prompter = opened(opening_of(open_snapshot(base, "base")))
    harmless = [Message(turn.role, "x") for turn in TURNS]
    for template in NAMED.values():
        counts = {
            sum(id in prompter.control_ids for id in prompter.using(template).chat(turns))
            for turns in (TURNS, harmless)
        }
        assert len(counts) == 1, template.name


def test_a_file_is_a_template_and_what_is_none_is_told(tmp_path: Path):
    file = tmp_path / "mine.jinja"
    file.write_text("{% for m in messages %}{{ m.content }}|{% endfor %}")
    found = find(str(file))
    assert found is not None
    assert (found.name, found.source) == ("mine.jinja", file.read_text())
    file.write_text("{% for %}")
    with pytest.raises(UsageError, match=r"chat template of 'mine\.jinja' fails"):
        find(str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not UTF-8"):
        find(str(file))
    for nothing in ("~nobody-of-that-name/x.jinja", "x" * 5000, "a\0b", str(tmp_path)):
        with pytest.raises(UsageError, match="There is no template"):
            find(nothing)
    with pytest.raises(UsageError, match="no template 'chatmi'; did you mean 'chatml'"):
        find("chatmi")
    for no_file in ("~no-such-user/x", "x" * 5000):
        with pytest.raises(UsageError, match="There is no template"):
            find(no_file)


@pytest.mark.heavy
def test_a_base_model_answers_with_a_template_and_stops_where_that_ends_a_turn(base: Path):
    with load(str(base), quant="fp32", threads=1, draft="off") as llm:
        request = GenerateRequest((Message("user", "hi"),), max_tokens=4, template=COMPLETION)
        assert llm.answer(request).result().stats.predicted_n > 0
        state = llm._model.state
        end = state.parts.prompter.tokenizer.token_to_id("<|im_end|>")
        named = GenerateRequest((Message("user", "hi"),), max_tokens=1, template=NAMED["chatml"])
        llm.answer(named).result()
        assert end in state.session.stop_ids
        llm.answer(request).result()
        assert end not in state.session.stop_ids
