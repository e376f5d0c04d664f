"""What computes the weight formats: for each kernel that the table names, how it loads a model and what checks it.

A new kernel is a row here. Decides nothing: the plan did.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any  # Any: a model's config.json

from localspec.core.drain import relay
from localspec.core.errors import DoesNotFit, EngineError
from localspec.core.events import Loading, Notice
from localspec.core.main_memory import trim
from localspec.core.weight_formats import FLOATS, Kernel, either
from localspec.engine.arch import Arch
from localspec.engine.generic_arch import GenericArch, is_generic, read_any
from localspec.engine.linear import quantiser
from localspec.engine.memory import is_out_of_memory
from localspec.engine.protocols import Resident
from localspec.loading.plan import Plan, ways_out
from localspec.loading.self_check.config import verify_config
from localspec.loading.self_check.formats import STAND_IN, verify_format
from localspec.loading.tensor_names import check_tensors
from localspec.loading.torch import load_torch, plan_words
from localspec.models.checkpoint import Snapshot

if TYPE_CHECKING:
    from localspec.engine.cpu.program import Program

Config = dict[str, Any]
Steps = Generator[Loading | Notice, None, None]


@dataclass(frozen=True, slots=True)
class Loader:
    """How a kernel's weights become a decoder of ours, with Loading events of this stage; None where only transformers
    runs it. `verify`: the self-check of the format in this configuration; EngineError where it fails."""

    load: Callable[[Snapshot, Arch, Plan, str], Generator[Loading | Notice, None, Resident]] | None
    verify: Callable[[Config, Plan], Steps]


def load_decoder(
    snapshot: Snapshot, plan: Plan, *, stage: str = "loading weights"
) -> Generator[Loading | Notice, None, Resident]:
    """Loading events in bytes; returns the decoder that the plan's format asks for."""
    arch = read_any(snapshot.config)
    try:
        if isinstance(arch, GenericArch):
            from localspec.loading.generic import load_generic  # it imports transformers, which takes seconds

            return (yield from load_generic(snapshot, arch, plan, stage=stage))
        check_tensors(snapshot, arch)
        load = KERNELS[plan.weight_format.kernel].load
        assert load is not None
        return (yield from load(snapshot, arch, plan, stage))
    except (RuntimeError, MemoryError) as fault:
        if not is_out_of_memory(fault):
            raise
        message = f"Memory ran out while loading {snapshot.name} in {plan}, planned with {plan_words(snapshot, plan)}."
        raise DoesNotFit(message, hint=ways_out(plan, generic=isinstance(arch, GenericArch))) from fault
    finally:
        trim()


def verify(snapshot: Snapshot, plan: Plan) -> Steps:
    """The self-check of a plan; EngineError or CheckpointError where its decoder computes this configuration wrongly,
    or cannot run."""
    yield Loading("checking the configuration", 0, 1, "steps")  # seconds where transformers must be imported for it
    if is_generic(snapshot.config):  # it is checked with its own weights, when they are there
        yield from KERNELS[plan.weight_format.kernel].verify(STAND_IN, plan)
        return
    verify_config(snapshot.config)
    yield from KERNELS[plan.weight_format.kernel].verify(snapshot.config, plan)


def load_packed(snapshot: Snapshot, arch: Arch, plan: Plan, stage: str) -> Generator[Loading | Notice, None, Resident]:
    from localspec.loading import cpu  # not every machine with a GPU has what a CPU's engine needs

    return (yield from cpu.load_packed(snapshot, arch, plan, stage=stage))


def verify_packed(config: Config, plan: Plan) -> Steps:
    program = yield from compiled_engine()
    from localspec.loading.self_check import cpu

    assert plan.packed is not None
    cpu.verify_packed(config, plan.packed, program)


def compiled_engine() -> Generator[Loading | Notice, None, Program]:
    """The CPU engine, compiled the first time; a Notice where it will have to be compiled every time."""
    try:
        from localspec.engine.cpu.isa import choose
        from localspec.engine.cpu.program import loading
    except ImportError as fault:
        raise EngineError(
            f"The CPU engine needs {fault.name}, which is not installed.", hint=f"Use --quant {either(*FLOATS)}."
        ) from fault
    program = yield from relay(loading(choose()), compiling)
    if not program.kept:
        message = "The compiled engine cannot be kept on disk, so every start compiles it again."
        yield Notice("info", "cache", message, "Set LOCALSPEC_CACHE_DIR to a folder that can be written.")
    return program


def compiling(step: tuple[int, int] | None) -> Loading:
    """Progress of the compilation; None while another process does it."""
    if step is None:
        return Loading("waiting for another start, which compiles the engine", 0, 1, "steps")
    return Loading("compiling the engine (once)", *step, unit="steps")


def verify_quantised(config: Config, plan: Plan) -> Steps:
    verify_format(config, quantiser(plan.weight_format, threshold=plan.options.int8_threshold))
    yield from ()


def nothing_to_verify(config: Config, plan: Plan) -> Steps:  # noqa: ARG001 - floats are as transformers has them
    yield from ()


KERNELS: dict[Kernel, Loader] = {
    "torch": Loader(load_torch, nothing_to_verify),
    "cpu engine": Loader(load_packed, verify_packed),
    "bitsandbytes": Loader(load_torch, verify_quantised),
    "gptq": Loader(None, nothing_to_verify),  # for transformers alone: our decoder has such weights unpacked
}
