"""The chat templates of `@huggingface/ollama-utils`, read from its source: a list of entries in TypeScript."""

from __future__ import annotations

import json
import re
from functools import cache

from tests.real.things import TEMPLATES

ENTRY = re.compile(r"""model:\s*(?P<model>"[^"]*"|'[^']*'),\s*gguf:\s*(?P<gguf>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")


@cache
def templates() -> tuple[tuple[str, str], ...]:
    """(Model on Ollama, template), in the source's order; a model may come twice."""
    source = TEMPLATES.file("chat-template-automap.ts").read_text(encoding="utf-8")
    return tuple((text(one["model"]), text(one["gguf"])) for one in ENTRY.finditer(source))


def text(literal: str) -> str:
    """What a string of TypeScript stands for."""
    inner = literal[1:-1]
    if literal[0] == "'":
        inner = re.sub(r'\\.|"', lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), inner)
    found: str = json.loads(f'"{inner}"')
    return found
