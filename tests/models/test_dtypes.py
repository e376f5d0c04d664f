"""Only floats are weights; and weights that say nothing are noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from localspec import load
from localspec.core.errors import CheckpointError, EngineError
from localspec.core.events import Notice
from localspec.models.checkpoint import open_snapshot
from localspec.models.dtypes import in_integers
from tests.support.generic_models import make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

WHOLE = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64)
NO_FLOATS = (*WHOLE, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e8m0fnu)
HI = [{"role": "user", "content": "hello there general"}]
Change = Callable[[Tensor], Tensor]


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save_snapshot(tmp_path / "llama", gpt2_like(), template=CHATML, eos="<|im_end|>")


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    tokenizer = gpt2_like()
    model = make_model("gpt2", vocab_size=tokenizer.get_vocab_size()).float()
    return save_generic(model, tmp_path / "gpt2", tokenizer, chat_template=CHATML, eos_token="<|im_end|>")


def change(folder: Path, *names: str, to: Change) -> None:
    """These tensors, or all of them, as something else."""
    found = load_file(folder / "model.safetensors")
    changed = {name: to(tensor) for name, tensor in found.items() if not names or name in names}
    save_file({**found, **changed}, folder / "model.safetensors", metadata={"format": "pt"})


def add(folder: Path, **tensors: Tensor) -> None:
    file = folder / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})


@pytest.mark.parametrize("dtype", NO_FLOATS, ids=str)
def test_what_is_no_float_is_refused_by_name_before_anything_is_loaded(dtype: torch.dtype, llama: Path, gpt2: Path):
    """In our decoder's families and in transformers': the folder itself does not open."""
    for folder, name in ((llama, "model.layers.1.mlp.up_proj.weight"), (gpt2, "transformer.h.0.attn.c_attn.weight")):
        change(folder, name, to=lambda tensor: tensor.abs().to(dtype))
        with pytest.raises(CheckpointError, match=f"'{name}' is .*, and its config does not say how it is read") as met:
            open_snapshot(folder)
        assert met.value.hint


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_every_float_is_a_weight(dtype: torch.dtype, llama: Path):
    change(llama, to=lambda tensor: tensor.to(dtype))
    with load(str(llama), quant="fp32", draft="off", threads=1) as llm:
        assert llm.generate(HI, max_tokens=2).tokens


def test_tables_that_old_checkpoints_carry_change_nothing(llama: Path, gpt2: Path):
    mask, rope = torch.ones(1, 1, 256, 256), torch.ones(4)
    tables = {
        llama: {"model.layers.0.self_attn.rotary_emb.inv_freq": rope, "model.position_ids": torch.arange(9)[None]},
        gpt2: {"transformer.h.0.attn.bias": mask.bool(), "transformer.h.1.attn.bias": mask.byte()},
    }
    tables[gpt2] |= {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4), "position_ids": torch.arange(9)}
    for folder, more in tables.items():
        with load(str(folder), quant="fp32", draft="off", threads=1) as llm:
            expected = llm.generate(HI, max_tokens=8, temperature=0).text
        add(folder, **more)
        with load(str(folder), quant="fp32", draft="off", threads=1) as llm:
            assert llm.generate(HI, max_tokens=8, temperature=0).text == expected


def test_what_a_method_of_quantising_stores_in_integers_is_known():
    """GPTQ's codes, and bitsandbytes' where their state stands beside them; nothing more."""
    weights = {"a.weight", "a.weight.absmax", "a.weight.quant_state.bitsandbytes__nf4", "b.weight"}
    said = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    assert in_integers(said, weights) == weights - {"b.weight"}
    parts = {"a.qweight", "a.qzeros", "a.g_idx"}
    assert in_integers({"quantization_config": {"quant_method": "gptq"}}, {*parts, "a.scales", "b.weight"}) == parts
    assert in_integers({}, {*weights, *parts}) == set()


FLAT = [("llama", quant, value) for quant in ("int8", "fp32") for value in (0.0, 3e38)]


@pytest.mark.parametrize(("family", "quant", "value"), [*FLAT, ("gpt2", "fp32", 0.0)])
def test_weights_that_say_nothing_are_noticed_once(family: str, quant: str, value: float, llama: Path, gpt2: Path):
    """Zeros, and what overflows in a norm, score every token the same: an answer of nothing would look like success."""
    folder = {"llama": llama, "gpt2": gpt2}[family]
    change(folder, to=lambda tensor: torch.full_like(tensor, value))
    with load(str(folder), quant=quant, draft="off", threads=1) as llm:
        first, second = (list(llm.stream(HI, max_tokens=4)) for _ in range(2))
    (notice,) = [event for event in first if isinstance(event, Notice)]
    assert notice.level == "warning"
    assert f"{family} finds every token equally likely" in notice.message
    assert not [event for event in second if isinstance(event, Notice)]


def test_weights_that_overflow_in_transformers_are_an_error(gpt2: Path):
    change(gpt2, to=lambda tensor: torch.full_like(tensor, 3e38))
    with pytest.raises(EngineError, match="invalid numbers"):
        load(str(gpt2), quant="fp32", draft="off", threads=1)
