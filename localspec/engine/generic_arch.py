"""Reads the sizes of a model that transformers runs, by the field names of each family.

Only families that tests compare with transformers are here; others are refused. Knows nothing about weights or torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError
from localspec.core.families import FAMILIES
from localspec.core.weight_formats import FLOATS, SMALLEST_ANYWHERE
from localspec.engine.arch import Arch, Config, read_arch, size
from localspec.models.prequantised.stored_format import is_gptq, method_of, refuse_mlx, stored_format

# Keys and values are cached by position, so tokens can be rolled back.
REWINDING = frozenset(
    [
        "apertus",
        "arcee",
        "biogpt",
        "bloom",
        "codegen",
        "cohere",
        "cohere2",
        "ernie4_5",
        "exaone4",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "granite",
        "helium",
        "mpt",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    ]
)
STATES = frozenset(("falcon_mamba", "mamba"))  # recurrent in every layer: no KV cache
RECURRENT = STATES | {"lfm2"}  # or in some layers only

OTHER_HEADS = ("Classification", "RewardModel", "QuestionAnswering")

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
UNBOUNDED = 1 << 17  # positions of a family whose config need not give any
ALIBI_POSITIONS = 2048  # what BLOOM and Falcon were trained on, where the config gives none


@dataclass(frozen=True, slots=True)
class GenericArch:
    """The sizes of a model. `can_rewind`: its last tokens can be rolled back without a new prefill."""

    family: str
    vocab_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    can_rewind: bool

    def kv_elements(self, context: int) -> int:
        """Elements of the KV cache, an upper bound: in a mixed family not every layer has keys and values."""
        return 2 * self.num_layers * self.num_kv_heads * context * self.head_dim


def read_any(config: Config) -> Arch | GenericArch:
    """The configuration for our decoder or for transformers; CheckpointError where neither runs the model."""
    family = str(config.get("model_type", ""))
    refuse_other_heads(config)
    if family in REWINDING | RECURRENT:
        return read_generic(config, family)
    if family not in FAMILIES:
        raise CheckpointError(
            f"Models of type '{family[:40]}' are not supported yet.",
            hint="localspec runs Llama, Mistral, Qwen2, Qwen3 and SmolLM itself, and Gemma, Phi, GLM, OLMo, Pythia and"
            " others through transformers.",
        )
    return read_arch(config)


def refuse_other_heads(config: Config) -> None:
    """Refuses models whose head does not predict tokens, e.g. reward models."""
    named = config.get("architectures")
    if isinstance(named, list) and named and all(str(name).endswith(OTHER_HEADS) for name in named):
        raise CheckpointError(f"This model does not generate text: it is a {str(named[0])[:80]}.", hint=CHOOSE_ANOTHER)


def is_generic(config: Config) -> bool:
    """True for a family that transformers runs, as our decoder does not know it."""
    return isinstance(read_any(config), GenericArch)


def read_generic(config: Config, family: str) -> GenericArch:
    refuse_quantised(config, family)
    attends, rewinds = family not in STATES, family not in RECURRENT
    hidden, heads = named(config, HIDDEN), named(config, HEADS) if attends else 1
    return GenericArch(
        family=family,
        vocab_size=size(config, "vocab_size"),
        num_layers=named(config, LAYERS),
        num_kv_heads=kv_heads(config, heads) if attends else 0,
        head_dim=size(config, "head_dim", default=max(hidden // heads, 1)),
        max_context=named(config, POSITIONS, default=ALIBI_POSITIONS if rewinds else UNBOUNDED),
        can_rewind=rewinds,
    )


def named(config: Config, names: tuple[str, ...], *, default: int | None = None) -> int:
    """The first of these fields that is given."""
    given = [name for name in names if config.get(name) is not None]
    return size(config, given[0] if given else names[0], default=default)


def kv_heads(config: Config, heads: int) -> int:
    """The number of cached key-value heads: Falcon's newer architecture repeats them for every query head."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    return size(config, "num_key_value_heads", default=heads)


def refuse_quantised(config: Config, family: str) -> None:
    refuse_mlx(config)
    quantised = config.get("quantization_config")
    if is_gptq(config) and family not in RECURRENT:
        stored_format(config)
    elif quantised:
        method = method_of(quantised) if isinstance(quantised, dict) else str(quantised)[:40]
        raise CheckpointError(
            f"This model is quantised already, by {method}, which localspec cannot run for its model type.",
            hint=f"Use its 16-bit copy with --quant {FLOATS[-1]} or {SMALLEST_ANYWHERE}.",
        )
