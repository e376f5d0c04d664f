"""The weight formats: one row for each on each class of device. A new format is a row here and what computes it.

Everything else asks this table: what --quant and the files may name, what "auto" tries, what a weight takes. The
kernels that rows name are in loading/kernels.py. Knows no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

Device = Literal["cpu", "cuda"]
Kernel = Literal["torch", "cpu engine", "bitsandbytes", "gptq"]
AutoOffload = Literal["never", "if asked", "always"]

AUTO = "auto"
INT8_THRESHOLD = 6.0  # LLM.int8 multiplies inputs beyond it in 16 bits (arXiv 2208.07339)
FOUR_BIT_BYTES = 9 / 16  # four bits and a share of a float32 scale, which is the most that a scale takes
BITSANDBYTES_BYTES = 118 << 20  # that its import takes: it loads torch's compiler


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A weight format on a class of device. `codec`: the kernel's own name for it: a dtype of torch, records of the CPU
    engine, a type of bitsandbytes.

    `auto`: tried by "auto" with all layers resident, in the table's order. `auto_offload`: tried by "auto" with
    offloaded layers, floats last: always, or where offloading was asked for. `smaller`: what to suggest where this does
    not fit. `import_bytes`: main memory that the kernel's library takes. `unpacks_linears`: the kernel makes 16 bits of
    a whole linear where a forward has many rows. `is_listed`: shown to users as a value of --quant.
    """

    name: str
    device: Device
    kernel: Kernel
    codec: str
    bytes_per_weight: float
    auto: bool = False
    can_offload: bool = False
    auto_offload: AutoOffload = "never"
    smaller: str = ""
    import_bytes: int = 0
    unpacks_linears: bool = False
    is_listed: bool = True

    @property
    def is_float(self) -> bool:
        return self.kernel == "torch"

    @property
    def is_packed(self) -> bool:
        """The CPU engine computes it."""
        return self.kernel == "cpu engine"

    @property
    def has_wide_tables(self) -> bool:
        """The embedding stays in 16 bits, and the head can."""
        return self.kernel in ("bitsandbytes", "gptq")

    @property
    def is_read_only(self) -> bool:
        """Checkpoints come in it; localspec quantises to another."""
        return self.kernel == "gptq"

    def __str__(self) -> str:
        return self.name


# On a CPU the best that fits is the CPU engine's; on a GPU a step takes as long as reading the weights does.
ROWS = (
    WeightFormat(
        "int8", "cpu", "cpu engine", "int8", 1.03, auto=True, can_offload=True, auto_offload="if asked", smaller="int4"
    ),
    WeightFormat("int4", "cpu", "cpu engine", "int4", 0.53, auto=True, can_offload=True, auto_offload="always"),
    WeightFormat("nf4", "cpu", "bitsandbytes", "nf4", FOUR_BIT_BYTES, import_bytes=BITSANDBYTES_BYTES),
    WeightFormat("fp4", "cpu", "bitsandbytes", "fp4", FOUR_BIT_BYTES, import_bytes=BITSANDBYTES_BYTES),
    WeightFormat("fp32", "cpu", "torch", "float32", 4, auto=True, can_offload=True, smaller="bf16"),
    WeightFormat(
        "bf16", "cpu", "torch", "bfloat16", 2, auto=True, can_offload=True, auto_offload="always", smaller="int8"
    ),
    WeightFormat("fp64", "cpu", "torch", "float64", 8, can_offload=True, smaller="bf16", is_listed=False),
    WeightFormat("gptq", "cpu", "gptq", "gptq", FOUR_BIT_BYTES, is_listed=False),
    WeightFormat(
        "bf16", "cuda", "torch", "bfloat16", 2, auto=True, can_offload=True, auto_offload="always", smaller="int8"
    ),
    WeightFormat(
        "int8", "cuda", "bitsandbytes", "int8", 1, auto=True, can_offload=True, auto_offload="if asked", smaller="nf4"
    ),
    WeightFormat(
        "nf4",
        "cuda",
        "bitsandbytes",
        "nf4",
        FOUR_BIT_BYTES,
        auto=True,
        can_offload=True,
        auto_offload="always",
        unpacks_linears=True,
    ),
    WeightFormat("fp4", "cuda", "bitsandbytes", "fp4", FOUR_BIT_BYTES, can_offload=True, unpacks_linears=True),
    WeightFormat("fp32", "cuda", "torch", "float32", 4, can_offload=True, smaller="bf16"),
    WeightFormat("fp64", "cuda", "torch", "float64", 8, can_offload=True, smaller="bf16", is_listed=False),
    WeightFormat("gptq", "cuda", "gptq", "gptq", FOUR_BIT_BYTES, is_listed=False),
)
FORMATS: dict[tuple[str, Device], WeightFormat] = {(row.name, row.device): row for row in ROWS}
LISTED = tuple(dict.fromkeys(row.name for row in ROWS if row.is_listed))

if TYPE_CHECKING:
    ListedFormat = str
    ListedOrAuto = str
else:  # what a file may name
    ListedFormat = Literal[LISTED]
    ListedOrAuto = Literal[(AUTO, *LISTED)]


def device_class(device: str) -> Device:
    return "cuda" if device == "cuda" else "cpu"


def find_format(name: str, device: str = "cpu") -> WeightFormat:
    """The row of a format that is there on this device."""
    return FORMATS[name, device_class(device)]


def is_on(name: str, device: str) -> bool:
    """Whether a format that may be asked for is there on this device."""
    row = FORMATS.get((name, device_class(device)))
    return row is not None and not row.is_read_only


def is_known(name: str) -> bool:
    return is_on(name, "cpu") or is_on(name, "cuda")


def auto_formats(device: str, *, packed: bool) -> tuple[WeightFormat, ...]:
    """What "auto" tries with all layers resident, best first. `packed`: the CPU engine's, faster than torch."""
    rows = FORMATS.values()
    return tuple(row for row in rows if row.auto and row.device == device_class(device) and row.is_packed == packed)


def auto_offload_formats(device: str, *, packed: bool, asked: bool) -> tuple[WeightFormat, ...]:
    """What "auto" tries with offloaded layers, best first: the fewest bytes that keep their quality, then floats, which
    need no weight cache. Unasked, four bits: int8 has twice the bytes to bring for every step."""
    offload = ("always", "if asked") if asked else ("always",)
    rows = [row for row in FORMATS.values() if row.device == device_class(device) and row.auto_offload in offload]
    return tuple(sorted((row for row in rows if packed or not row.is_packed), key=lambda row: row.is_float))


def either(*names: str) -> str:
    """ "int8, int4 or bf16"."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


FLOATS = tuple(row.name for row in auto_formats("cpu", packed=False))  # best first; every machine computes them
BY_BITSANDBYTES = ", ".join(  # for help
    row.name if (row.name, "cpu") in FORMATS and FORMATS[row.name, "cpu"].kernel == row.kernel else f"GPU {row.name}"
    for row in {row.name: row for row in ROWS if row.kernel == "bitsandbytes"}.values()
)
SMALLEST_ANYWHERE = auto_formats("cuda", packed=False)[-1].name  # of those that any family runs in, on any device
