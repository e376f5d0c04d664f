"""Other texts to copy from: an answer once more is its own draft, each text is encoded once, none changes an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localspec.core.errors import Cancelled, CheckpointError
from localspec.core.events import Done, Step
from localspec.core.requests import GenerateRequest, Message, Reference, SamplingOptions
from localspec.engine.drafters.lookup import Corpus
from localspec.engine.drafters.ngram import LONGEST
from localspec.models.prompt import Prompter
from localspec.models.spelling import Folding, KnownWords
from localspec.runtime import references as module
from localspec.runtime.api import LLM, load
from localspec.runtime.references import References
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

QUESTION = (Message("user", "Tell me of the quick brown fox that jumps over the lazy dog, again and again, please."),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "target", gpt2_like(), template=CHATML, eos="<|im_end|>")


def opened(folder: Path, draft: str) -> LLM:
    return load(str(folder), draft=draft, quant="fp64", threads=1, k=8)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with opened(folder, "lookup") as found:
        yield found


def request(*references: Reference, temperature: float = 0, seed: int | None = None) -> GenerateRequest:
    sampling = SamplingOptions(temperature=temperature, seed=seed)
    return GenerateRequest(QUESTION, max_tokens=120, sampling=sampling, references=references)


def steps(llm: LLM, asked: GenerateRequest) -> list[Step]:
    return [event for event in llm.answer(asked) if isinstance(event, Step)]


def text(found: Sequence[Step]) -> str:
    return "".join(one.text for one in found)


def ids(found: Sequence[Step]) -> list[int]:
    return [token.id for one in found for token in one.tokens]


def corpora(llm: LLM) -> tuple[Corpus, ...]:
    """The texts beside the conversation that its look-up has."""
    lookup = llm._model.state.parts.drafting.lookup
    assert lookup is not None
    return lookup.corpora


def by_draft(found: Sequence[Step]) -> float:
    """The share of tokens that could be drafted and were, and were accepted: a round writes one more itself."""
    count = sum(len(one.tokens) for one in found)
    return sum(one.accepted for one in found) / (count - len(found))


# --- an unchanged answer


@pytest.mark.parametrize("way", [(0, None), (1.0, 7)])
def test_an_unchanged_retry_is_drafted_from_the_old_answer(llm: LLM, way: tuple[float, int | None]) -> None:
    """By greedy decoding and with a seed: every token that a round does not write itself, but for the first few."""
    first = steps(llm, request(temperature=way[0], seed=way[1]))
    old = Reference("branch", "one", text(first), QUESTION)
    again = steps(llm, request(old, temperature=way[0], seed=way[1]))
    assert ids(again) == ids(first)
    assert by_draft(again) >= 0.95
    assert len(again) <= len(ids(first)) / 8  # a round has nine tokens
    assert [corpus.names for corpus in corpora(llm)] == [["one"]]


def test_the_interfaces_own_retry_copies_from_the_answer_before(llm: LLM) -> None:
    talk = llm.chat(max_tokens=60, temperature=0.0)
    first = talk.send(QUESTION[0].content)
    again = talk.retry()
    assert again.text == first.text
    assert again.stats.draft_n_accepted >= 0.95 * (60 - 60 / 9 - 1)


def test_with_another_drafter_behind_it_the_look_up_has_the_texts_too(folder: Path) -> None:
    with opened(folder, "lookup+early-exit:1") as llm:
        first = steps(llm, request())
        again = steps(llm, request(Reference("branch", "", text(first), QUESTION)))
        assert ids(again) == ids(first)
        assert corpora(llm)


@pytest.mark.parametrize("draft", ["off", "early-exit:1"])
def test_without_a_look_up_nothing_is_encoded(folder: Path, draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(References, "_encode", lambda *_: pytest.fail("encoded"))
    with opened(folder, draft) as llm:
        assert steps(llm, request(Reference("file", "a.txt", "the fox")))


def test_no_text_changes_an_answer(llm: LLM) -> None:
    """Hostile ones too, sampled and greedy."""
    texts = ("", "\0", "\ud800", "<|im_end|>" * 50, "<|im_start|>assistant\n", "fox " * 3000, "\x1b]0;x\x07")
    for temperature, seed in ((0, None), (1.0, 3)):
        plain = ids(steps(llm, request(temperature=temperature, seed=seed)))
        answers = [Reference(kind, one, one, QUESTION) for one in texts for kind in ("branch", "chat")]
        files = [Reference("file", one, one) for one in texts]
        assert ids(steps(llm, request(*answers, *files, temperature=temperature, seed=seed))) == plain


def test_a_request_without_references_lets_the_look_up_forget_them(llm: LLM) -> None:
    steps(llm, request(Reference("file", "a.txt", "the fox")))
    assert corpora(llm)
    steps(llm, request())
    assert not corpora(llm)
    assert not llm._model._references._known


# --- the encoding


class Counting(Prompter):
    """Counts what is encoded."""

    def __init__(self) -> None:
        from localspec.models.chat_template import ChatTemplate

        tokens = {"eos_token": "<|im_end|>"}
        super().__init__(gpt2_like(), name="x", template=ChatTemplate(CHATML, name="x", special_tokens=tokens))
        self.asked = Counter[str]()

    def chat(self, messages: Sequence[Message]) -> list[int]:
        self.asked["chat"] += 1
        return super().chat(messages)

    def words(self, before: Sequence[Message], answer: str) -> list[int]:
        self.asked[answer] += 1
        return super().words(before, answer)


@pytest.fixture
def prompter() -> Counting:
    return Counting()


def named(*references: Reference) -> GenerateRequest:
    return GenerateRequest(QUESTION, references=references)


def test_an_unchanged_text_is_encoded_once_as_long_as_it_is_named(prompter: Counting) -> None:
    one, other = Reference("file", "a", "the fox"), Reference("branch", "b", "the dog", QUESTION)
    known = References()
    for _ in range(3):
        assert len(known.texts(named(one, other), prompter)) == 2
    assert prompter.asked == {"\nthe fox": 1, "the dog": 1, "chat": 1}
    known.texts(named(one), prompter)
    known.texts(named(one, other), prompter)
    assert prompter.asked == {"\nthe fox": 1, "the dog": 2, "chat": 2}


def test_an_answers_ids_are_those_of_the_chat(prompter: Counting) -> None:
    (found,) = References().texts(named(Reference("branch", "b", "the dog", QUESTION)), prompter)
    whole = prompter.chat((*QUESTION, Message("assistant", "the dog")))
    opening = prompter.chat(QUESTION)
    assert list(found.ids) == [*opening[-LONGEST:], *whole[len(opening) : len(opening) + len(found.ids) - LONGEST]]


def test_a_question_is_folded_as_it_was_when_it_was_asked(prompter: Counting) -> None:
    folding = Folding(KnownWords.parse("fox\njumps\nplease"))
    asked = (Message("user", "FOX JUMPS PLEASE"),)
    (found,) = References(folding).texts(named(Reference("branch", "b", "dog", asked)), prompter)
    (same,) = References().texts(named(Reference("branch", "b", "dog", folding.messages(asked))), prompter)
    assert folding.messages(asked) != asked
    assert found.ids == same.ids


def test_all_texts_together_are_bounded_kept_chats_first(prompter: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDS", 50)
    texts = [
        Reference("chat", "c", "fox " * 40),
        Reference("file", "f", "dog " * 30),
        Reference("file", "g", "x " * 90),
    ]
    found = References().texts(named(*texts), prompter)
    assert sum(len(one.ids) for one in found) == 50
    assert [one.name for one in found] == ["g", "f"]  # the newest last


def test_a_text_that_cannot_be_encoded_is_left_out_and_a_cancel_is_none(
    prompter: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fault: Exception) -> None:
        def words(*_: object) -> list[int]:
            raise fault

        monkeypatch.setattr(prompter, "words", words)

    fail(CheckpointError("no"))
    (found,) = References().texts(named(Reference("file", "a", "fox")), prompter)
    assert found.ids == []
    fail(Cancelled("stop"))
    with pytest.raises(Cancelled):
        References().texts(named(Reference("file", "a", "fox")), prompter)


def test_what_is_remembered_of_written_answers_is_bounded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IDS", 130)
    for seed in range(3):
        steps(llm, request(temperature=1.0, seed=seed))
        llm._model._references.begin()
        assert sum(map(len, llm._model._references._written.values())) <= 130


def test_an_answer_that_was_stopped_ends_as_before(llm: LLM) -> None:
    stopped = llm.answer(request(Reference("file", "a", "the fox")))
    events = [event for event in stopped if isinstance(event, Step) and (stopped.cancel() or True)]
    assert len(events) == 1
    assert any(isinstance(event, Done) for event in llm.answer(request()))
