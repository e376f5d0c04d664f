"""Any causal LM of transformers behind the decoder's interface: rows of ids in, rows of logits out.

The KV cache holds every position of every layer, also where the model attends to a window: the mask hides the rest, and
rollback is a counter whatever transformers' own layout is. A recurrent state cannot be rolled back: it is reset, and
the session prefills again. Knows nothing about files.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol  # Any: transformers is untyped

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError
from localspec.engine.generic_arch import GenericArch
from localspec.engine.linear import Linear
from localspec.engine.protocols import ExitStates


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes of a model's weights."""

    num_bytes: int


class Past(Protocol):
    """A model's cache. `cache` is transformers' object; `length` counts the positions in it."""

    cache: Any
    length: int

    @property
    def num_bytes(self) -> int: ...

    def parts(self, ids: Tensor) -> Iterable[Tensor]:
        """Splits rows as they may be forwarded: together, or one at a time."""
        ...

    def crop(self, length: int) -> None:
        """Rolls back to `length`, also after a forward that failed. What can only be reset becomes empty."""
        ...


class GenericDecoder:
    """A transformers model with its cache."""

    def __init__(self, arch: GenericArch, model: Any, context: int) -> None:
        self.arch, self.model, self.context = arch, model, context
        self.device: torch.device = model.device
        self.cache: Past = PositionCache(arch.num_layers, context) if arch.can_rewind else State(model.config)
        self.weights = Held(weight_bytes(model))
        self.forward_bytes = self.weights.num_bytes - unread_bytes(model)
        self.bytes_read = 0
        self.argument = next(name for name in ("past_key_values", "cache_params") if name in accepted(model))
        fix_frequencies(model, context)

    @property
    def length(self) -> int:
        return self.cache.length

    @torch.inference_mode()
    def forward(self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False) -> Tensor:
        """ids [rows] to logits [rows, vocab] (or [1, vocab]), appended to the cache."""
        assert exit_states is None, "its first layers cannot be run alone"
        logits = [self.run(part, last_only=last_only) for part in self.cache.parts(ids.to(self.device))]
        return logits[-1] if last_only else torch.cat(logits)

    def run(self, ids: Tensor, *, last_only: bool) -> Tensor:
        past = {self.argument: self.cache.cache, "use_cache": True}
        found: Tensor = self.model(input_ids=ids[None], logits_to_keep=int(last_only), **past).logits[0]
        self.cache.length += ids.shape[0]
        self.bytes_read += self.forward_bytes
        return found

    @torch.inference_mode()
    def at_once(self, ids: Tensor) -> Tensor:
        """Logits [rows, vocab] of a whole text as transformers computes them, without a cache."""
        found: Tensor = self.model(input_ids=ids.to(self.device)[None], use_cache=False).logits[0]
        return found

    def crop(self, length: int) -> None:
        self.cache.crop(length)

    def set_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def close(self) -> None:
        pass  # torch's threads are shared


class IndexedLayer(CacheLayerMixin):  # type: ignore[misc] # transformers is untyped
    """One layer's keys and values [1, heads, context, dim], written by index. All slots are finite."""

    is_sliding = False

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context
        self.filled = 0

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes if self.is_initialized else 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = (
            new.new_zeros(1, new.shape[1], self.context, new.shape[3]) for new in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Writes these rows; returns all keys and values so far, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin, self.filled = self.filled, self.filled + key_states.shape[2]
        self.keys[:, :, begin : self.filled] = key_states
        self.values[:, :, begin : self.filled] = value_states
        return self.keys[:, :, : self.filled], self.values[:, :, : self.filled]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return -1


class PositionCache:
    """A KV cache by position, every layer's whole."""

    def __init__(self, layers: int, context: int) -> None:
        self.layers = [IndexedLayer(context) for _ in range(layers)]
        self.cache = Cache(layers=list(self.layers))
        self.length = 0

    @property
    def num_bytes(self) -> int:
        return sum(layer.num_bytes for layer in self.layers)

    def parts(self, ids: Tensor) -> Iterable[Tensor]:
        return (ids,)

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)
        for layer in self.layers:
            layer.filled = min(layer.filled, self.length)


class State:
    """A recurrent state. After the first forward it takes one row at a time: transformers' scan of several rows starts
    from an empty state."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.reset()

    def reset(self) -> None:
        self.cache, self.length, self.begun = DynamicCache(config=self.config), 0, 0

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for layer in self.cache.layers for tensor in tensors(vars(layer)))

    def parts(self, ids: Tensor) -> Iterable[Tensor]:
        self.begun = self.length + ids.shape[0]
        return torch.split(ids, 1) if self.length else (ids,)

    def crop(self, length: int) -> None:
        if length < self.begun:
            self.reset()


class Quantised(nn.Module):
    """A quantised linear that replaces one of torch's."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, hidden: Tensor) -> Tensor:
        rows = self.linear(hidden.reshape(-1, hidden.shape[-1]))
        return rows.view(*hidden.shape[:-1], -1)


def tensors(fields: Any) -> Iterable[Tensor]:
    """All tensors in a tree of dicts."""
    for value in fields.values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict):
            yield from tensors(value)


def accepted(model: Any) -> set[str]:
    """The argument names of a model's forward."""
    return set(inspect.signature(model.forward).parameters)


def weight_bytes(model: Any) -> int:
    """The bytes of all weights, shared ones counted once."""
    quantised = sum(module.linear.num_bytes for module in model.modules() if isinstance(module, Quantised))
    theirs = [tensor for module in model.modules() if hasattr(module, "qweight") for tensor in module.buffers()]
    return int(quantised + sum(weight.nbytes for weight in (*model.parameters(), *theirs)))


def unread_bytes(model: Any) -> int:
    """Bytes that a forward does not read: the embedding's, unless the head shares it."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    return 0 if getattr(head, "weight", None) is embedding else int(embedding.nbytes)


def fix_frequencies(model: Any, context: int) -> None:
    """Fixes the frequencies of `dynamic` and `longrope` to those at the end of the context: they depend on the last
    position of a forward, so a wide verify would be rotated differently from single rows."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and moves(kinds):
            module(torch.zeros(1, device=model.device), torch.tensor([[context - 1]], device=model.device))
            module.rope_type = "default"
        elif isinstance(kinds, dict) and any(map(moves, kinds.values())):
            message = "config.json asks for rope that changes with the length in some layers only."
            raise CheckpointError(message, hint=CHOOSE_ANOTHER)


def moves(kind: str) -> bool:
    return kind == "longrope" or "dynamic" in kind
