"""Reads the decoder's shape from config.json: one frozen record for Llama 2/3.x, Mistral, Qwen2, Qwen3 and SmolLM.

A field that transformers reads and the decoder does not know is refused, because guessing would give wrong text without
an error; one that transformers does not read either changes nothing. Knows nothing about weights or torch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, CheckpointError
from localspec.core.families import FAMILIES
from localspec.models.named_fields import is_named
from localspec.models.prequantised.config import read_rules
from localspec.models.prequantised.stored_format import stored_format

Config = Mapping[str, Any]  # Any: config.json is a stranger's
log = logging.getLogger(__name__)

SIZES = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
}
READ = SIZES | {
    "model_type",
    "head_dim",
    "rms_norm_eps",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "rope_parameters",
    "rope_theta",
    "rope_scaling",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
}
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
# These fields do not change the arithmetic of a forward.
NEUTRAL = {
    "architectures",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "attention_dropout",
    "_name_or_path",
    "name_or_path",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "pretraining_tp",  # how the projections were cut while training: transformers 5 keeps it and reads it nowhere
    "quantization_config",  # of the weights; `stored_format` and `read_rules` refuse what cannot be loaded
}
AT_DEFAULT: dict[str, Any] = {"hidden_act": "silu", "partial_rotary_factor": 1.0, "is_causal": True}
NOTHING: tuple[Any, ...] = (None, False, {}, [])  # values that ask for nothing
GIB = 1 << 30
LAYER_TYPES = ("full_attention", "sliding_attention")
LEFT_OUT: dict[str, dict[str, Any]] = {  # transformers' defaults, where they differ by family
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
}


@dataclass(frozen=True, slots=True)
class Arch:
    """The decoder's shape. `windows[i]`: positions that layer i sees, None for all. `rope`: transformers' fields."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_context: int
    rope: tuple[tuple[str, Any], ...]
    windows: tuple[int | None, ...]
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied_head: bool

    @property
    def can_rewind(self) -> bool:
        """True: all keys and values are cached by position, so any token can be rolled back."""
        return True

    @property
    def query_group(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def layer_elements(self) -> int:
        """Weights of one layer's linears."""
        heads = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return self.hidden_size * (heads + 3 * self.intermediate_size)

    @property
    def largest_linear(self) -> int:
        """Weights of the largest linear of a layer, fused as in the decoder."""
        heads = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return self.hidden_size * max(heads, 2 * self.intermediate_size)

    def kv_elements(self, context: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * context * self.head_dim

    def kv_element_bytes(self, context: int) -> int:
        """4, or 2 if the KV cache would take a gibibyte or more."""
        return 4 if 4 * self.kv_elements(context) < GIB else 2

    def rotation_bytes(self, context: int) -> int:
        """Bytes of the rotary tables: cosines and sines of every position, in float32."""
        return 2 * 4 * context * self.head_dim


def read_arch(config: Config) -> Arch:
    """The decoder's shape from config.json; CheckpointError names the field it cannot honour."""
    family = str(config.get("model_type", ""))
    if family not in FAMILIES:
        raise CheckpointError(
            f"Models of type '{family[:40]}' are not supported yet.",
            hint="localspec runs Llama, Mistral, Qwen2, Qwen3 and SmolLM.",
        )
    refuse_unknown(config, family)
    stored_format(config)
    read_rules(config)
    usual = LEFT_OUT[family]
    config = {**usual, **config}
    heads, hidden = size(config, "num_attention_heads"), size(config, "hidden_size")
    kv_heads = size(config, "num_key_value_heads", default=heads)
    head_dim = size(config, "head_dim", default=usual.get("head_dim", hidden // heads))
    refuse_odd_heads(heads, kv_heads, head_dim)
    bias = bool(config.get("attention_bias", False)) and family in ("llama", "qwen3")
    return Arch(
        family=family,
        vocab_size=size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=size(config, "intermediate_size"),
        num_layers=size(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=real(config, "rms_norm_eps", default=1e-6),
        max_context=size(config, "max_position_embeddings", default=usual["max_position_embeddings"]),
        rope=read_rope(config),
        windows=read_windows(config, family),
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias", False)) and family == "llama",
        qk_norm=family == "qwen3",
        tied_head=bool(config.get("tie_word_embeddings", False)),
    )


def refuse_unknown(config: Config, family: str) -> None:
    for name, value in config.items():
        if name in AT_DEFAULT and value != AT_DEFAULT[name]:
            raise CheckpointError(
                f"config.json asks for {shown(name, value)}, which localspec cannot run.", hint=CHOOSE_ANOTHER
            )
        if name in READ | NEUTRAL or name in AT_DEFAULT or value in NOTHING:
            continue
        if is_named(family, name):
            message = f"config.json has a field that transformers reads and localspec does not: {shown(name, value)}."
            raise CheckpointError(message, hint=CHOOSE_ANOTHER)
        log.debug("config.json has %s, which is not read", shown(name, value))


def refuse_odd_heads(heads: int, kv_heads: int, head_dim: int) -> None:
    if heads % kv_heads:
        message = f"config.json has {heads} heads, which do not divide into {kv_heads} key-value heads."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)
    if head_dim % 2:
        message = f"config.json describes heads of {head_dim} channels; rotary embeddings need an even number."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)


def shown(name: str, value: Any) -> str:
    """A field of config.json, shortened for a sentence."""
    return f"{name[:80]} = {repr(value)[:40]}"


def size(config: Config, name: str, *, default: int | None = None, least: int = 1) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        message = f"config.json has {shown(name, value)}; it must be a whole number of at least {least}."
        raise CheckpointError(message, hint=REPEAT)
    return value


def real(config: Config, name: str, *, default: float) -> float:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int | float):
        raise CheckpointError(f"config.json has {shown(name, value)}; it must be a number.", hint=REPEAT)
    return float(value)


def read_rope(config: Config) -> tuple[tuple[str, Any], ...]:
    """The RoPE fields in one form, from rope_parameters (transformers 5) or rope_theta with rope_scaling."""
    name = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    given = config.get(name) or {}
    if not isinstance(given, Mapping):
        raise CheckpointError(f"config.json has {shown(name, given)}; it must be an object.", hint=REPEAT)
    fields = {name: value for name, value in given.items() if value is not None}
    kind = fields.pop("type", None)
    fields.setdefault("rope_type", kind or "default")
    fields.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
    if fields["rope_type"] not in ROPE_TYPES:
        kind = shown("rope_type", fields["rope_type"])
        raise CheckpointError(f"config.json asks for {kind}, which localspec cannot run.", hint=CHOOSE_ANOTHER)
    if fields.get("partial_rotary_factor", 1.0) != 1.0:
        message = "config.json asks for partial rotary embeddings, which localspec cannot run."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)
    return tuple(sorted((name, freeze(value)) for name, value in fields.items()))


def freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read_windows(config: Config, family: str) -> tuple[int | None, ...]:
    layers, window = size(config, "num_hidden_layers"), config.get("sliding_window")
    kinds = config.get("layer_types")
    if kinds is not None and not is_kind_each(kinds, layers):
        message = f"config.json has {shown('layer_types', kinds)}; it must name the attention of each layer"
        raise CheckpointError(f"{message}: {' or '.join(LAYER_TYPES)}.", hint=REPEAT)
    if family == "llama" or window is None or (family != "mistral" and not config.get("use_sliding_window", False)):
        return (None,) * layers
    if kinds is not None and family != "mistral":
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = 0 if family == "mistral" else size(config, "max_window_layers", default=28, least=0)
    return tuple(window if layer >= first else None for layer in range(layers))


def is_kind_each(kinds: Any, layers: int) -> bool:
    return isinstance(kinds, list) and len(kinds) == layers and all(kind in LAYER_TYPES for kind in kinds)
