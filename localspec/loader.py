"""Checkpoint and plan to a decoder, tensor by tensor from safetensors; peak memory is the weights plus one tensor.

Knows the tensor names of the Llama family. Decides nothing: the plan did. Never runs code from a model.
"""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter

import torch
from torch import Tensor

from localspec.checkpoint import Snapshot
from localspec.drain import drain
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cache import Cache, kv_dtype
from localspec.engine.contract import Layered
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.linear import DTYPES, Dense
from localspec.errors import DoesNotFit, UsageError
from localspec.events import Loading, Notice
from localspec.fit import PACKED, SMALLER, Plan
from localspec.sources import Files, Memory, Reader, Source

__all__ = ["Files", "Memory", "Source", "assemble", "load_decoder", "pick_device"]


class Assembly:
    """Turns a source's tensors into weights of one dtype on one device."""

    def __init__(self, arch: Arch, source: Source, *, dtype: torch.dtype, device: str) -> None:
        self.arch, self.reader, self.dtype, self.device = arch, Reader(source), dtype, device

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self.reader.read(name, *shape).to(device=self.device, dtype=self.dtype, copy=True)

    def fused(self, names: list[str], rows: list[int], inputs: int, *, bias: bool = False) -> Dense:
        """Several linears over the same rows as one."""
        weight = self.empty(sum(rows), inputs)
        for name, part in zip(names, torch.split(weight, rows), strict=True):
            part.copy_(self.tensor(f"{name}.weight", *part.shape))
        offsets = [self.tensor(f"{name}.bias", n) for name, n in zip(names, rows, strict=True)] if bias else []
        return Dense(weight, torch.cat(offsets) if offsets else None)

    def empty(self, outputs: int, inputs: int) -> Tensor:
        """Room for a weight [outputs, inputs]. On a CPU a single row goes a third faster through float32 laid out by
        inputs, and half as fast through bfloat16 (docs/measurements.md)."""
        if self.dtype == torch.bfloat16:
            return torch.empty(outputs, inputs, dtype=self.dtype, device=self.device)
        return torch.empty(inputs, outputs, dtype=self.dtype, device=self.device).t()

    def layer(self, index: int) -> Layer:
        arch, at = self.arch, f"model.layers.{index}"
        q, kv, hidden = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim, arch.hidden_size
        attention, mlp = f"{at}.self_attn", f"{at}.mlp"
        qkv = [f"{attention}.{part}_proj" for part in "qkv"]
        return Layer(
            attention_norm=self.tensor(f"{at}.input_layernorm.weight", hidden),
            qkv=self.fused(qkv, [q, kv, kv], hidden, bias=arch.qkv_bias),
            q_norm=self.tensor(f"{attention}.q_norm.weight", arch.head_dim) if arch.qk_norm else None,
            k_norm=self.tensor(f"{attention}.k_norm.weight", arch.head_dim) if arch.qk_norm else None,
            output=self.fused([f"{attention}.o_proj"], [hidden], q, bias=arch.output_bias),
            mlp_norm=self.tensor(f"{at}.post_attention_layernorm.weight", hidden),
            gate_up=self.fused(
                [f"{mlp}.gate_proj", f"{mlp}.up_proj"], [arch.intermediate_size] * 2, hidden, bias=arch.mlp_bias
            ),
            down=self.fused([f"{mlp}.down_proj"], [hidden], arch.intermediate_size, bias=arch.mlp_bias),
        )

    def weights(self, stage: str, total: int) -> Generator[Loading, None, Weights]:
        """Bytes read so far of `total`, after each layer, with the time that is left; returns the Weights."""
        arch, layers, started = self.arch, [], perf_counter()
        embedding = self.tensor("model.embed_tokens.weight", arch.vocab_size, arch.hidden_size)
        for index in range(arch.num_layers):
            layers.append(self.layer(index))
            done = self.reader.bytes_read
            yield Loading(stage, done, total, "bytes", (perf_counter() - started) / done * (total - done))
        norm = self.tensor("model.norm.weight", arch.hidden_size)
        head = Dense(embedding) if arch.tied_head else self.fused(["lm_head"], [arch.vocab_size], arch.hidden_size)
        self.reader.refuse_unused(tied_head=arch.tied_head)
        yield Loading(stage, self.reader.bytes_read, total, "bytes", 0.0)
        return Weights(embedding, tuple(layers), norm, head)


def assemble(arch: Arch, source: Source, *, dtype: torch.dtype, context: int, device: str = "cpu") -> Decoder:
    """A decoder at once, without progress."""
    weights = drain(Assembly(arch, source, dtype=dtype, device=device).weights("", 0))
    return Decoder(arch, weights, Cache(arch, context, dtype=kv_dtype(arch, context, dtype), device=device))


def load_decoder(
    snapshot: Snapshot, plan: Plan, *, stage: str = "weights"
) -> Generator[Loading | Notice, None, Layered]:
    """Loading events in bytes; returns the decoder that the plan's format asks for."""
    arch = read_arch(snapshot.config)
    try:
        if plan.quant in PACKED:
            from localspec.packing import load_packed  # not every machine with a GPU has what a CPU's engine needs

            return (yield from load_packed(snapshot, arch, plan, stage=stage))
        dtype, device = DTYPES[plan.quant], pick_device(plan.device)
        weights = yield from Assembly(arch, Files(snapshot), dtype=dtype, device=device).weights(
            stage, snapshot.total_bytes
        )
        return Decoder(
            arch, weights, Cache(arch, plan.context, dtype=kv_dtype(arch, plan.context, dtype), device=device)
        )
    except (RuntimeError, MemoryError) as fault:
        if not is_out_of_memory(fault):
            raise
        raise DoesNotFit(
            f"Memory ran out while loading {snapshot.name} in {plan.quant}.",
            hint=f"Try {SMALLER.get(plan.quant, 'a smaller model')} or a smaller --ctx.",
        ) from fault


def is_out_of_memory(fault: Exception) -> bool:
    """Devices have an error for it; torch's allocator for main memory raises a plain RuntimeError."""
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(fault)


def pick_device(asked: str, quant: str = "auto") -> str:
    """The device to use; formats of the CPU engine are for a CPU."""
    if quant in PACKED:
        if asked == "cuda":
            raise UsageError(f"{quant} weights run on a CPU only.", hint="Use --device cpu, or --quant bf16.")
        return "cpu"
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no CUDA device for --device cuda.", hint="Use --device cpu.")
    return asked
