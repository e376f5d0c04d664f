"""Measures the loss of 4-bit and 8-bit formats on weights in groups of 64: relative root mean square errors, a
Markdown table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from bitsandbytes.functional import dequantize_4bit, get_4bit_type, quantize_4bit
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.program import Arguments, run
from localspec.engine.cpu.formats import LEVELS
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.pack import pack, unpack
from localspec.engine.cpu.program import load

GROUPS, SEED = 8192, 1
FIT_GROUPS, FIT_SEED, FIT_ROUNDS = 32768, 0, 40
FIT_SHARES = [0.8, 0.84, 0.88, 0.92, 0.96, 1.0, 1.04, 1.08, -0.96, -1.02, -1.08, -1.14, -1.2]
FINE = torch.linspace(0.6, 1.3, 36).tolist()


def samples() -> dict[str, Tensor]:
    """Groups [n, 64]: normal, the guide's own linears, and tails heavier than real ones."""
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    guide = load_file("assets/guide/target/model.safetensors")
    linears = torch.cat([w.float().view(-1, 64) for name, w in sorted(guide.items()) if "_proj." in name])
    chosen = torch.randperm(len(linears), generator=generator)[:GROUPS]
    return {
        "normal": torch.randn(GROUPS, 64, generator=generator),
        "guide": linears[chosen],
        "Student t, 5": torch.distributions.StudentT(5.0).sample((GROUPS, 64)),
        "Student t, 3": torch.distributions.StudentT(3.0).sample((GROUPS, 64)),
    }


def farthest(groups: Tensor) -> Tensor:
    return groups.gather(1, groups.abs().argmax(-1, keepdim=True))


def codes(groups: Tensor, table: Tensor, scale: Tensor) -> Tensor:
    return torch.bucketize(groups / scale, (table[1:] + table[:-1]) / 2)


def best_scale(groups: Tensor, table: Tensor, shares: list[float]) -> Tensor:
    """The best of scales that are so many times the one that takes the farthest weight to 1."""
    best, chosen = torch.full((len(groups), 1), torch.inf), farthest(groups)
    for share in shares:
        scale = (farthest(groups) * share).bfloat16().float()
        found = table[codes(groups, table, scale)] * scale
        error = (found - groups).square().sum(-1, keepdim=True)
        best, chosen = torch.minimum(best, error), torch.where(error < best, scale, chosen)
    return chosen


def searched(groups: Tensor, table: Tensor, shares: list[float]) -> Tensor:
    scale = best_scale(groups, table, shares)
    return table[codes(groups, table, scale)] * scale


def zero_point(groups: Tensor, shares: list[float]) -> Tensor:
    """Sixteen even levels between a least and a greatest weight, both searched."""
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    best, chosen = torch.full((len(groups), 1), torch.inf), groups
    for below in shares:
        for above in shares:
            least, step = low * below, (high * above - low * below) / 15
            found = ((groups - least) / step).round().clamp(0, 15) * step + least
            error = (found - groups).square().sum(-1, keepdim=True)
            best, chosen = torch.minimum(best, error), torch.where(error < best, found, chosen)
    return chosen


def int8(groups: Tensor, shares: list[float]) -> Tensor:
    """The best of scales that are so many times the one that takes the farthest weight to 127."""
    best, chosen = torch.full((len(groups), 1), torch.inf), groups
    for share in shares:
        scale = (groups.abs().amax(-1, keepdim=True) * share / 127).bfloat16().float()
        found = (groups / scale).round().clamp(-127, 127) * scale
        error = (found - groups).square().sum(-1, keepdim=True)
        best, chosen = torch.minimum(best, error), torch.where(error < best, found, chosen)
    return chosen


def formats() -> dict[str, Callable[[Tensor], Tensor]]:
    even, nf4 = torch.arange(-8, 8) / 8, get_4bit_type("nf4", device="cpu")
    both = FINE + [-share for share in FINE]
    program = load(choose())
    return {
        "bitsandbytes nf4": lambda x: dequantize_4bit(*quantize_4bit(x, blocksize=64, quant_type="nf4")),
        "nf4's levels, scale searched": lambda x: searched(x, nf4, FINE),
        "nf4's levels, scale and sign searched": lambda x: searched(x, nf4, both),
        "-7 to 7, farthest weight at 7": lambda x: searched(x, even[1:] * 8 / 7, [1.0, -1.0]),
        "-7 to 7, scale searched": lambda x: searched(x, even[1:] * 8 / 7, FINE),
        "-8 to 7, farthest weight at -8": lambda x: searched(x, even, [-1.0]),
        "-8 to 7, scale and sign searched": lambda x: searched(x, even, both),
        "0 to 15 and a zero point, least to greatest": lambda x: zero_point(x, [1.0]),
        "0 to 15 and a zero point, both ends searched": lambda x: zero_point(x, torch.linspace(0.6, 1, 11).tolist()),
        "our levels, scale and sign searched": lambda x: searched(x, torch.tensor(LEVELS) / 127, both),
        "**our int4**": lambda x: unpack(pack(x, "int4", program), "int4"),
        "8 bits, scale searched": lambda x: int8(x, torch.linspace(0.9, 1, 21).tolist()),
        "**our int8**": lambda x: unpack(pack(x, "int8", program), "int8"),
    }


def table() -> None:
    torch.set_num_threads(1)
    groups = samples()
    print(f"| format | {' | '.join(groups)} |\n|---|{'---|' * len(groups)}")
    for name, kept in formats().items():
        errors = [((kept(x) - x).norm() / x.norm()).item() for x in groups.values()]
        print(f"| {name} | {' | '.join(f'{error:.4f}' for error in errors)} |", flush=True)


def fit() -> None:
    """Lloyd's: the best scales for the levels, then the best levels for what chose them; the eighth stays zero."""
    torch.set_num_threads(1)
    groups = torch.randn(FIT_GROUPS, 64, generator=torch.Generator().manual_seed(FIT_SEED))
    levels = torch.arange(-7, 9) / 8
    for _ in range(FIT_ROUNDS):
        scale = best_scale(groups, levels, FIT_SHARES)
        chosen, wide = codes(groups, levels, scale).flatten(), scale.expand_as(groups).flatten()
        sums = torch.zeros(16).index_add_(0, chosen, wide * groups.flatten())
        levels = sums / torch.zeros(16).index_add_(0, chosen, wide.square())
        levels[7] = 0
        levels /= levels.abs().max()
    print([round(127 * level) + 128 for level in levels.tolist()])


def main(words: Sequence[str]) -> None:
    parser = Arguments("levels", __doc__)
    parser.add_argument("--fit", action="store_true", help="fit the sixteen levels anew, instead of the table")
    fit() if parser.parse_args(words).fit else table()


if __name__ == "__main__":
    sys.exit(run(main))
