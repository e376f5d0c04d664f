"""An answer that repeats itself is found where it does, and nothing else is taken for one. No screen, no model."""

from __future__ import annotations

import pytest

from localspec.tui.chat.repetition import (
    LONG,
    LONG_TIMES,
    LONGEST,
    SIGNS_SPAN,
    TIMES,
    WINDOW,
    Repetition,
    candidates,
    repeated,
)

SENTENCE = "The colour of the sky is blue, and the colour of the sea is blue. "


def stops_after(text: str, *, in_code: bool = False, size: int = 1) -> int | None:
    """After how many characters the answer would be stopped, when it comes in pieces of this size."""
    watched = Repetition()
    for start in range(0, len(text), size):
        if watched.add(text[start : start + size], in_code=in_code):
            return start + size
    return None


@pytest.mark.parametrize(
    "phrase",
    [
        "I am a robot.\n",
        "- Red is a colour\n\n",
        "and so on, ",
        "very ",
        SENTENCE,
        "\u6211\u559c\u6b22\u4f60",  # no blanks between words
        "\u30c6\u30b9\u30c8\u3067\u3059\u3002",
        "| red | red |\n",
        "x" + "a line of as many letters as may be " * 5 + "and more to come.\n",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_same_line_or_phrase_eight_times_stops(phrase: str, size: int):
    assert len(phrase) <= LONG
    stopped = stops_after("Here it is: " + phrase * 40, size=size)
    assert stopped is not None
    assert stopped <= len("Here it is: ") + TIMES * len(phrase) + size
    assert stops_after("Here it is: " + phrase * (TIMES - 1)) is None


def test_the_longest_phrase_is_found_and_a_longer_one_is_not():
    words = "".join(f"word{number} " for number in range(100, 300))
    assert stops_after(words[:LONGEST] * LONG_TIMES) == LONGEST * LONG_TIMES
    assert stops_after(words[: LONGEST + 1] * 2 * LONG_TIMES) is None


@pytest.mark.parametrize("length", [LONG + 1, 333, LONGEST])
@pytest.mark.parametrize("size", [1, 7])
def test_a_paragraph_needs_fewer_times(length: int, size: int):
    paragraph = "".join(f"word{number} " for number in range(100, 300))[:length]
    stopped = stops_after("It begins: " + paragraph * 20, size=size)
    assert stopped is not None
    assert stopped <= len("It begins: ") + LONG_TIMES * length + size
    assert stops_after("It begins: " + paragraph * (LONG_TIMES - 1) + "The end.") is None


@pytest.mark.parametrize(
    "line",
    [
        "{n}. A point of the list\n",
        "{n}) the same\n",
        "{n}. **Red:** it is red\n\n",
        "  {n}. A point\n      and more\n",
    ],
)
@pytest.mark.parametrize("first", [1, 7, 96])
def test_numbered_lines_that_repeat_stop_though_their_numbers_do_not(line: str, first: int):
    lines = [line.format(n=number) for number in range(first, first + 40)]
    stopped = stops_after("Here they are:\n" + "".join(lines))
    assert stopped is not None
    assert stopped <= len("Here they are:\n" + "".join(lines[: TIMES + 1]))
    assert stops_after("Here they are:\n" + "".join(lines[: TIMES - 1])) is None


@pytest.mark.parametrize("phrase", ["ha ", "no, ", "I see. ", "Yes!\n"])
def test_seven_times_are_an_emphasis(phrase: str):
    assert stops_after("She said " + phrase * (TIMES - 1) + "and went.") is None


@pytest.mark.parametrize(
    "text",
    [
        "Nooooooooooooooooo!",
        "\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\uff01",  # a laugh
        " " * 400,
        "\n" * 400,
        " \n" * 200,
        "-" * 200 + "\n" + "=" * 200,
        "|---" * 30 + "|\n",
        "| | | " * 40,
        "0, " * 200,
        "1" * 300,
        "* * * " * 30,
        "| :---: " * 60,
        "=" * 400 + "\n" + "~" * 400 + "\n" + "_" * 400 + "\n" + "." * 400,
        "+-----" * 80 + "+\n",
        "\u2500" * 400 + "\n" + "\u2588" * 400 + "\n" + "\u25a0 " * 200,
        "\U0001f389" * 200,
        "".join(f"| {number} | {number * number} | a row |\n" for number in range(60)),
        "".join(f"{number}. Yes\n" for number in range(40)),
        "".join(f"{number}. Point {chr(ord('a') + number % 26)} of the list\n" for number in range(40)),
        "".join(f"In {number} there were fewer.\n" for number in range(1900, 1940)),
        "".join(f"- The colour {chr(letter)} is one of them\n" for letter in range(ord("a"), ord("z"))),
        "",
    ],
)
def test_blanks_rules_numbers_tables_and_lists_do_not_stop(text: str):
    assert stops_after(text) is None
    assert stops_after(text, in_code=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "]\n" * 60,
        "}\n" * 60,
        "  },\n" * 60,
        "</div>\n" * 30,
        "<td></td>\n" * 30,
        "end\n" * 30,
        "False, " * 60,
        "0x00, " * 60,
        r"\x00" * 60,
        "".join(f"    self.value{number} = value{number}\n" for number in range(60)),
        "".join(f"    case {number}: return {number + 1};\n" for number in range(60)),
    ],
)
def test_code_whose_lines_are_alike_does_not_stop(text: str):
    assert stops_after(text, in_code=True) is None


def test_code_that_is_one_line_over_and_over_stops():
    line = "    return palindrome(text)\n"
    assert stops_after(line * 20, in_code=True) == TIMES * len(line)


@pytest.mark.parametrize(
    "phrase", ["\U0001f468", "\U0001f389 \u2728", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f\n", "!"]
)
@pytest.mark.parametrize("size", [1, 7])
def test_emoji_without_end_stop_and_rows_of_them_do_not(phrase: str, size: int):
    stopped = stops_after("So many: " + phrase * 400, size=size)
    assert stopped is not None
    assert stopped <= len("So many: ") + SIGNS_SPAN + len(phrase) + size
    assert stops_after("So many: " + (phrase * SIGNS_SPAN)[: SIGNS_SPAN - 1] + " It was a good day.") is None
    assert stops_after(phrase * 400, in_code=True) is None


def test_what_went_on_anyway_goes_on_and_another_loop_stops():
    so_far = "Well. " + SENTENCE * TIMES
    assert repeated(so_far)
    watched = Repetition(so_far)
    assert not any(watched.add(letter, in_code=False) for letter in SENTENCE * 20)
    assert any(watched.add(letter, in_code=False) for letter in "I am a robot.\n" * 20)


def test_an_answer_that_was_cut_within_a_loop_stops_when_the_loop_is_whole():
    watched = Repetition(SENTENCE * (TIMES - 1))
    assert not watched.add(SENTENCE[:-2], in_code=False)
    assert watched.add(SENTENCE[-2:], in_code=False)


@pytest.mark.parametrize("text", ["a" * 9000, "ab" * 5000, "-" * 9000, SENTENCE * 200, "word " * 3000])
def test_a_step_costs_the_same_however_long_the_answer_is(text: str):
    """Only the window is kept, and at most so many distances are tried."""
    watched = Repetition()
    watched.add(text, in_code=False)
    assert len(watched._tail) <= WINDOW
    assert len(list(candidates(watched._tail))) <= LONGEST
