"""Writes unpacked.safetensors: small packed weights, and what the libraries whose layouts localspec reads make of them.

GPTQModel has packed its own; the others unpack what tests/support/prequantised.py has packed.

In an environment beside .venv, which sees .venv's torch (the libraries are no dependency of localspec):

    python3 -m venv /tmp/libraries
    echo $PWD/.venv/lib/python3.11/site-packages > /tmp/libraries/lib/python3.11/site-packages/localspec.pth
    /tmp/libraries/bin/pip install 'gptqmodel==7.6.0' optimum loguru 'torch==2.13.0'
    /tmp/libraries/bin/pip install --no-deps --target /tmp/new compressed-tensors==0.20.0
    /tmp/libraries/bin/pip install --no-deps --target /tmp/old compressed-tensors==0.9.2
    pip download --no-deps autoawq==0.2.9 && tar xzf autoawq-0.2.9.tar.gz --directory /tmp
    PYTHONPATH=. /tmp/libraries/bin/python -m tests.recorded.unpacked gptqmodel
    PYTHONPATH=.:/tmp/autoawq-0.2.9/awq /tmp/libraries/bin/python -m tests.recorded.unpacked autoawq
    PYTHONPATH=/tmp/new:. /tmp/libraries/bin/python -m tests.recorded.unpacked compressed-tensors
    PYTHONPATH=/tmp/old:. /tmp/libraries/bin/python -m tests.recorded.unpacked compressed-tensors-old

Scales are float32 here, so that the libraries do not round what they unpack. Knows nothing of localspec.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from tests.support.prequantised import STYLES, Rounded, neighbours, rounded, shuffled

FILE = Path(__file__).with_suffix(".safetensors")
OUTPUTS, INPUTS = 32, 96
Recorded = tuple[str, str, dict[str, Tensor], Tensor]  # style, library, tensors, weight [outputs, inputs]

GPTQ = {name: STYLES[name] for name in ("gptq", "gptq 2", "gptq 3", "gptq 8", "gptq uneven", "gptq ordered", "gptq v2")}


def weight() -> Tensor:
    """With whole rows above zero, whose zero points are 0."""
    made = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0)) * 0.1
    made[::3] = made[::3].abs() + 0.01
    return made


def found(fields: dict[str, Any], *, low: int = 0, sym: bool) -> Rounded:
    groups = (shuffled if fields.get("desc_act") else neighbours)(INPUTS, fields["group_size"])
    return rounded(weight(), fields["bits"], groups, sym=sym, low=low, dtype=torch.float32)


def gptqmodel() -> Iterator[Recorded]:
    """Packed by its torch linear, and unpacked by another that reads what it has packed."""
    import torch._dynamo
    from gptqmodel import BACKEND
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module

    def empty(fields: dict[str, Any]) -> Any:
        flags = {name: fields[name] for name in ("bits", "group_size", "sym", "desc_act")}
        sizes = {"in_features": INPUTS, "out_features": OUTPUTS, "bias": False, "pack_dtype": torch.int32}
        return TorchLinear(**flags, **sizes, backend=BACKEND.TORCH, register_buffers=True)

    for style, kind in GPTQ.items():
        fields, linear = kind.config, torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
        made, packed, read = found(fields, sym=fields["sym"]), empty(fields), empty(fields)
        linear.weight.data = made.meant
        packed.pack(linear, made.scales, torch.tensor(made.zeros).float(), torch.tensor(made.group_of))
        is_first = fields.get("checkpoint_format") != "gptq_v2"
        if is_first:
            convert_gptq_v2_to_v1_format_module(packed, SimpleNamespace(bits=fields["bits"], pack_dtype=torch.int32))
        parts = {name: getattr(packed, name).clone() for name in ("qweight", "qzeros", "scales", "g_idx")}
        parts["scales"] = made.scales.t().contiguous()
        for name, tensor in parts.items():
            setattr(read, name, tensor.clone())
        if is_first:
            convert_gptq_v1_to_v2_format_module(read, bits=fields["bits"], pack_dtype=torch.int32)
        read.post_init()
        with torch._dynamo.config.patch(disable=True):
            yield style, "gptqmodel", parts, read.eval().dequantize_weight().t().float()


def autoawq() -> Iterator[Recorded]:
    """By the function that its gemm falls back to: the module itself wants CUDA to be imported."""
    unpack = importlib.import_module("utils.packing_utils").dequantize_gemm
    kind = STYLES["awq"]
    parts, _ = kind.make(weight())
    parts["scales"] = parts["scales"].float()
    got = unpack(parts["qweight"], parts["qzeros"], parts["scales"], 4, kind.config["group_size"])
    yield "awq", "autoawq", parts, got.t()


def compressed(decompress: Callable[..., Tensor], names: tuple[str, ...]) -> Iterator[Recorded]:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    for style in names:
        fields = STYLES[style].config
        whole = QuantizationConfig.model_validate(fields)
        (scheme,) = whole.config_groups.values()
        parts, _ = STYLES[style].make(weight())
        parts = {name: tensor.float() if name == "weight_scale" else tensor for name, tensor in parts.items()}
        yield style, "compressed-tensors", parts, decompress(BaseCompressor, fields["format"], whole, scheme, parts)


def newest(base: Any, style: str, _: Any, scheme: Any, parts: dict[str, Tensor]) -> Tensor:
    return base.get_value_from_registry(style).decompress(parts, scheme)["weight"]


def oldest(base: Any, style: str, config: Any, scheme: Any, parts: dict[str, Tensor]) -> Tensor:
    return base.load_from_registry(style, config=config).decompress_weight(parts, scheme.weights)


NEWEST = ("w4a16", "w4a16 uneven", "w8a16", "w8a8", "w8 uneven", "ct fp8", "ct fp8 dynamic", "ct fp8 block")
LIBRARIES: dict[str, Callable[[], Iterator[Recorded]]] = {
    "gptqmodel": gptqmodel,
    "autoawq": autoawq,
    "compressed-tensors": lambda: compressed(newest, NEWEST),
    "compressed-tensors-old": lambda: compressed(oldest, ("w4a16 ordered", "w4a16 loose")),
}


def record(library: str) -> None:
    """Beside what others have recorded."""
    tensors, by = dict[str, Tensor](), dict[str, str]()
    if FILE.exists():
        with safe_open(FILE, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 # it is no dict
            by = json.loads(opened.metadata()["by"])
    for style, name, parts, whole in LIBRARIES[library]():
        known = "0.2.9" if name == "autoawq" else version(name)
        by[style] = f"{name} {known}"
        tensors |= {f"{style}/{part}": tensor.contiguous() for part, tensor in (parts | {"whole": whole}).items()}
    save_file(tensors, FILE, {"by": json.dumps(by, sort_keys=True)})


if __name__ == "__main__":
    record(sys.argv[1])
