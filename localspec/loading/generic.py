"""Checkpoint and plan to a model of transformers, for families that our decoder does not know.

transformers is given the config as we checked it and the tensors as we read them, and no folder: it finds no code, no
pickle and no adapter to load. Whether the model then computes what it should is checked with its own weights.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import pairwise
from typing import TYPE_CHECKING, Any  # Any: transformers is untyped

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError, EngineError, first_line
from localspec.core.events import Loading, Notice
from localspec.engine.generic_arch import GenericArch
from localspec.engine.linear import Linear, Quantiser, dtype_of, quantiser
from localspec.engine.sampling import finite
from localspec.engine.transformers_faults import transformers_faults
from localspec.loading.plan import Plan
from localspec.loading.progress import progress
from localspec.loading.quantised_linears import Parts, QuantisedContents
from localspec.loading.sources import refuse_not_numbers, slabs
from localspec.loading.weight_cache import CachedWeights
from localspec.models.checkpoint import Snapshot
from localspec.models.dtypes import LEFT_OVER
from localspec.models.prequantised.stored_format import is_gptq, read_gptq

if TYPE_CHECKING:
    from localspec.engine.generic import GenericDecoder

# What transformers would act on beyond describing the model, or what is ours to say. What could run or fetch something
# is refused or dropped where the file is read (foreign_code.py).
LEFT_OUT = (
    "quantization_config",  # has other packages imported; ours alone says how weights are stored
    "fusion_config",  # rewrites layers
    "distributed_config",  # spreads the model over processes
    "transformers_weights",  # names other files of weights
    "dtype",  # the plan's
    "torch_dtype",
    "output_attentions",  # what a forward returns
    "output_hidden_states",
    "return_dict",
    "use_cache",
)
SLACK = 2.1  # elements that a config may ask for, to each that is stored: a head may be tied
ROWS, PREFIX, REJECTED = 24, 13, 5
HALF = 2  # bytes
EXACT, NEAR = 1e-3, 0.1  # of the root mean square of a row's logits: in float32, and where rows are rounded
BLOCK = 64


def load_generic(
    snapshot: Snapshot, arch: GenericArch, plan: Plan, *, stage: str
) -> Generator[Loading | Notice, None, GenericDecoder]:
    """Loading events in bytes; returns the decoder."""
    from localspec.engine.generic import GenericDecoder

    total = snapshot.total_bytes
    yield Loading(stage, 0, total, "bytes")
    row, options = plan.weight_format, plan.options
    model = build(snapshot, dtype_of(row))
    if row.kernel == "bitsandbytes":
        maker = quantiser(row, threshold=options.int8_threshold)
        yield from quantised(snapshot, Linears(model, maker, keep_head=options.keep_head), plan, stage)
    decoder = GenericDecoder(arch, resident(model, plan.device), plan.context)
    check(decoder, snapshot.name, EXACT if dtype_of(row).itemsize > HALF else NEAR)
    yield Loading(stage, total, total, "bytes", 0.0)
    return decoder


def build(snapshot: Snapshot, dtype: torch.dtype) -> Any:
    """transformers' model with the snapshot's weights, every one assigned."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    fields = {name: value for name, value in snapshot.config.items() if name not in LEFT_OUT}
    with transformers_faults(snapshot.name), ExitStack() as stack:
        config = CONFIG_MAPPING[fields["model_type"]].from_dict(copy.deepcopy(fields))
        kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        refuse_too_large(kind, config, snapshot)
        if is_gptq(snapshot.config):
            stack.enter_context(uncompiled())
            config.quantization_config = {**read_gptq(snapshot.config), "backend": "torch"}  # the one for any device
        model, report = kind.from_pretrained(
            None,
            config=config,
            state_dict=read_all(snapshot),
            dtype=dtype,
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    refuse_incomplete(report, snapshot.name)
    return model.eval()


def read_all(snapshot: Snapshot) -> dict[str, Tensor]:
    """Every tensor by name, mapped from its file: nothing is read yet."""
    found: dict[str, Tensor] = {}
    for file in sorted({info.file for info in snapshot.tensors.values()}):
        try:
            with safe_open(file, framework="pt") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 # it is no dict
        except (SafetensorError, OSError) as fault:
            raise CheckpointError(f"{file} cannot be read ({fault}).", hint="Download the model again.") from fault
    return found


def resident(model: Any, device: str) -> Any:
    """Moves the model to its device, no weight still mapped: a file that changed would change the model, or crash."""
    if device == "cpu":
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.data = tensor.data.clone()
    return model.to(device)


@contextmanager
def uncompiled() -> Iterator[None]:
    """gptqmodel would have torch compile its products, and not every machine has what that needs; and it greets."""
    import torch._dynamo

    with torch._dynamo.config.patch(disable=True), redirect_stdout(sys.stderr):
        yield


def refuse_too_large(kind: Any, config: Any, snapshot: Snapshot) -> None:
    """Refuses a config that asks for more than the files hold: transformers would fill the rest at random."""
    with torch.device("meta"):
        asked = sum(weight.numel() for weight in kind(copy.deepcopy(config)).parameters())
    packed = 32 // read_gptq(snapshot.config)["bits"] if is_gptq(snapshot.config) else 1
    held = sum(math.prod(info.shape) * (packed if info.dtype == "I32" else 1) for info in snapshot.tensors.values())
    if asked > SLACK * held:
        message = f"config.json describes {asked:,} weights, and {snapshot.name} has {held:,}."
        raise CheckpointError(message, hint="Download the model again.")


def refuse_incomplete(report: dict[str, Any], name: str) -> None:
    """transformers would go on with random weights for missing ones, and ignore those it does not know."""
    for kind, what in (
        ("missing_keys", "lacks the tensor '{}'"),
        ("mismatched_keys", "has the tensor '{}' in another shape than its config says"),
        ("unexpected_keys", "has a tensor that its config does not explain: '{}'"),
    ):
        found = sorted(key if isinstance(key, str) else key[0] for key in report[kind])
        found = [key for key in found if kind != "unexpected_keys" or not key.endswith(LEFT_OVER)]
        if found:
            hint = CHOOSE_ANOTHER if kind == "unexpected_keys" else "Download the model again."
            raise CheckpointError(f"The checkpoint of {name} {what.format(found[0][:120])}.", hint=hint)
    if report.get("error_msgs"):
        reason = " ".join(str(report["error_msgs"]).split())[:200]
        raise CheckpointError(f"transformers cannot load {name} ({reason}).", hint="Download the model again.")


def quantised(snapshot: Snapshot, linears: Linears, plan: Plan, stage: str) -> Iterator[Loading | Notice]:
    """Reads the weight cache if it is intact; else quantises, and caches the result if asked to."""
    contents = QuantisedContents.of(linears.maker, linears.shapes())
    copy, found = CachedWeights(snapshot, contents, asked=True), Parts()
    yield from progress(stage, contents.num_bytes, copy.read(found))
    yield from progress(stage, snapshot.total_bytes, linears.replace(contents.join(found)))
    if plan.options.save_quantized and not found:
        yield from copy.keep(contents.split(linears.made))


class Linears:
    """A model's linears by name, and what replaces them."""

    def __init__(self, model: Any, maker: Quantiser, *, keep_head: bool) -> None:
        self.maker, self.made = maker, dict[str, Linear]()
        kept = model.get_output_embeddings() if keep_head else None
        self.found = {
            f"{path}.{name}".lstrip("."): (parent, name)
            for path, parent in model.named_modules()
            for name, child in parent.named_children()
            if is_linear(child) and child is not kept
        }

    def shapes(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for name, (parent, child) in self.found.items():
            yield name, rows_of(getattr(parent, child))[1]

    def replace(self, kept: Mapping[str, Parts]) -> Generator[int, None, None]:
        """Replaces the linears one by one, freeing their floats; yields bytes done."""
        from localspec.engine.generic import Quantised

        for name, (parent, child) in self.found.items():
            linear = getattr(parent, child)
            rows, shape, bias = rows_of(linear)
            if parts := kept.get(name):
                made: Linear = self.maker.restored(parts, shape, bias)
            else:
                refuse_not_numbers(f"{child}.weight", linear.weight.detach())
                self.made[name] = made = self.maker.linear(rows, shape, bias)
            setattr(parent, child, Quantised(made))
            yield linear.weight.nbytes


def is_linear(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, nn.Linear | Conv1D)


def rows_of(linear: Any) -> tuple[Iterator[Tensor], tuple[int, int], Tensor | None]:
    """Its weight [outputs, inputs] some rows at a time, the shape, and the bias. A Conv1D has it transposed."""
    weight = linear.weight.detach()
    weight = weight if isinstance(linear, nn.Linear) else weight.t()
    shape = (weight.shape[0], weight.shape[1])
    bias = None if linear.bias is None else linear.bias.detach()
    return (weight[first:last] for first, last in slabs(*shape, BLOCK)), shape, bias


def check(decoder: GenericDecoder, name: str, tolerance: float) -> None:
    """Rows read in parts, with some taken back in between, must say what transformers says of the whole text."""
    rows = min(ROWS, decoder.context)
    ids = torch.arange(rows) * 37 % decoder.arch.vocab_size
    expected = finite(decoder.at_once(ids))
    try:
        off = max(far(got, expected) for got in readings(decoder, ids))
    except (RuntimeError, IndexError, AttributeError) as fault:
        raise otherwise(name, first_line(fault)) from fault
    decoder.crop(0)
    decoder.bytes_read = 0
    if not off <= tolerance:
        raise otherwise(name, f"off by {off:.1e}")


def otherwise(name: str, why: str) -> EngineError:
    message = f"transformers gives other results for {name} when a text is read in parts ({why})."
    return EngineError(message, hint="Choose another model, or another --quant.")


def readings(decoder: GenericDecoder, ids: Tensor) -> Iterator[Tensor]:
    """The text in three parts, after a draft that was taken back; and once more from its start."""
    prefix = min(PREFIX, len(ids) // 2)
    draft = ids[: min(REJECTED, len(ids) - prefix)]
    for kept in (prefix, 0):
        decoder.crop(0)
        decoder.forward(ids[:prefix])
        decoder.forward(draft)
        decoder.crop(kept)
        positions = sorted({decoder.length, prefix, prefix + 1, len(ids)})  # the length is 0 where all had to go
        parts = [decoder.forward(ids[begin:end]) for begin, end in pairwise(positions)]
        yield torch.cat(parts)


def far(got: Tensor, expected: Tensor) -> float:
    """Relative error of the worst row; infinite where anything is NaN."""
    expected = expected[-len(got) :].float()
    size = expected.square().mean(-1).sqrt().clamp_min(torch.finfo(torch.float32).tiny)  # 0 after a token of zeros
    off = (got.float() - expected).square().mean(-1).sqrt() / size
    return float(off.max()) if off.isfinite().all() else float("inf")
