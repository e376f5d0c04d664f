"""Numerical self-check of our decoder: a random two-layer stand-in for a configuration must agree with transformers.

The verdict is remembered by a hash of the stand-in and all versions, so transformers is imported once per kind of
model: 8B and 70B have the same one. Knows nothing about real weights.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError
from localspec.core.self_check_results import difference_of
from localspec.core.version import __version__
from localspec.engine.arch import NEUTRAL, Arch, read_arch
from localspec.engine.transformers_faults import own_faults, transformers_faults
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble

TOLERANCE = 2e-5  # of the largest logit: float32 rounding of two layers stays well below
ROWS = 24
SMALL = {"vocab_size": 320, "intermediate_size": 96, "num_hidden_layers": 2}
SMALL_WINDOW = 8  # so that 24 rows feel it


def verify_config(config: dict[str, Any]) -> None:
    """CheckpointError where the decoder computes something else than transformers does for this config."""
    off = difference_of(fingerprint(config), lambda: difference(config))
    if not off <= TOLERANCE:
        message = f"localspec's decoder does not agree with transformers on this configuration (off by {off:.1e})."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)


def fingerprint(config: dict[str, Any]) -> str:
    text = json.dumps([shrink(config), version("transformers"), version("torch"), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def difference(config: dict[str, Any]) -> float:
    """Largest difference of logits, as a share of the largest logit; infinite where the best token differs."""
    with transformers_faults():
        foreign_config(config)
    small = shrink(config)
    ids = torch.arange(ROWS) * 37 % small["vocab_size"]
    with own_faults():
        reference = transformers_model(small)
        expected = reference_logits(reference, ids)
    decoder = assemble(read_arch(small), StateDictSource(reference.state_dict()), dtype=torch.float32, context=ROWS)
    got = torch.cat([decoder.forward(part) for part in ids.split((ROWS - 4, 1, 3))])
    if not torch.equal(got.argmax(-1), expected.argmax(-1)):
        return float("inf")
    return float((got - expected).abs().max() / expected.abs().max())


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """The stand-in: two layers and few heads, as wide for each head as the model is; every flag stays."""
    arch = read_arch(config)
    kv_heads = min(arch.num_kv_heads, 2)
    heads = kv_heads * min(arch.query_group, 4)
    sizes = {**SMALL, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    sizes["hidden_size"] = heads * max(arch.hidden_size // arch.num_heads, 1)
    return {**telling(config), **sizes, **windows(config, arch)}


def telling(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config that decide a forward."""
    return {name: value for name, value in config.items() if name not in NEUTRAL}


def windows(config: dict[str, Any], arch: Arch) -> dict[str, Any]:
    """Windows so short that the rows feel them, also where the config says that they are not used."""
    found: dict[str, Any] = {}
    if any(arch.windows) or config.get("sliding_window") is not None:
        found["sliding_window"] = SMALL_WINDOW
    if any(arch.windows) or "max_window_layers" in config:
        found["max_window_layers"] = 1
    if kinds := config.get("layer_types"):
        found["layer_types"] = (sorted(set(kinds)) * 2)[:2] if any(arch.windows) else ["full_attention"] * 2
    return found


def foreign_config(config: dict[str, Any]) -> Any:  # Any: transformers is untyped
    """transformers' record of a configuration, of its own class for this type."""
    from transformers import CONFIG_MAPPING

    fields = {name: value for name, value in telling(config).items() if name != "model_type"}
    return CONFIG_MAPPING[config["model_type"]](**deepcopy(fields))  # it writes into the dicts it is given


def transformers_model(config: dict[str, Any]) -> Any:
    """A random model of transformers' own, built from the config and never from code in a repository."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    made = foreign_config(config)
    made._attn_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(made)](made).float().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0, 0.08) if weight.dim() > 1 else weight.uniform_(0.5, 1.5)
    return model


def reference_logits(model: Any, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(ids[None]).logits[0]
    return logits
