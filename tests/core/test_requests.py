"""Requests: what is no text is refused where a request is made, before any engine hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.core.errors import UsageError
from localspec.core.requests import GenerateRequest, Message, whole

HALF = "hi \ud800"  # of a character that UTF-16 writes in two


@pytest.mark.parametrize(
    "given", [{"prompt": HALF}, {"messages": (Message("user", HALF),)}, {"prompt": "hi", "stop": ("end", HALF)}]
)
def test_half_a_character_is_refused(given: dict[str, Any]):
    with pytest.raises(UsageError, match="not valid Unicode"):
        GenerateRequest(**given)


def test_every_whole_character_is_text():
    everything = "a\u0000\u00e9\u2028\uffff\U0001f980"
    assert GenerateRequest(prompt=everything).prompt == everything


def test_what_is_typed_loses_no_whole_character():
    assert whole(f"{HALF}\U0001f980") == "hi \ufffd\U0001f980"
    assert whole("\U0001f980") == "\U0001f980"
