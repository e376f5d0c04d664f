"""Numbers of a few bits out of int32 words, in which they follow each other from the lowest bit on.

So AutoGPTQ and compressed-tensors pack them; with three bits, numbers run on from word to word. AutoAWQ interleaves the
eight of a word (AWQ_REVERSE_ORDER in its utils/packing_utils.py). Knows nothing about what the numbers are.
"""

from __future__ import annotations

import torch
from torch import Tensor

SLAB_ELEMENTS = 1 << 19  # of a tensor, in float32 at once: 2 MB, and a few copies of it on each core
OF_A_WORD = 8  # numbers of four bits
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # of output 0, 1, … among the eight fields of its word


def unpacked(words: Tensor, bits: int) -> Tensor:
    """uint8 [rows, numbers] from int32 [rows, words]."""
    octets = words.contiguous().view(torch.uint8)
    if bits == 8:
        return octets
    if bits == 3:
        return triples(octets)
    mask = (1 << bits) - 1
    parts = [octets >> shift & mask if shift else octets & mask for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(1)


def triples(octets: Tensor) -> Tensor:
    """Eight numbers of three bits from every three bytes."""
    first, second, third = octets.view(len(octets), -1, 3).int().unbind(-1)
    whole = first | second << 8 | third << 16
    return torch.stack([(whole >> shift & 7).to(torch.uint8) for shift in range(0, 24, 3)], -1).flatten(1)


def interleaved(words: Tensor) -> Tensor:
    """uint8 [outputs, inputs] of four bits from AWQ's int32 [inputs, outputs / 8]."""
    turned = words.t().contiguous()
    found = torch.empty(turned.shape[0], 8, turned.shape[1], dtype=torch.uint8)
    for output, field in enumerate(AWQ_ORDER):
        found[:, output] = turned >> 4 * field & 15
    return found.flatten(0, 1)


def float8(codes: Tensor) -> Tensor:
    """Float32 of float8_e4m3fn, ten times faster than torch makes it on a CPU. With its bits moved to where float16 has
    sign, exponent and fraction, a number is 2^8 too small; NaN, all ones but the sign, must be found before."""
    octets = codes.view(torch.int8)
    halves = (octets.short() << 7 & -16385).view(torch.float16)
    return torch.where(octets & 127 == 127, torch.nan, halves.float() * 256)
