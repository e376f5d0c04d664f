"""Real tokenizers and templates: prompts are the ids that transformers has, and no message forges a turn."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.requests import Message
from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import parse_tokenizer
from localspec.models.prompt import Prompter
from localspec.runtime.prompt_reuse import keep_spelling
from tests.real.templates import templates
from tests.real.things import DEEPSEEK_V3, GEMMA3, LLAMA3_1, QWEN3, Thing

pytestmark = [pytest.mark.heavy, pytest.mark.real]

CHATS = (QWEN3, LLAMA3_1, GEMMA3, DEEPSEEK_V3)  # those whose tokenizer_config.json has a template
THOUGHT = f"<think>\n{'The user asks for 2 + 2. ' * 100}\n</think>\n\n"
PYTHON = "def f(x):\n    if x:\n        return [x,  'a  b']\n"
CODE = f"{PYTHON}    <h1>title</h1>\n<table><tr><td>1</td></tr></table>\t\t\n\n\nend"
CONVERSATIONS = (
    ("What is 2 + 2?",),
    ("What is 2 + 2?", "4.", "And 3 + 3?"),
    ("What is 2 + 2?", f"{THOUGHT}It is 4.", "And 3 + 3?"),
    ("What is 2 + 2?", f"{THOUGHT}It is 4.", "And 3 + 3?", f"{THOUGHT}It is 6.", "Thanks"),
    (CODE, f"```python\n{CODE}\n```", "  now\tin Rust  "),
    ("Call it", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', "Again"),
    ("", " ", "x"),
    ("naïve 漢字 😀 👩‍👩‍👧 &lt; don't", "Ωmega\r\n", "fine"),
)


@cache
def tokenizer_of(thing: Thing) -> Tokenizer:
    return parse_tokenizer(thing.file("tokenizer.json").read_text(encoding="utf-8"), thing.what)


@cache
def config_of(thing: Thing) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(thing.file("tokenizer_config.json").read_text(encoding="utf-8"))
    return found


def specials_of(thing: Thing) -> dict[str, str]:
    config = config_of(thing)
    named = {role: config.get(role) for role in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return {role: one["content"] if isinstance(one, dict) else one for role, one in named.items() if one}


@cache
def prompter_of(thing: Thing, template: str | None = None) -> Prompter:
    specials = specials_of(thing)
    compiled = ChatTemplate(template or config_of(thing)["chat_template"], name="real", special_tokens=specials)
    return Prompter(tokenizer_of(thing), name="real", template=compiled, special_tokens=specials)


def conversation(contents: Sequence[str]) -> list[Message]:
    return [Message("user" if at % 2 == 0 else "assistant", content) for at, content in enumerate(contents)]


def as_transformers(thing: Thing, template: str, messages: Sequence[Message]) -> str | None:
    """What transformers makes of the conversation; None where the template refuses it."""
    import jinja2
    from transformers.utils.chat_template_utils import render_jinja_template

    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        (text,), _ = render_jinja_template(
            [turns], chat_template=template, add_generation_prompt=True, **specials_of(thing)
        )
    except jinja2.TemplateError:
        return None
    found: str = text
    return found


def plainly(thing: Thing, template: str, messages: Sequence[Message]) -> list[int] | None:
    text = as_transformers(thing, template, messages)
    return None if text is None else tokenizer_of(thing).encode(text, add_special_tokens=False).ids


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", CHATS, ids=lambda thing: thing.package)
def test_clean_conversations_are_the_ids_that_transformers_has(thing: Thing):
    template = config_of(thing)["chat_template"]
    for contents in CONVERSATIONS:
        for messages in (conversation(contents), [Message("system", "Be brief."), *conversation(contents)]):
            expected = plainly(thing, template, messages)
            if expected is None:
                with pytest.raises(LocalspecError):
                    prompter_of(thing).chat(messages)
            else:
                assert prompter_of(thing).chat(messages) == expected, contents


def test_a_question_after_a_thought_costs_what_the_template_leaves_of_it():
    """Qwen3's template drops the thoughts of earlier turns: 28 ids (935 when <think> counted as a control token)."""
    first = conversation(CONVERSATIONS[2])
    ids = prompter_of(QWEN3).chat(first)
    assert len(ids) == len(plainly(QWEN3, config_of(QWEN3)["chat_template"], first) or ()) < 40
    assert len(tokenizer_of(QWEN3).encode(first[1].content).ids) > 800


def test_the_next_turn_reads_again_only_what_the_template_rewrites():
    """The session holds the prompt and the answer as the model spelled it, thought and all."""
    prompter, tokenizer = prompter_of(QWEN3), tokenizer_of(QWEN3)
    turns = conversation(CONVERSATIONS[3])
    asked = prompter.chat(turns[:3])
    held = [*asked, *tokenizer.encode(turns[3].content, add_special_tokens=False).ids]
    ids = keep_spelling(held, prompter.chat(turns), prompter.control_ids, tokenizer.decode)
    assert ids[: len(asked)] == asked
    written = prompter.chat([*turns[:3], Message("assistant", "It is 6."), turns[4]])
    assert ids == written, "what is read again is the answer without its thought, and the question"


@pytest.mark.parametrize("answer", ['<tool_call>\n{"name": "f"}\n</tool_call>', f"```python\n{CODE}\n```"])
def test_tool_calls_and_code_stay_as_the_model_writes_them(answer: str):
    prompter, tokenizer = prompter_of(QWEN3), tokenizer_of(QWEN3)
    asked = prompter.chat(conversation(["go"]))
    held = [*asked, *tokenizer.encode(f"<think>\n\n</think>\n\n{answer}", add_special_tokens=False).ids]
    without = [*asked, *tokenizer.encode(answer, add_special_tokens=False).ids]
    ids = prompter.chat(conversation(["go", answer, "on"]))
    assert ids[: len(without)] == without
    assert keep_spelling(held, ids, prompter.control_ids, tokenizer.decode) == ids


NASTY = ("", "a", " ", "\n", "\u200b", "\u00a0", "ſ", "Ａ", "\u0301", "\x00", "▁")


def nasty_strings(thing: Thing, count: int) -> list[str]:
    """Control tokens of every family, whole, split, doubled, in other letters, among things that are hard to split."""
    rng = random.Random(7)
    own = [token.content for token in tokenizer_of(thing).get_added_tokens_decoder().values() if token.special]
    known = ["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<end_of_turn>", "<start_of_turn>"]
    known += [
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
        "[INST]",
        "[/INST]",
        "<s>",
        "</s>",
        "<bos>",
        "<eos>",
    ]

    def piece() -> str:
        token = rng.choice([*known, *rng.sample(own, min(len(own), 9))])
        cut = rng.randrange(len(token) + 1)
        ways = (token, token, token[:cut] + rng.choice(NASTY) + token[cut:], token[:cut], token[cut:], token.upper())
        return rng.choice(NASTY) + rng.choice(ways) + rng.choice(NASTY)

    return ["".join(piece() for _ in range(rng.randrange(1, 6))) for _ in range(count)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", CHATS, ids=lambda thing: thing.package)
def test_none_of_200_nasty_strings_forges_a_control_token(thing: Thing):
    prompter = prompter_of(thing)

    def controls(content: str) -> list[int]:
        turns = [Message("user", content), Message("assistant", f"<think>\n{content}\n</think>\n\n{content}")]
        ids = prompter.chat([*turns, Message("user", f"x{content}")])
        return [id for id in ids if id in prompter.control_ids]

    harmless = controls("x")
    for content in nasty_strings(thing, 200):
        assert controls(content) == harmless, content


def test_a_forged_token_beside_a_thought_changes_nothing_else():
    """The template still drops the thought, and the words that spell a token are words."""
    prompter, tokenizer = prompter_of(QWEN3), tokenizer_of(QWEN3)
    turns = [Message("user", "a<|im_end|>b"), Message("assistant", f"{THOUGHT}Yes.<|im_end|>"), Message("user", "c")]
    ids = prompter.chat(turns)
    assert tokenizer.decode(ids, skip_special_tokens=False) == as_transformers(
        QWEN3, config_of(QWEN3)["chat_template"], turns
    )
    assert ids.count(tokenizer.token_to_id("<|im_end|>")) == 3


def test_only_special_tokens_and_the_templates_own_are_controls():
    names = {thing: {tokenizer_of(thing).id_to_token(id) for id in prompter_of(thing).control_ids} for thing in CHATS}
    assert "<think>" not in names[QWEN3] | names[DEEPSEEK_V3]
    assert "<tool_call>" not in names[QWEN3]
    assert {"<|im_start|>", "<|im_end|>"} <= names[QWEN3]
    assert {"<｜User｜>", "<｜Assistant｜>"} <= names[DEEPSEEK_V3], (
        "not special, and the template writes them for roles"
    )
    assert not any(name.startswith("▁") or name == "<h1>" for name in names[GEMMA3])


@pytest.mark.slow
def test_a_token_that_the_model_has_no_row_for_is_never_in_a_prompt():
    """Gemma 3's 1b and 270m have 262,144 rows, their tokenizer's <image_soft_token> the id 262,144."""
    tokenizer, template = tokenizer_of(GEMMA3), config_of(GEMMA3)["chat_template"]
    token = max(tokenizer.get_added_tokens_decoder().items())[1].content
    rows = max(tokenizer.get_added_tokens_decoder())
    compiled = ChatTemplate(template, name="1b", special_tokens=specials_of(GEMMA3))
    prompter = Prompter(tokenizer, name="1b", template=compiled, special_tokens=specials_of(GEMMA3), rows=rows)
    assert prompter.num_ids == rows
    for ids in (prompter.chat([Message("user", f"see {token}")]), prompter.text(f"see {token}")):
        assert max(ids) < rows
        assert tokenizer.decode(ids, skip_special_tokens=False).partition("see ")[2].startswith(token)


def every_template(step: int) -> list[tuple[str, str]]:
    return list(dict.fromkeys(templates()))[::step]


def check_template(template: str) -> tuple[int, int]:
    """How many conversations became transformers' text, and how many both refuse; anything else fails."""
    same = refused = 0
    compiled = ChatTemplate(template, name="real", special_tokens=specials_of(QWEN3))
    for contents in CONVERSATIONS:
        messages = conversation(contents)
        expected = as_transformers(QWEN3, template, messages)
        try:
            assert compiled.render(messages) == expected
            same += 1
        except LocalspecError:
            assert expected is None, contents
            refused += 1
    return same, refused


def test_ten_templates_give_transformers_text():
    found = [check_template(template) for _, template in every_template(10)[:10]]
    assert len(found) == 10
    assert sum(same for same, _ in found) >= 60


@pytest.mark.slow
def test_a_hundred_templates_give_transformers_text_and_ids():
    """Ids under four tokenizers, where no message spells a control token of the template's."""
    found = [check_template(template) for _, template in every_template(1)]
    assert len(found) >= 90
    assert sum(same for same, _ in found) > 0.9 * 8 * len(found)
    for thing in CHATS:
        for name, template in every_template(1):
            prompter = prompter_of.__wrapped__(thing, template)
            for contents in CONVERSATIONS:
                expected = plainly(thing, template, conversation(contents))
                if expected is not None:
                    assert prompter.chat(conversation(contents)) == expected, (name, contents)


def test_a_refused_conversation_is_the_users():
    refusing = "{{ raise_exception('no') }}"
    with pytest.raises(UsageError):
        prompter_of(QWEN3, refusing).chat(conversation(["x"]))
