"""Writes a network as a Hugging Face Llama snapshot in bfloat16. Knows nothing about training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialised
from tokenizers import Tokenizer

from localspec.core.whole_file import write_whole
from training import tokenizer as tokens
from training.network import MAX_POSITIONS, NORM_EPS, ROPE_THETA, Network, Shape


def config(shape: Shape, control: dict[str, int]) -> dict[str, Any]:  # Any: JSON
    """config.json; control maps control tokens to ids."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": control[tokens.END_OF_TEXT],
        "eos_token_id": control[tokens.TURN_END],
        "pad_token_id": control[tokens.END_OF_TEXT],
    }


def _write(path: Path, record: dict[str, Any]) -> None:  # Any: JSON
    write_whole(path, (json.dumps(record, indent=2) + "\n").encode())


def save(network: Network, tokenizer: Tokenizer, folder: Path) -> None:
    """The five files of a complete snapshot."""
    folder.mkdir(parents=True, exist_ok=True)
    control = tokens.control_ids(tokenizer)
    _write(folder / "config.json", config(network.shape, control))
    end, stop = control[tokens.END_OF_TEXT], control[tokens.TURN_END]
    generation = {"bos_token_id": end, "pad_token_id": end, "eos_token_id": [stop, end]}
    _write(folder / "generation_config.json", generation)
    weights = {name: tensor.to("cpu", torch.bfloat16).contiguous() for name, tensor in network.state_dict().items()}
    write_whole(folder / "model.safetensors", serialised(weights, metadata={"format": "pt"}))
    tokens.save(tokenizer, folder, MAX_POSITIONS)


def round_weights(network: Network) -> None:
    """Rounds the weights as saving will, so that what is measured is what is shipped."""
    for parameter in network.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
