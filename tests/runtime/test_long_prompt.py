"""A prompt that is too long is refused before the model is loaded, in the words of a loaded one, and no other is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.cli import run
from localspec.cli.run import Output, answer_once
from localspec.core.errors import ContextOverflow
from localspec.core.requests import GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.models import prompt_sandbox
from localspec.runtime import long_prompt
from localspec.runtime.api import load
from localspec.runtime.long_prompt import as_text, check_prompt
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, byte_level

LONG = Message("user", "word " * 2000)
TURNS = (LONG, Message("assistant", "yes"), Message("user", "and?"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_snapshot(made / "tiny", byte_level("<|im_start|>", "<|im_end|>"), template=CHATML, eos="<|im_end|>")
    save_snapshot(made / "base", byte_level("<|endoftext|>"), eos="<|endoftext|>")
    return made


def refused(asked: LoadRequest, request: GenerateRequest) -> ContextOverflow:
    with pytest.raises(ContextOverflow) as met:
        check_prompt(asked, request)
    return met.value


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "ctx", "request_"),
    [
        ("tiny", None, GenerateRequest((LONG,))),
        ("tiny", 64, GenerateRequest(TURNS)),
        ("tiny", None, GenerateRequest(None, LONG.content)),
        ("base", None, GenerateRequest((LONG,))),
    ],
)
def test_it_is_refused_in_the_same_words_as_once_it_is_loaded(
    folder: Path, name: str, ctx: int | None, request_: GenerateRequest
):
    asked = LoadRequest.of(str(folder / name), ctx=ctx, draft="off")
    early = refused(asked, request_)
    with load(str(folder / name), ctx=ctx, draft="off") as llm, pytest.raises(ContextOverflow) as late:
        llm.answer(request_ if llm.ready.model.chat else as_text(request_)).result()
    assert (str(early), early.exit_code) == (str(late.value), late.value.exit_code)
    assert (early.turns_over, early.prompt_n) == (late.value.turns_over, late.value.prompt_n)


def test_nothing_is_loaded_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "load_events", lambda _: pytest.fail("it is loaded"))
    with pytest.raises(ContextOverflow):
        answer_once(LoadRequest(str(folder / "tiny")), GenerateRequest((LONG,)), Output(), SamplingOptions())


@pytest.mark.slow
def test_what_fits_is_let_through_to_the_last_token(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(long_prompt, "SHORT", 0)
    asked = LoadRequest.of(str(folder / "tiny"), ctx=512)
    words = next(n for n in range(300, 0, -1) if fits(asked, n))
    assert 512 <= refused(asked, GenerateRequest(None, "word " * (words + 1))).prompt_n <= 512 + len("word ")


def fits(asked: LoadRequest, words: int) -> bool:
    try:
        check_prompt(asked, GenerateRequest(None, "word " * words))
    except ContextOverflow:
        return False
    return True


def test_a_short_prompt_costs_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither the tokenizer is opened nor, for a question, a header read."""
    monkeypatch.setattr(prompt_sandbox, "Sandbox", lambda: pytest.fail("the tokenizer is opened"))
    check_prompt(LoadRequest("no such model"), GenerateRequest((Message("user", "hi"),)))
    check_prompt(LoadRequest.of(str(folder / "tiny"), ctx=512), replace(GenerateRequest(), prompt="a" * 511))
