"""Records what llama.cpp chooses after every token of a text, on SmolLM2's file: `python -m tests.real.record`.

Into tests/recorded/, where `make test` compares our float32 with it; llama.cpp itself is only needed here (make peers)
and in `make slow`, which records anew and compares. As its users have it: 16-bit keys and values, 8-bit activations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any  # Any: llama_cpp is untyped

import torch

from benchmarks.llama_cpp.library import BATCH, Context, load, require, silence
from benchmarks.models import TECHNICAL
from localspec.core import processor
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

FILE = Path(__file__).parents[1] / "recorded" / "smollm2_llama_cpp.json"
POSITIONS = 2000
CLEAR = 0.2  # between the first two logits: what is nearer, the rounding of one program or processor decides


@dataclass(frozen=True, slots=True)
class Recording:
    """`choices[i]` follows `ids[: i + 1]`; `margins[i]`, in hundredths, is how far its logit is before the second."""

    command: str
    made_with: str
    model: str
    text: str
    text_sha256: str
    ids: list[int]
    choices: list[int]
    margins: list[int]

    def clear(self) -> list[bool]:
        return [margin > 100 * CLEAR for margin in self.margins]


def read() -> Recording:
    return Recording(**json.loads(FILE.read_text(encoding="utf-8")))


def write(found: Recording) -> None:
    """A line for each field."""
    lines = (f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in asdict(found).items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def record(gguf: Path) -> Recording:
    peer, text = require(), TECHNICAL.read_bytes()
    with opened(gguf) as (api, model):
        ids = tokenise(api, model, text)[:POSITIONS]
        choices, margins = teacher_forced(api, model, ids)
    return Recording(
        command="python -m tests.real.record",
        made_with=f"llama-cpp-python {peer}, {processor.name()}",
        model=f"{gguf.name} of {SMOLLM2.package} {SMOLLM2.version}",
        text=TECHNICAL.name,
        text_sha256=hashlib.sha256(text).hexdigest(),
        ids=ids,
        choices=choices,
        margins=margins,
    )


@contextmanager
def opened(gguf: Path) -> Iterator[tuple[Any, Any]]:
    """llama.cpp, and its model of a file."""
    api: Any = import_module("llama_cpp")
    quiet = silence(api)
    api.llama_backend_init()
    model = load(api, gguf)
    try:
        yield api, model
    finally:
        api.llama_model_free(model)
        del quiet


def tokenise(api: Any, model: Any, text: bytes) -> list[int]:
    """By llama.cpp's own tokenizer, without a token that begins a text."""
    room = (api.llama_token * len(text))()
    count = api.llama_tokenize(api.llama_model_get_vocab(model), text, len(text), room, len(room), False, False)
    assert count >= POSITIONS, "the text is too short"
    return list(room[:count])


def teacher_forced(api: Any, model: Any, ids: Sequence[int]) -> tuple[list[int], list[int]]:
    context = Context(api, model, context=len(ids), threads=torch.get_num_threads(), flash=False)
    choices, margins = [], []
    for first in range(0, len(ids), BATCH):
        batch = ids[first : first + BATCH]
        context.read(batch, every=True)
        for row in range(len(batch)):
            top = torch.from_numpy(context.logits(row)).topk(2)
            choices.append(int(top.indices[0]))
            margins.append(round(100 * float(top.values[0] - top.values[1])))
    context.close()
    return choices, margins


def main() -> None:
    found = record(SMOLLM2.folder / SMOLLM2_GGUF)
    write(found)
    print(f"{len(found.ids):,} positions, {sum(found.clear()):,} of them clear, in {FILE}")


if __name__ == "__main__":
    main()
