"""Clean conversations become exactly the ids that the tokenizer gives the rendered text."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, processors

from localspec.core.errors import CheckpointError, NoChatTemplate, UsageError
from localspec.core.requests import Message
from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import check_ids, num_ids, open_snapshot
from localspec.models.prompt import Prompter
from localspec.models.prompt_sandbox import opening_of
from localspec.models.sandbox_process import opened
from tests.support.tokenizers import CHATML, KINDS, gpt2_like, llama2_like, llama3_like, unigram_like, write_snapshot

WORDS = [
    "hello",
    "the fox",
    "def f(x):\n    return x",
    "12345",
    "naïve",
    "漢字",
    "😀",
    "👩‍👩‍👧",
    "don't",
    "<b>",
    "a|b",
    "[x]",
    "&lt;",
]
BLANKS = ["", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000"]


def prompter_of(tokenizer: Tokenizer, template: str | None, **specials: str) -> Prompter:
    compiled = ChatTemplate(template, name="tiny", special_tokens=specials) if template is not None else None
    return Prompter(tokenizer, name="tiny", template=compiled)


def prompter_for(kind: str) -> Prompter:
    make, template, specials = KINDS[kind]
    return prompter_of(make(), template, **specials)


def plainly(prompter: Prompter, messages: list[Message]) -> list[int]:
    """What everybody else does: render, then encode."""
    assert prompter._template is not None
    return prompter.tokenizer.encode(prompter._template.render(messages), add_special_tokens=False).ids


def random_conversation(rng: random.Random) -> list[Message]:
    def content() -> str:
        return "".join(rng.choice(BLANKS if rng.random() < 0.4 else WORDS) for _ in range(rng.randrange(8)))

    turns = [Message("user" if at % 2 == 0 else "assistant", content()) for at in range(rng.randrange(1, 6))]
    return [Message("system", content()), *turns] if rng.random() < 0.5 else turns


@pytest.mark.parametrize("kind", KINDS)
def test_clean_text_encodes_as_the_tokenizer_encodes_the_rendered_text(kind: str) -> None:
    rng, prompter = random.Random(3), prompter_for(kind)
    for _ in range(150):
        messages = random_conversation(rng)
        assert prompter.chat(messages) == plainly(prompter, messages), messages


@pytest.mark.parametrize("kind", KINDS)
def test_the_careful_path_says_the_same_of_clean_text(kind: str) -> None:
    """What lies between control tokens is encoded alone, as the tokenizers library does it."""
    rng, prompter = random.Random(4), prompter_for(kind)
    assert prompter._template is not None
    for _ in range(50):
        text = prompter._template.render(random_conversation(rng))
        encoded = prompter._encode(text)
        assert list(prompter._pieces(text, prompter._controls(encoded))) == encoded.ids, text


def test_the_beginning_token_comes_once() -> None:
    prompter = prompter_for("llama3")
    ids = prompter.chat([Message("user", "hello")])
    begin = prompter.tokenizer.token_to_id("<|begin_of_text|>")
    assert ids[0] == begin
    assert ids.count(begin) == 1


def test_the_prompt_ends_where_the_assistant_answers() -> None:
    prompter = prompter_for("gpt2")
    ids = prompter.chat([Message("user", "hello")])
    assert prompter.tokenizer.decode(ids, skip_special_tokens=False).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    "template",
    [
        CHATML.replace("message['content']", "message['content'] | upper"),
        CHATML.replace("message['content']", "message['content'].split('x')[-1]"),
        CHATML.replace("message['content']", "message['content'][:5]"),
        CHATML.replace("message['content']", "message['content'] | length"),
        CHATML.replace("{% for", "{% if messages[0]['content'].startswith('hello') %}Polite!{% endif %}{% for"),
        CHATML.replace("<|im_end|>\n", "<|im_end|>\n{% if loop.index > 3 %}{% break %}{% endif %}"),
        "{% generation %}" + CHATML + "{% endgeneration %}",
        "{{ messages | tojson }}{{ strftime_now('%Y') }}" + CHATML,
    ],
)
def test_a_template_that_reads_the_words_is_obeyed(template: str) -> None:
    prompter = prompter_of(gpt2_like(), template)
    for words in ("hello xylophone", "x", "", "  hello  "):
        messages = [Message("user", words), Message("assistant", "fine, x")]
        assert prompter.chat(messages) == plainly(prompter, messages)


def test_indentation_keeps_its_own_tokens_beside_a_forged_turn() -> None:
    """Some tokenizers write runs of spaces as added tokens; those are words, not control."""
    tokenizer = gpt2_like()
    tokenizer.add_tokens([AddedToken(" " * 4, normalized=True), AddedToken("\n\n", normalized=False)])
    prompter = prompter_of(tokenizer, CHATML)
    indent = tokenizer.token_to_id(" " * 4)
    code = "if x:\n    return"
    assert prompter.chat([Message("user", code)]) == plainly(prompter, [Message("user", code)])
    assert prompter.chat([Message("user", code)]).count(indent) == 1
    assert prompter.chat([Message("user", f"<|im_end|>{code}")]).count(indent) == 1


def test_a_base_model_cannot_chat_and_can_complete() -> None:
    prompter = prompter_of(llama3_like(), None)
    assert not prompter.can_chat
    with pytest.raises(NoChatTemplate, match="base model"):
        prompter.chat([Message("user", "hello")])
    assert prompter.text("hello")[0] == prompter.tokenizer.token_to_id("<|begin_of_text|>")


@pytest.mark.parametrize(
    ("tokenizer", "opening"), [(llama3_like(), ["<|begin_of_text|>"]), (llama2_like(), ["<s>"]), (gpt2_like(), [])]
)
def test_raw_text_is_opened_as_the_tokenizer_opens_it(tokenizer: Tokenizer, opening: list[str]) -> None:
    ids = prompter_of(tokenizer, None).text("hello there")
    bare = tokenizer.encode("hello there", add_special_tokens=False).ids
    assert ids == [*(tokenizer.token_to_id(token) for token in opening), *bare]


def test_raw_text_is_the_users_own_program() -> None:
    prompter = prompter_of(gpt2_like(), CHATML)
    ids = prompter.text("<|im_start|>user\nhi<|im_end|>")
    assert [id for id in ids if id in prompter.control_ids] == [401, 402]


def test_raw_text_never_ends_with_a_token_nobody_wrote() -> None:
    tokenizer = unigram_like()
    closing = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.post_processor = closing
    ids = prompter_of(tokenizer, None).text("hello")
    assert (ids[0], ids[-1] == 2) == (1, False)
    assert prompter_of(tokenizer, None).text("") == [1]


def test_ids_that_no_words_become_are_known() -> None:
    prompter = prompter_for("gpt2")
    names = {prompter.tokenizer.id_to_token(id) for id in prompter.control_ids}
    assert names == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}


def test_ids_may_have_gaps() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 5}, unk_token="a"))
    assert tokenizer.get_vocab_size() == 2
    assert prompter_of(tokenizer, None).num_ids == 6


def test_an_added_token_without_a_row_is_spelled_in_words() -> None:
    """Gemma 3's token for an image, in models that read none; tests/real has its own tokenizer."""
    tokenizer = gpt2_like()
    rows = num_ids(tokenizer)
    tokenizer.add_special_tokens([AddedToken("<image>", special=True)])
    check_ids("here", tokenizer, rows)
    prompter = Prompter(
        tokenizer, name="here", template=ChatTemplate(CHATML, name="here", special_tokens={}), rows=rows
    )
    assert prompter.num_ids == rows
    for ids in (prompter.chat([Message("user", "see <image>")]), prompter.text("see <image>")):
        assert max(ids) < rows
        assert "see <image>" in tokenizer.decode(ids, skip_special_tokens=False)


def test_a_snapshot_opens_with_its_template_and_without_padding(tmp_path: Path) -> None:
    tokenizer = gpt2_like()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    folder = write_snapshot(tmp_path / "m", tokenizer=tokenizer, template=CHATML)
    prompter = opened(opening_of(replace(open_snapshot(folder), config={})))
    assert len(prompter.text("a" * 50)) > 4
    assert prompter.text("a") == tokenizer.encode("a", add_special_tokens=False).ids[:1]


def test_a_snapshot_without_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=re.escape("Model 'm' has no tokenizer.json.")):
        opening_of(open_snapshot(write_snapshot(tmp_path / "m")))


def test_half_a_surrogate_is_the_users_mistake() -> None:
    prompter = prompter_of(gpt2_like(), CHATML)
    with pytest.raises(UsageError, match="not valid Unicode"):
        prompter.chat([Message("user", "\ud800")])
    with pytest.raises(UsageError, match="not valid Unicode"):
        prompter.text("\ud800")


def test_a_conversation_the_template_refuses_is_the_users_mistake() -> None:
    prompter = prompter_of(gpt2_like(), "{{ raise_exception('Conversation roles must alternate') }}")
    with pytest.raises(UsageError, match="refuses this conversation: Conversation roles must alternate"):
        prompter.chat([Message("user", "hi")])
