"""A draft model with another tokenizer in a loaded model: each turn is in its own template, its drafts are plain's
tokens, and what it cannot read it does not draft for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core.requests import GenerateRequest, Message
from localspec.models.checkpoint import open_snapshot
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.runtime.api import LLM, load
from localspec.runtime.draft_translation import Translating
from localspec.runtime.result import Result
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML
from tests.support.two_tongues import unigram

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified", "one_state_folder")]

OWN = "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}[answer]"
REFUSING = "{{ raise_exception('no') }}"
ASKED = (Message("user", "hello there"), Message("assistant", "general"), Message("user", "and the dog?"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and drafters whose tokenizer is another; every token is text."""
    folder = tmp_path_factory.mktemp("pair")
    save_snapshot(folder / "target", unigram(), template=CHATML, eos="</s>")
    for name, template in (("other", OWN), ("bare", None), ("refusing", REFUSING)):
        save_snapshot(folder / name, unigram(nfkc=True), template=template, eos="</s>", num_hidden_layers=1)
    return folder


@pytest.fixture
def prompter(models: Path) -> Iterator[SandboxedPrompter]:
    opened = SandboxedPrompter.open(open_snapshot(models / "target"))
    yield opened
    opened.close()


def begun(models: Path, drafter: str, request: GenerateRequest, prompter: SandboxedPrompter) -> list[int]:
    """The drafter's ids where an answer to this request begins."""
    translating = Translating.open(prompter, open_snapshot(models / "target"), open_snapshot(models / drafter))
    try:
        prompt = prompter.text(request.prompt) if request.prompt else prompter.chat(request.messages or ())
        translating.begin(request, prompt, prompter)
        return translating.translation.follow(prompt)
    finally:
        translating.close()


def read(models: Path, name: str, ids: list[int]) -> str:
    own = SandboxedPrompter.open(open_snapshot(models / name))
    try:
        return own.tokenizer.decode(ids, skip_special_tokens=False)
    finally:
        own.close()


# --- the prompt


def test_the_drafter_reads_the_messages_in_its_own_template(models: Path, prompter: SandboxedPrompter):
    ids = begun(models, "other", GenerateRequest(ASKED), prompter)
    expected = "[user] hello there\n[assistant] general\n[user] and the dog?\n[answer]"
    assert read(models, "other", ids).strip() == expected


def test_an_answer_that_goes_on_is_read_as_far_as_it_is(models: Path, prompter: SandboxedPrompter):
    ids = begun(models, "other", GenerateRequest(ASKED[:2], continues=True), prompter)
    assert read(models, "other", ids).strip().endswith("[user] hello there\n[answer] general")


def test_a_raw_prompt_and_a_drafter_without_a_template_are_read_as_text(models: Path, prompter: SandboxedPrompter):
    for drafter, request in (("other", GenerateRequest(prompt="The quick fox")), ("bare", GenerateRequest(ASKED))):
        said = read(models, drafter, begun(models, drafter, request, prompter))
        assert ("The quick fox" if request.prompt else "and the dog?") in said
        assert "[answer]" not in said


def test_what_its_template_refuses_is_not_drafted(models: Path, prompter: SandboxedPrompter):
    assert begun(models, "refusing", GenerateRequest(ASKED), prompter) == []


# --- answers


def opened(models: Path, draft: str) -> LLM:
    drafter = draft if draft == "off" else str(models / draft)
    return load(str(models / "target"), draft=drafter, quant="fp64", threads=1, k=4)


def turns(llm: LLM, **options: float) -> list[Result]:
    """Two turns, and the second one once more."""
    talk = llm.chat(max_tokens=24, **options)
    return [talk.send("hello there"), talk.send("and the dog?"), talk.retry()]


def ids(found: list[Result]) -> list[list[int]]:
    return [[token.id for token in one.tokens] for one in found]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7}], ids=["greedy", "seeded"])
def test_turns_and_a_retry_are_drafted_in_the_targets_tokens_and_are_plain(models: Path, options: dict[str, float]):
    with opened(models, "off") as llm:
        expected = ids(turns(llm, **options))
    with opened(models, "other") as llm:
        assert llm.ready.spec.translated
        found = turns(llm, **options)
    assert ids(found) == expected
    assert all(one.stats.draft_n > 0 for one in found)


def test_an_answer_that_the_translation_is_not_told_of_is_seen(models: Path, monkeypatch: pytest.MonkeyPatch):
    """The test above can fail."""
    monkeypatch.setattr(Translating, "begin", lambda *_: None)
    with opened(models, "other") as llm:
        assert [one.stats.draft_n for one in turns(llm, temperature=0.0)] == [0, 0, 0]


def test_a_drafter_whose_template_refuses_leaves_plain_decoding(models: Path):
    with opened(models, "off") as llm:
        expected = ids(turns(llm, temperature=0.0))
    with opened(models, "refusing") as llm:
        found = turns(llm, temperature=0.0)
    assert ids(found) == expected
    assert [one.stats.draft_n for one in found] == [0, 0, 0]


def test_that_text_does_not_survive_is_said_once(models: Path, prompter: SandboxedPrompter):
    translating = Translating.open(prompter, open_snapshot(models / "target"), open_snapshot(models / "other"))
    assert translating.notice("other") is None
    translating.translation.broken = True
    said = translating.notice("other")
    assert said is not None
    assert (said.level, said.message.split(" has ")[0]) == ("info", "other")
    assert translating.notice("other") is None
    translating.close()
