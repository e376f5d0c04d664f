"""What a config means for a model that transformers runs: its sizes, by the names that each family gives them.

Only families that tests hold against transformers are here; others are refused. Knows nothing about weights or torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.errors import CheckpointError
from localspec.core.families import FAMILIES
from localspec.core.weight_formats import FLOATS, SMALLEST_ANYWHERE
from localspec.engine.arch import ELSE, Arch, Config, read_arch, size
from localspec.models.prequantised.stored import is_gptq, method_of, refuse_mlx, stored_format

# Keys and values lie by position, so tokens can be taken back.
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
STATES = frozenset(("falcon_mamba", "mamba"))  # all that was read is folded into a state
RECURRENT = STATES | {"lfm2"}  # or some of it, and the rest lies by position

OTHER_HEADS = ("Classification", "RewardModel", "QuestionAnswering")

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
UNBOUNDED = 1 << 17  # positions of a family whose config need not say any
ALIBI_POSITIONS = 2048  # what BLOOM and Falcon were trained on, where nothing is said


@dataclass(frozen=True, slots=True)
class GenericArch:
    """Sizes. `can_rewind`: it can forget its last tokens without reading all before them anew."""

    family: str
    vocab_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_context: int
    can_rewind: bool

    def kv_elements(self, context: int) -> int:
        """At most: of a mixed family, as if every layer had keys and values."""
        return 2 * self.num_layers * self.num_kv_heads * context * self.head_dim


def read_any(config: Config) -> Arch | GenericArch:
    """For our own decoder, or for transformers; CheckpointError where neither is known to run it."""
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
    """A reward model, say, whose last layer has another purpose than the next token."""
    named = config.get("architectures")
    if isinstance(named, list) and named and all(str(name).endswith(OTHER_HEADS) for name in named):
        raise CheckpointError(f"This model writes no text: it is a {str(named[0])[:80]}.", hint=ELSE)


def is_generic(config: Config) -> bool:
    """Whether transformers runs it, because our decoder does not know its family."""
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
    """As many as are kept: Falcon's newer architecture keeps its few once for every query head."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    return size(config, "num_key_value_heads", default=heads)


def refuse_quantised(config: Config, family: str) -> None:
    refuse_mlx(config)
    said = config.get("quantization_config")
    if is_gptq(config) and family not in RECURRENT:
        stored_format(config)
    elif said:
        method = method_of(said) if isinstance(said, dict) else str(said)[:40]
        raise CheckpointError(
            f"This model is quantised already, by {method}, and transformers runs its family in localspec.",
            hint=f"Choose its 16-bit copy, and --quant {FLOATS[-1]} or {SMALLEST_ANYWHERE}.",
        )
