"""Complete tiny checkpoints of published configurations: few layers, few heads and few words, all else as it is.

The ratio of queries to keys, a head's channels, how wide the model is for each head, flags, windows and rope stay.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from localspec.engine.generic_arch import HEADS, HIDDEN, LAYERS, POSITIONS, RECURRENT
from localspec.loading.generic import LEFT_OUT

NUM_LAYERS, WINDOW, INNER, CONTEXT = 4, 8, 96, 128
WIDEST, MOST = 1024, 16  # channels of all query heads, and queries to a key
INNERS = ("intermediate_size", "n_inner", "ffn_dim")
KEYS = ("num_key_value_heads", "num_kv_heads")
GAIN, FAINT = 4.0, 0.1  # of a linear and of a word: the next token depends on the whole text, not on the last one


def tiny(config: dict[str, Any], vocab: int) -> dict[str, Any]:
    """Its configuration. Both spellings of a size are changed where both are given."""
    known = record_of(config)
    heads = getattr(known, "num_attention_heads", 1)
    keys = next((config[name] for name in KEYS if config.get(name)), 1 if config.get("multi_query") else heads)
    per_head = known.hidden_size // heads
    group = min(heads // keys, MOST)
    few = 2 if keys > 1 and 2 * group * per_head <= WIDEST else 1
    sizes = {
        **dict.fromkeys(LAYERS, NUM_LAYERS),
        **dict.fromkeys(HEADS, few * group),
        **dict.fromkeys(KEYS, few),
        **dict.fromkeys(HIDDEN, few * group * per_head),
        **dict.fromkeys(INNERS, INNER),
        **dict.fromkeys(POSITIONS, CONTEXT),
        "vocab_size": vocab,
        "sliding_window": WINDOW,
        "max_window_layers": NUM_LAYERS // 2,
        "sliding_window_pattern": 2,
        "word_embed_proj_dim": few * group * per_head * config.get("word_embed_proj_dim", 1) // known.hidden_size,
        "expansion_ratio": 1,
    }
    small = {name: value for name, value in config.items() if not name.endswith("token_id")}
    small |= {name: value for name, value in sizes.items() if config.get(name) is not None}
    small |= {"bos_token_id": 0, "pad_token_id": 2}
    for name in ("layer_types", "no_rope_layers"):
        if isinstance(kinds := config.get(name), list):
            small[name] = (sorted(set(kinds)) * NUM_LAYERS)[:NUM_LAYERS]
    if isinstance(small.get("sliding_window_pattern"), str) or "layer_types" in small:
        small.pop("sliding_window_pattern", None)
    return small


def record_of(config: dict[str, Any]) -> Any:
    """transformers' own record of a configuration."""
    from transformers import CONFIG_MAPPING

    fields = {name: value for name, value in config.items() if name not in LEFT_OUT}
    return CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(fields))


def model_of(config: dict[str, Any]) -> Any:
    """transformers' model of it, with random weights."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    known = record_of(config)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(known)](known).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 2 and "A_log" not in name:
                    faint = FAINT if weight is model.get_input_embeddings().weight else 1
                    weight.normal_(0, faint * GAIN / weight.shape[1] ** 0.5)
                elif weight.dim() == 1 and config["model_type"] not in RECURRENT:
                    weight.normal_(0, 0.3) if name.endswith("bias") else weight.uniform_(0.5, 1.5)
    return model


def save(model: Any, config: dict[str, Any], folder: Path, tokenizer: Tokenizer) -> Path:
    """In Hugging Face's layout, with the configuration as it was published."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    weights: dict[int, tuple[str, torch.Tensor]] = {}
    for name, weight in model.state_dict().items():
        weights.setdefault(weight.data_ptr(), (name, weight.contiguous()))  # a tied head is stored once
    save_file(dict(weights.values()), folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def greedy(model: Any, prompt: list[int], length: int) -> list[int]:
    """What transformers' own generate goes on with."""
    defaults = model.generation_config
    defaults.eos_token_id = defaults.bos_token_id = defaults.pad_token_id = None
    ids = torch.tensor([prompt])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=length, do_sample=False)
    return [int(id) for id in found[0, len(prompt) :]]
