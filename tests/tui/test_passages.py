"""An answer's text in passages: thoughts apart, what is said cut where a block ended, however it is cut into tokens."""

from __future__ import annotations

import random

import pytest

from localspec.tui.markdown.passages import CUT_CHARACTERS, Passages

LONG = "word " * (CUT_CHARACTERS // 5 + 1)


def shown(passages: Passages) -> list[tuple[bool, str]]:
    return [(passage.is_thought, passage.text) for passage in passages]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello.", [(False, "Hello.")]),
        ("<think>\nHm.\n</think>\n\nYes.", [(True, "\nHm.\n"), (False, "\n\nYes.")]),
        ("  <think>a</think>b", [(True, "a"), (False, "b")]),
        ("Yes.\n<think>wait</think>No.\n", [(False, "Yes.\n"), (True, "wait"), (False, "No.\n")]),
        ("<think>never ended", [(True, "never ended")]),
        ("<think>cut in its </thi", [(True, "cut in its </thi")]),
        ("The tag <think> in a line", [(False, "The tag <think> in a line")]),
        ("```\n<think>\n```\n<think>x</think>", [(False, "```\n<think>\n```\n"), (True, "x")]),
        ("````\n```\n<think>\n````\n", [(False, "````\n```\n<think>\n````\n")]),
        ("- ~~~py\n  <think>\n  ~~~\n", [(False, "- ~~~py\n  <think>\n  ~~~\n")]),
        ("```a``` is code\n<think>x</think>", [(False, "```a``` is code\n"), (True, "x")]),
        ("<thin", [(False, "<thin")]),
        ("</think>", [(False, "</think>")]),
        ("", []),
    ],
)
def test_thoughts_are_apart_however_the_text_is_cut(text: str, expected: list[tuple[bool, str]]):
    assert shown(Passages(text)) == expected
    rng = random.Random(0)
    for size in (1, 2, 3, 7):
        passages = Passages()
        at = 0
        while at < len(text):
            step = rng.randint(1, size)
            passages.add(text[at : at + step])
            at += step
        passages.end()
        assert shown(passages) == expected, size


def test_a_long_text_is_cut_only_where_a_block_has_ended():
    """Never within code, nor before what may belong to a list above; all of it is there."""
    parts = [f"{LONG}\n\n", f"- {LONG}\n\n  of the item\n\n- next\n\n", f"```\n{LONG}\n\nx\n```\n\n", "End.\n"]
    passages = Passages("".join(parts))
    assert [passage.text for passage in passages] == [parts[0] + parts[1], parts[2], parts[3]]
    assert all(passage.has_ended for passage in passages)


def test_the_tokens_of_a_thought_are_counted_without_its_tags():
    passages = Passages()
    for token in ("<think>", "\n", "a", " b", "</think>", "\n", "c"):
        passages.add(token, num_tokens=1)
    assert [passage.num_tokens for passage in passages] == [3, 0]


def test_code_is_known_to_be_open():
    passages = Passages()
    passages.add("text\n```py\nx = 1\n")
    assert passages.in_code
    passages.add("```\n")
    assert not passages.in_code
    passages.add("<think>\n```\n")
    assert not passages.in_code, "a thought is no code"
