"""One tree of errors: each with a code, an exit code and advice; and no foreign exception crosses a room's door."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch

import localspec
from localspec.core import errors
from localspec.core.errors import CheckpointError, DoesNotFit, EngineError, LocalspecError, UsageError, error_of
from localspec.core.events import Step
from localspec.engine.cache import Cache
from localspec.engine.decoder import Decoder
from localspec.loading import sources
from localspec.loading import torch as loader
from localspec.runtime.api import LLM, load
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

EXIT_CODES = {  # docs/cli.md
    "CheckpointError": 1,
    "HistoryError": 1,
    "NoSuchChat": 3,
    "NoChatTemplate": 1,
    "EngineError": 1,
    "EngineDied": 1,
    "UsageError": 2,
    "CatalogError": 2,
    "NotDownloaded": 3,
    "AccessDenied": 4,
    "DoesNotFit": 5,
    "ContextOverflow": 5,
    "IncompatiblePair": 6,
    "Divergence": 6,
    "PullError": 7,
    "HubAway": 7,
    "RemoteError": 7,
    "Cancelled": 130,
}


def subclasses(of: type[LocalspecError]) -> list[type[LocalspecError]]:
    return [each for direct in of.__subclasses__() for each in (direct, *subclasses(direct))]


KINDS = [kind for kind in subclasses(LocalspecError) if kind.__module__.startswith("localspec")]


def test_the_tree_is_the_table_of_exit_codes():
    assert {kind.__name__: kind.exit_code for kind in KINDS} == EXIT_CODES


def test_the_docstring_draws_the_whole_tree():
    drawn = re.findall(r"[├└]── (\w+) +(\d+)", errors.__doc__ or "")
    assert {name: int(code) for name, code in drawn} == EXIT_CODES


def test_every_error_can_be_had_from_the_package_itself():
    for kind in (LocalspecError, *KINDS):
        assert kind.__name__ in localspec.__all__
        assert getattr(localspec, kind.__name__) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_says_who_sees_it_and_what_to_do(kind: type[LocalspecError]):
    assert kind.__doc__
    assert kind.__doc__ != LocalspecError.__doc__
    assert kind.code != LocalspecError.code
    assert kind.code in kind.__dict__.values(), "inherits its parent's code"
    assert re.fullmatch(r"[a-z_]+", kind.code)


def test_codes_are_different():
    assert len({kind.code for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_crossed_a_pipe_is_raised_as_its_own_kind(kind: type[LocalspecError]):
    again = error_of(kind.code, "The hub is silent.", hint="Repeat it.")
    assert type(again) is kind
    assert (again.message, again.hint) == ("The hub is silent.", "Repeat it.")


def test_an_error_of_an_unknown_code_is_one_of_ours():
    assert type(error_of("of a later version", "No.")) is LocalspecError


def test_an_error_reads_as_its_message_and_its_hint():
    error = UsageError("It is wrong.", hint="Type it again.")
    assert (str(error), error.message, error.hint) == ("It is wrong. Type it again.", "It is wrong.", "Type it again.")
    assert str(UsageError("It is wrong.")) == "It is wrong."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>")


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4611686018427387904 bytes. Error code 12 (Cannot allocate memory)"
)

FAULTS: dict[str, tuple[object, str, BaseException, type[LocalspecError]]] = {
    "safetensors at opening": (
        sources, "safe_open", safetensors.SafetensorError("header too small"), CheckpointError
    ),
    "the disk at opening": (sources, "safe_open", OSError(5, "Input/output error"), CheckpointError),
    "a file that is gone": (sources, "safe_open", FileNotFoundError(2, "No such file"), CheckpointError),
    "memory for weights": (loader.Assembly, "layer", torch.OutOfMemoryError("CUDA out of memory"), DoesNotFit),
    "memory for weights, in Python": (loader.Assembly, "layer", MemoryError(), DoesNotFit),
    "memory for weights, on a CPU": (loader.Assembly, "layer", RuntimeError(CPU_OOM), DoesNotFit),
    "memory for the cache": (Cache, "__init__", torch.OutOfMemoryError("CUDA out of memory"), DoesNotFit),
    "memory for the cache, on a CPU": (Cache, "__init__", RuntimeError(CPU_OOM), DoesNotFit),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_libraries_raise_while_loading_becomes_one_of_ours(
    fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    place, name, error, kind = FAULTS[fault]
    monkeypatch.setattr(place, name, raising(error))
    with pytest.raises(LocalspecError) as met:
        load(str(folder), draft="off", quant="fp32")
    assert type(met.value) is kind
    assert met.value.hint
    assert met.value.__cause__ is error
    assert "\n" not in str(met.value)


def test_what_torch_says_when_a_cpu_has_no_memory_is_what_we_planted():
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(1 << 60, dtype=torch.float32)


def test_our_own_mistakes_are_not_called_anything_else(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loader.Assembly, "layer", raising(RuntimeError("shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        load(str(folder), draft="off", quant="fp32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there_is_a_usage_error(folder: Path):
    with pytest.raises(UsageError, match="cuda"):
        load(str(folder), draft="off", device="cuda")


@pytest.fixture
def llm(folder: Path) -> Iterator[LLM]:
    with load(str(folder), draft="early-exit:1", k=2, quant="fp64") as opened:
        yield opened


@pytest.mark.sampled(4)
@pytest.mark.parametrize("round", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU_OOM), MemoryError()],
    ids=lambda e: type(e).__name__,
)
def test_memory_that_runs_out_in_an_answer_keeps_the_text_and_the_next_turn_works(
    llm: LLM, round: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
):
    prompt = "the quick brown fox"
    whole = llm.generate(prompt, max_tokens=24, temperature=0).text
    real, calls = Decoder.forward, []

    def forward(self: Decoder, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > round:
            raise error
        return real(self, *args, **kwargs)

    text = ""
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "forward", forward)
        with pytest.raises(EngineError) as met:  # noqa: PT012 - the text so far is the point
            for event in llm.stream(prompt, max_tokens=24, temperature=0):
                text += event.text if isinstance(event, Step) else ""
    assert met.value.__cause__ is error
    assert whole.startswith(text)
    assert text or round == 1
    assert llm.generate(prompt, max_tokens=24, temperature=0).text == whole


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'"x"', b"\x00" * 64], ids=repr)
def test_a_damaged_file_is_a_checkpoint_error_that_names_it(name: str, content: bytes, folder: Path, tmp_path: Path):
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(content if file.name == name else file.read_bytes())
    with pytest.raises(CheckpointError) as met:
        load(str(copy), draft="off")
    assert name in str(met.value)


@pytest.mark.parametrize(
    "template", ["{{ nothing.of.this }}", "{% for x in %}", "{{ 1 / 0 }}", "{{ messages[99] + 1 }}"]
)
def test_a_broken_template_is_a_checkpoint_error(template: str, folder: Path, tmp_path: Path):
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(CheckpointError, match="template"), load(str(copy), draft="off") as llm:
        llm.generate([{"role": "user", "content": "hi"}], max_tokens=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("it broke.\nhere is more", "it broke"),
        (
            "Class validation error for 'a':\n    ValueError: 5 is odd.\nsee b",
            "Class validation error for 'a': ValueError: 5 is odd",
        ),
        ("first:\nsecond:\nthird", "first: second: third"),
        ("nothing follows:", "nothing follows:"),
        ("", "ValueError"),
    ],
)
def test_a_line_that_ends_in_a_colon_is_not_all_that_a_fault_says(text: str, says: str):
    assert errors.first_line(ValueError(text)) == says
