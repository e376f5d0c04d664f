"""Log-probabilities of tokens as OpenAI's two kinds of answer have them. Knows only records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # Any: JSON

from localspec.core.events import Likely, Token
from localspec.models.detokenize import REPLACEMENT


def chat_logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    """A chat completion's."""
    known = [token.logprobs for token in tokens if token.logprobs]
    content = [{**spelled(own), "top_logprobs": [spelled(one) for one in others]} for own, *others in known]
    return {"content": content, "refusal": None}


def spelled(one: Likely) -> dict[str, Any]:
    """A token with its bytes; None where its text is only a part of a character."""
    content = None if REPLACEMENT in one.text else list(one.text.encode())
    return {"token": one.text, "logprob": one.logprob, "bytes": content}


def completion_logprobs(tokens: Sequence[Token], before: int) -> dict[str, Any]:
    """A completion's; `before`: characters of the answer before these tokens."""
    known = [token for token in tokens if token.logprobs]
    offsets, at = list[int](), before
    for token in tokens:
        offsets += [at] if token.logprobs else []
        at += len(token.text)
    return {
        "tokens": [token.logprobs[0].text for token in known],
        "token_logprobs": [token.logprobs[0].logprob for token in known],
        "top_logprobs": [{one.text: one.logprob for one in token.logprobs[1:]} for token in known],
        "text_offset": offsets,
    }
