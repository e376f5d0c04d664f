"""Tiny random models made on the spot: configs of every family, decoders in float64, and whole snapshots on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from localspec.engine.arch import Arch, read_arch
from localspec.engine.decoder import Decoder
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble

TINY: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}

ODD: dict[str, Any] = {  # sizes that no block of the CPU engine divides; with biases
    "hidden_size": 88,
    "intermediate_size": 104,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "vocab_size": 77,
    "attention_bias": True,
    "mlp_bias": True,
}


def tensor_shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Names and shapes as Hugging Face's Llama family writes them."""
    q, kv, hidden, wide = (
        arch.num_heads * arch.head_dim,
        arch.num_kv_heads * arch.head_dim,
        arch.hidden_size,
        arch.intermediate_size,
    )
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (arch.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not arch.tied_head:
        shapes["lm_head.weight"] = (arch.vocab_size, hidden)
    for index in range(arch.num_layers):
        at = f"model.layers.{index}"
        linears = {
            "self_attn.q_proj": (q, hidden, arch.qkv_bias),
            "self_attn.k_proj": (kv, hidden, arch.qkv_bias),
            "self_attn.v_proj": (kv, hidden, arch.qkv_bias),
            "self_attn.o_proj": (hidden, q, arch.output_bias),
            "mlp.gate_proj": (wide, hidden, arch.mlp_bias),
            "mlp.up_proj": (wide, hidden, arch.mlp_bias),
            "mlp.down_proj": (hidden, wide, arch.mlp_bias),
        }
        for name, (rows, inputs, bias) in linears.items():
            shapes[f"{at}.{name}.weight"] = (rows, inputs)
            shapes |= {f"{at}.{name}.bias": (rows,)} if bias else {}
        norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
        norms |= {"self_attn.q_norm": arch.head_dim, "self_attn.k_norm": arch.head_dim} if arch.qk_norm else {}
        shapes |= {f"{at}.{name}.weight": (rows,) for name, rows in norms.items()}
    return shapes


def random_tensors(config: dict[str, Any], *, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Weights large enough that the next token depends on the whole prefix."""
    draw = torch.Generator().manual_seed(seed)

    def make(shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 1:
            return torch.rand(shape, generator=draw, dtype=dtype) + 0.5
        return torch.randn(shape, generator=draw, dtype=dtype) * (1.5 / shape[1] ** 0.5)

    return {name: make(shape) for name, shape in tensor_shapes(read_arch(config)).items()}


def tiny_decoder(*, seed: int = 0, context: int = 256, dtype: torch.dtype = torch.float64, **config: Any) -> Decoder:
    """A random model in memory, float64 unless told."""
    said = {**TINY, **config}
    source = StateDictSource(random_tensors(said, seed=seed, dtype=dtype))
    return assemble(read_arch(said), source, dtype=dtype, context=context)


def save_snapshot(
    folder: Path,
    tokenizer: Tokenizer,
    *,
    seed: int = 0,
    template: str | None = None,
    eos: str | None = None,
    **config: Any,
) -> Path:
    """A random model as a folder in Hugging Face's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {**TINY, "vocab_size": tokenizer.get_vocab_size(), "torch_dtype": "float32", **config}
    if eos:
        said["eos_token_id"] = tokenizer.token_to_id(eos)
    (folder / "config.json").write_text(json.dumps(said))
    save_file(random_tensors(said, seed=seed, dtype=torch.float32), folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    words: dict[str, Any] = {"eos_token": eos} | ({"chat_template": template} if template else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    return folder
