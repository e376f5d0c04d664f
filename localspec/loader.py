"""Checkpoint and plan to a decoder, tensor by tensor from safetensors; peak memory is the weights plus one tensor.

Knows the tensor names of the Llama family. Decides nothing: the plan did. Never runs code from a model.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from localspec.checkpoint import Snapshot
from localspec.drain import drain
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cache import Cache, kv_dtype
from localspec.engine.decoder import Decoder, Layer, Weights
from localspec.engine.linear import DTYPES, Dense
from localspec.errors import CheckpointError, DoesNotFit, UsageError
from localspec.events import Loading
from localspec.fit import Plan

LEFT_OVER = "rotary_emb.inv_freq"  # old checkpoints carry their RoPE table; ours is computed


class Source(Protocol):
    """Tensors by name, read when asked for."""

    def names(self) -> set[str]: ...

    def read(self, name: str) -> Tensor: ...


class Memory:
    """Tensors already in memory: a state dict."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def names(self) -> set[str]:
        return set(self.tensors)

    def read(self, name: str) -> Tensor:
        return self.tensors[name]


class Files:
    """A snapshot's safetensors, mapped and not read as a whole."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.open: dict[Path, safe_open] = {}

    def names(self) -> set[str]:
        return set(self.snapshot.tensors)

    def read(self, name: str) -> Tensor:
        file = self.snapshot.tensors[name].file
        try:
            if file not in self.open:
                self.open[file] = safe_open(file, framework="pt")
            tensor: Tensor = self.open[file].get_tensor(name)  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as fault:
            raise CheckpointError(f"{file} cannot be read ({fault}).", hint="Fetch the model again.") from fault
        return tensor


class Assembly:
    """Turns a source's tensors into weights of one dtype, checks every shape, and counts bytes as it goes."""

    def __init__(self, arch: Arch, source: Source, *, dtype: torch.dtype, device: str) -> None:
        self.arch, self.source, self.dtype, self.device = arch, source, dtype, device
        self.used: set[str] = set()
        self.bytes_read = 0

    def tensor(self, name: str, *shape: int) -> Tensor:
        if name not in self.source.names():
            raise CheckpointError(f"The checkpoint has no tensor '{name}'.", hint="Fetch the model again.")
        raw = self.source.read(name)
        if tuple(raw.shape) != shape:
            raise CheckpointError(f"The checkpoint's '{name}' is {tuple(raw.shape)}, and its config says {shape}.")
        self.used.add(name)
        self.bytes_read += raw.nbytes
        return raw.to(device=self.device, dtype=self.dtype, copy=True)

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
            seconds_a_byte = (perf_counter() - started) / self.bytes_read
            yield Loading(stage, self.bytes_read, total, "bytes", seconds_a_byte * (total - self.bytes_read))
        norm = self.tensor("model.norm.weight", arch.hidden_size)
        head = Dense(embedding) if arch.tied_head else self.fused(["lm_head"], [arch.vocab_size], arch.hidden_size)
        self.refuse_unused()
        yield Loading(stage, self.bytes_read, total, "bytes", 0.0)
        return Weights(embedding, tuple(layers), norm, head)

    def refuse_unused(self) -> None:
        """A tensor nobody reads means that the config does not describe this model."""
        extra = {name for name in self.source.names() - self.used if not name.endswith(LEFT_OVER)}
        extra -= {"lm_head.weight"} if self.arch.tied_head else set()
        if extra:
            raise CheckpointError(f"The checkpoint has a tensor its config does not explain: '{min(extra)}'.")


def assemble(arch: Arch, source: Source, *, dtype: torch.dtype, context: int, device: str = "cpu") -> Decoder:
    """A decoder at once, without progress."""
    weights = drain(Assembly(arch, source, dtype=dtype, device=device).weights("", 0))
    return Decoder(arch, weights, Cache(arch, context, dtype=kv_dtype(arch, context, dtype), device=device))


def load_decoder(snapshot: Snapshot, plan: Plan, *, stage: str = "weights") -> Generator[Loading, None, Decoder]:
    """Loading events in bytes; returns the Decoder."""
    arch = read_arch(snapshot.config)
    dtype, device = DTYPES[plan.quant], pick_device(plan.device)
    try:
        assembly = Assembly(arch, Files(snapshot), dtype=dtype, device=device)
        weights = yield from assembly.weights(stage, snapshot.total_bytes)
        return Decoder(
            arch, weights, Cache(arch, plan.context, dtype=kv_dtype(arch, plan.context, dtype), device=device)
        )
    except (RuntimeError, MemoryError) as fault:
        if not is_out_of_memory(fault):
            raise
        raise DoesNotFit(
            f"Memory ran out while loading {snapshot.name} in {plan.quant}.",
            hint="Try --quant bf16 or a smaller --ctx.",
        ) from fault


def is_out_of_memory(fault: Exception) -> bool:
    """Devices have an error for it; torch's allocator for main memory raises a plain RuntimeError."""
    return isinstance(fault, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(fault)


def pick_device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no CUDA device for --device cuda.", hint="Use --device cpu.")
    return asked
