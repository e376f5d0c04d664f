"""May a configuration run on our decoder? A random two-layer model of it must agree with transformers in float32.

The verdict is remembered by a hash of the config and both versions, so transformers is imported once per kind of model.
Knows nothing about real weights.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from localspec import __version__
from localspec.engine.arch import ELSE, read_arch
from localspec.engine.foreign import transformers_faults
from localspec.errors import CheckpointError
from localspec.loader import assemble
from localspec.sources import Memory
from localspec.verdicts import difference_of

TOLERANCE = 2e-5  # of the largest logit: float32 rounding of two layers stays well below
ROWS = 24
SMALL = {"vocab_size": 320, "intermediate_size": 96, "num_hidden_layers": 2}
SMALL_WINDOW = 8  # so that 24 rows feel it
IDENTITY = ("bos_token_id", "eos_token_id", "pad_token_id", "architectures", "transformers_version", "_name_or_path")


def admit(config: dict[str, Any]) -> None:
    """Nothing, or CheckpointError: the decoder computes something else than transformers does for this config."""
    off = difference_of(fingerprint(config), lambda: difference(config))
    if not off <= TOLERANCE:
        message = f"localspec's decoder does not agree with transformers on this configuration (off by {off:.1e})."
        raise CheckpointError(message, hint=ELSE)


def fingerprint(config: dict[str, Any]) -> str:
    said = {name: value for name, value in config.items() if name not in IDENTITY}
    text = json.dumps([said, version("transformers"), version("torch"), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def difference(config: dict[str, Any]) -> float:
    """Largest difference of logits, as a share of the largest logit; infinite where the best token differs."""
    small = shrink(config)
    ids = torch.arange(ROWS) * 37 % small["vocab_size"]
    with transformers_faults():
        reference = transformers_model(small)
        expected = reference_logits(reference, ids)
    decoder = assemble(read_arch(small), Memory(reference.state_dict()), dtype=torch.float32, context=ROWS)
    got = torch.cat([decoder.forward(part) for part in ids.split((ROWS - 4, 1, 3))])
    if not torch.equal(got.argmax(-1), expected.argmax(-1)):
        return float("inf")
    return float((got - expected).abs().max() / expected.abs().max())


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """The same kind of model with two layers and few heads; every flag stays."""
    arch = read_arch(config)
    kv_heads = min(arch.num_kv_heads, 2)
    heads = kv_heads * min(arch.query_group, 4)
    explicit = config.get("head_dim") or arch.family == "qwen3"
    sizes = {**SMALL, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    small = {**plain(config), **sizes, "hidden_size": 128 if explicit else heads * arch.head_dim}
    if any(arch.windows):
        small |= {"sliding_window": SMALL_WINDOW, "max_window_layers": 1}
        kinds = config.get("layer_types")
        small |= {"layer_types": sorted(set(kinds)) * 2} if kinds else {}
        if kinds:
            small["layer_types"] = small["layer_types"][:2]
    elif "layer_types" in small:
        small["layer_types"] = ["full_attention"] * 2
    return small


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """As if the weights had never been quantised."""
    return {name: value for name, value in config.items() if name != "quantization_config"}


def transformers_model(config: dict[str, Any]) -> Any:  # Any: transformers is untyped
    """A random model of transformers' own, built from the config and never from anybody's code."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    said = {
        name: value for name, value in config.items() if name not in (*IDENTITY, "model_type", "dtype", "torch_dtype")
    }
    built = CONFIG_MAPPING[config["model_type"]](**deepcopy(said))  # it writes into the dicts it is given
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(built, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0, 0.08) if weight.dim() > 1 else weight.uniform_(0.5, 1.5)
    return model


def reference_logits(model: Any, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(ids[None]).logits[0]
    return logits
