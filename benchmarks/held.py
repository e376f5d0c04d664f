"""Reads what each format keeps of a model's weights, as float32 tensors, and its bytes: ours, nf4, llama.cpp's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks.llama_cpp.gguf_file import write_gguf
from benchmarks.llama_cpp.quantiser import quantise, read_floats
from benchmarks.models import EMBEDDING, HEAD, Model, untied
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.pack import unpack
from localspec.engine.cpu.program import load
from localspec.loading.cpu import Packer
from localspec.loading.cpu_layout import LINEARS, Blueprint
from localspec.loading.sources import StateDictSource, WeightReader

LLAMA_CPP = ("Q8_0", "Q6_K", "Q4_K_M", "Q4_0")
NF4_BITS = 4 + 32 / 64  # float32 scales of 64
BYTES = 2  # of a bfloat16
MIXED = LINEARS[: LINEARS.index("output")]  # queries, keys and values; all but the last fill their blocks
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Held:
    """`tensors` have a head of their own; `num_bytes` counts a tied one once, and everything else too."""

    name: str
    tensors: Mapping[str, Tensor]
    num_bytes: float


def packed(model: Model, kind: PackedFormat) -> tuple[Blueprint, Tensors]:
    """Weights as the engine's own packer makes them."""
    blueprint = Blueprint(model.arch, kind)
    packer = Packer(blueprint, WeightReader(StateDictSource(model.tensors)), load(choose()))
    for _ in packer.pieces():
        pass
    return blueprint, packer.made


def ours(model: Model, kind: PackedFormat) -> Held:
    blueprint, made = packed(model, kind)
    return Held(kind, read_back(blueprint, made), blueprint.num_bytes)


def read_back(blueprint: Blueprint, made: Mapping[str, Tensor]) -> Tensors:
    """Pieces to tensors as checkpoints name them: heads, gates and widths as they were before the packer laid them out.
    Of models without biases."""
    arch, head = blueprint.arch, blueprint.head
    hidden, inner, heads = arch.hidden_size, arch.intermediate_size, arch.num_heads
    parts = [count * arch.head_dim for count in (heads, arch.num_kv_heads, arch.num_kv_heads)]

    def weight(name: str) -> Tensor:
        kind = blueprint.pieces[name].weight_format
        assert kind is not None
        return unpack(made[name], kind)

    embedding = weight("embedding")[: arch.vocab_size, :hidden]
    table = embedding if blueprint.shares_head else weight("head")[: arch.vocab_size, :hidden]
    found = {EMBEDDING: embedding, HEAD: table, "model.norm.weight": made["norm"][:hidden]}
    for index in range(arch.num_layers):
        at = f"model.layers.{index}"
        every = torch.cat([weight(f"{index}.{name}") for name in MIXED])[: blueprint.heads * head, :hidden]
        mixed = every.view(blueprint.heads, head, hidden)
        queries, keys, values = torch.split(mixed[:, : arch.head_dim].reshape(-1, hidden), parts)
        output = weight(f"{index}.output")[:hidden, : heads * head].reshape(hidden, heads, head)
        gated = weight(f"{index}.gate_up")[: 2 * blueprint.inner].view(-1, 2, 16, blueprint.hidden)
        gate, up = (gated[:, place].flatten(0, 1)[:inner, :hidden] for place in (0, 1))
        found |= {
            f"{at}.input_layernorm.weight": made[f"{index}.attention_norm"][:hidden],
            f"{at}.self_attn.q_proj.weight": queries,
            f"{at}.self_attn.k_proj.weight": keys,
            f"{at}.self_attn.v_proj.weight": values,
            f"{at}.self_attn.o_proj.weight": output[..., : arch.head_dim].flatten(1),
            f"{at}.post_attention_layernorm.weight": made[f"{index}.mlp_norm"][:hidden],
            f"{at}.mlp.gate_proj.weight": gate,
            f"{at}.mlp.up_proj.weight": up,
            f"{at}.mlp.down_proj.weight": weight(f"{index}.down")[:hidden, :inner],
        }
    return found


def nf4(model: Model, *, head: bool) -> Held:
    """bitsandbytes' blocks of 64, as transformers has them: all that is no linear in bfloat16, and the head too unless
    it is asked for, which takes a copy of a tied one."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    _, tensors = untied(model.arch, model.tensors)
    found, num_bytes = Tensors(), 0.0
    for name, tensor in tensors.items():
        if "_proj." in name or (head and name == HEAD):
            found[name] = dequantize_4bit(*quantize_4bit(tensor.contiguous(), blocksize=64, quant_type="nf4"))
            num_bytes += tensor.numel() * NF4_BITS / 8
        else:
            found[name] = tensor.bfloat16().float()
            num_bytes += tensor.numel() * BYTES if name in model.tensors else 0
    return Held("bitsandbytes nf4" + (", head too" if head else ""), found, num_bytes)


def llama_cpp(model: Model, kinds: Sequence[str] = LLAMA_CPP) -> Iterator[Held]:
    """Each of its formats, made by its own quantiser from a file of the same float32 weights."""
    with TemporaryDirectory() as folder:
        floats = Path(folder) / "floats.gguf"
        write_gguf(floats, model.arch, StateDictSource(model.tensors), "F32")
        for kind in kinds:
            yield of_llama_cpp(model, floats, kind)


def of_llama_cpp(model: Model, floats: Path, kind: str) -> Held:
    file = floats.with_name(f"{kind}.gguf")
    quantise(floats, file, kind)
    tensors, num_bytes = read_floats(file, model.arch.head_dim)
    file.unlink()
    _, whole = untied(model.arch, tensors)
    return Held(f"llama.cpp {kind}", whole, num_bytes)


def exact(model: Model) -> Held:
    _, tensors = untied(model.arch, model.tensors)
    return Held("fp32", tensors, 4 * model.num_weights)
