"""The tensors of the Llama family, by name and shape, and what is wrong with those of a checkpoint: from headers alone,
so that it is known before a download, too.

Knows nothing about torch, and reads no weights.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, CheckpointError
from localspec.engine.arch import Arch
from localspec.loading.footprint import shapes
from localspec.models.checkpoint import Snapshot
from localspec.models.dtypes import BITSANDBYTES_STATE, LEFT_OVER
from localspec.models.prequantised.stored_format import stored_format

Shape = tuple[int, ...]
Named = tuple[str, Shape]

LAYER = re.compile(r"(?:model\.)?layers\.([0-9]{1,6})\.")
BODY = "model."  # before a tensor's name, where there is a head beside it
HEAD = "lm_head.weight"


def check_tensors(snapshot: Snapshot, arch: Arch) -> None:
    """CheckpointError where a tensor is missing, has another shape, or is not explained by the config. Of bitsandbytes'
    own the shape is in what it wrote beside them."""
    found = shapes(snapshot)
    refuse_other_layers(found, arch.num_layers)
    packed = {name.partition(BITSANDBYTES_STATE)[0] for name in found if BITSANDBYTES_STATE in name}
    for name, shape in expected(arch):
        check_name(name, found)
        if name not in packed:
            check_shape(name, found[name], shape)
    if stored_format(snapshot.config) is None:
        refuse_unexplained(found.keys() - {name for name, _ in expected(arch)}, tied_head=arch.tied_head)


def expected(arch: Arch) -> Iterator[Named]:
    """Every tensor that the decoder reads."""
    table = arch.vocab_size, arch.hidden_size
    yield "model.embed_tokens.weight", table
    for index in range(arch.num_layers):
        yield from of_layer(arch, f"{BODY}layers.{index}")
    yield "model.norm.weight", (arch.hidden_size,)
    if not arch.tied_head:
        yield HEAD, table


def of_layer(arch: Arch, at: str) -> Iterator[Named]:
    hidden, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{at}.{norm}.weight", (hidden,)
    for norm in ("q_norm", "k_norm") if arch.qk_norm else ():
        yield f"{at}.self_attn.{norm}.weight", (arch.head_dim,)
    for part, rows in (("q", queries), ("k", keys), ("v", keys)):
        yield from linear(f"{at}.self_attn.{part}_proj", rows, hidden, bias=arch.qkv_bias)
    yield from linear(f"{at}.self_attn.o_proj", hidden, queries, bias=arch.output_bias)
    for part in ("gate", "up"):
        yield from linear(f"{at}.mlp.{part}_proj", inner, hidden, bias=arch.mlp_bias)
    yield from linear(f"{at}.mlp.down_proj", hidden, inner, bias=arch.mlp_bias)


def linear(name: str, rows: int, inputs: int, *, bias: bool) -> Iterator[Named]:
    yield f"{name}.weight", (rows, inputs)
    if bias:
        yield f"{name}.bias", (rows,)


def check_name(name: str, names: Collection[str]) -> None:
    """CheckpointError for a tensor that is not among these."""
    if (bare := name.removeprefix(BODY)) != name and bare in names:
        message = f"This is an embedding model and writes no text: its tensors have names like '{bare}'."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)
    if name not in names:
        raise CheckpointError(f"The checkpoint has no tensor '{name}'.", hint=REPEAT)


def check_shape(name: str, stored: Shape, shape: Shape) -> None:
    if stored != shape:
        message = f"The checkpoint's '{name}' is {str(stored)[:40]}, and its config says {shape}."
        raise CheckpointError(message, hint=REPEAT)


def refuse_unexplained(unread: Iterable[str], *, tied_head: bool) -> None:
    """Refuses a tensor that is never read: the config does not describe this model."""
    extra = {name for name in unread if not name.endswith(LEFT_OVER)}
    extra -= {HEAD} if tied_head else set()
    if extra:
        message = f"The checkpoint has a tensor that its config does not explain: '{min(extra)[:120]}'."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)


def refuse_other_layers(names: Iterable[str], num_layers: int) -> None:
    """Refuses, before any weight is read, a config whose number of layers is not the checkpoint's: it describes
    another model."""
    found = {int(layer[1]) for name in names if (layer := LAYER.match(name))}
    there = max(found, default=-1) + 1
    if found and there != num_layers:
        message = f"The config says num_hidden_layers = {num_layers}, and the checkpoint has {there:,}."
        raise CheckpointError(message, hint=REPEAT)
