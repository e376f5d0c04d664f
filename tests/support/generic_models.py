"""Tiny random models of transformers' own, of every family that localspec lets transformers run, as folders on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

VOCAB = 48
WINDOW = 7  # shorter than every text, so that forgetting by window and by rollback meet

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
BARE = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
GPT: dict[str, Any] = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
NEO_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
WINDOWS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 128,
}

NAMED: dict[str, dict[str, Any]] = {
    "gpt_neox": {**BARE, "rope_parameters": NEO_ROPE},
    "gpt2": {**GPT, "tie_word_embeddings": True},
    "opt": {**BARE, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"vocab_size": VOCAB, "hidden_size": 32, "n_layer": 2, "n_head": 4, "tie_word_embeddings": True},
    "gemma3_text": {**SIZES, "head_dim": 16, **WINDOWS},
    "phi3": {**SIZES, "sliding_window": WINDOW},
    "glm4": {**SIZES, "head_dim": 8},
    "falcon": {**BARE, "alibi": True, "multi_query": True, "new_decoder_architecture": False},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2 as old as can be": {**GPT, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
    "gpt_neox one after the other": {**BARE, "rope_parameters": NEO_ROPE, "use_parallel_residual": False},
    "opt norms last": {**BARE, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    "phi3 whose rope grows": {
        **SIZES,
        "sliding_window": None,
        "rope_parameters": LONG_ROPE,
        "original_max_position_embeddings": 128,
    },
    "falcon with rope": {**BARE, "alibi": False, "multi_query": True, "new_decoder_architecture": False},
    "falcon in groups": {**BARE, "alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon every head its own": {**BARE, "alibi": True, "multi_query": False, "new_decoder_architecture": False},
    "gemma3_text all windows": {**SIZES, "head_dim": 16, "sliding_window": WINDOW, "sliding_window_pattern": 6},
}
OTHERS: dict[str, dict[str, Any]] = {
    "apertus": SIZES,
    "arcee": SIZES,
    "biogpt": BARE,
    "codegen": {**GPT, "rotary_dim": 4},
    "cohere": SIZES,
    "cohere2": {**SIZES, **WINDOWS},
    "ernie4_5": {**SIZES, "head_dim": 8},
    "exaone4": {**SIZES, **WINDOWS},
    "gemma": {**SIZES, "head_dim": 16},
    "gemma2": {**SIZES, "head_dim": 16, **WINDOWS},
    "glm": {**SIZES, "head_dim": 8},
    "gpt_bigcode": {**GPT, "multi_query": True},
    "gpt_neo": {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
        "max_position_embeddings": 256,
    },
    "gptj": {**GPT, "rotary_dim": 4},
    "granite": {**SIZES, "attention_multiplier": 0.3, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "helium": {**SIZES, "head_dim": 8},
    "mpt": {"vocab_size": VOCAB, "d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 256},
    "nemotron": SIZES,
    "olmo": SIZES,
    "olmo2": SIZES,
    "olmo3": {**SIZES, **WINDOWS},
    "persimmon": BARE,
    "phi": SIZES,
    "seed_oss": {**SIZES, "head_dim": 8},
    "smollm3": {**SIZES, "no_rope_layers": [1, 0], **WINDOWS, "use_sliding_window": True},
    "stablelm": SIZES,
    "starcoder2": {**SIZES, "sliding_window": WINDOW},
}
STATEFUL: dict[str, dict[str, Any]] = {
    "mamba": {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "falcon_mamba": {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "lfm2": {**SIZES, "layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
}
ALL = {**NAMED, **VARIANTS, **OTHERS, **STATEFUL}
COMMON = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": False}


SEEDS = {"falcon in groups": 2, "falcon every head its own": 1}  # others say the same token over and over


def make_model(family: str, *, seed: int | None = None, **changes: Any) -> Any:
    """In float64; weights large enough that the next token depends on the whole text."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    config = CONFIG_MAPPING[family.split(maxsplit=1)[0]](**{**COMMON, **ALL[family], **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).double().eval()
    draw = torch.Generator().manual_seed(SEEDS.get(family, 0) if seed is None else seed)
    stateful = family.split(maxsplit=1)[0] in STATEFUL
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "A_log" not in name:
                weight.copy_(
                    torch.randn(weight.shape, generator=draw, dtype=weight.dtype) * 4.0 / weight.shape[1] ** 0.5
                )
            elif name.endswith("bias") and not stateful:
                weight.copy_(torch.randn(weight.shape, generator=draw, dtype=weight.dtype) * 0.3)
            elif weight.dim() == 1 and not stateful:
                weight.copy_(torch.rand(weight.shape, generator=draw, dtype=weight.dtype) + 0.5)
    return model


def blurred(model: Any, share: float, seed: int = 9) -> Any:
    """Nearly the same model: a draft that is right often, and wrong often."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=draw, dtype=weight.dtype) * share * weight.abs().mean())
    return model


def save_generic(model: Any, folder: Path, tokenizer: Tokenizer | None = None, **words: Any) -> Path:
    """In Hugging Face's layout."""
    folder.mkdir(parents=True)
    config = model.config.to_dict()
    (folder / "config.json").write_text(json.dumps(config, default=str))
    shared: set[int] = set()
    weights = {}
    for name, weight in model.state_dict().items():
        if weight.data_ptr() not in shared:  # a tied head is stored once
            shared.add(weight.data_ptr())
            weights[name] = weight.contiguous()
    save_file(weights, folder / "model.safetensors")
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(words))
    return folder
