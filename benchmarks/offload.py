"""Measures early exit where the layers after the exit are offloaded: streamed in once per round, at a stated rate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.program import read_lengths, read_shares, run, show
from benchmarks.shapes.__main__ import arguments, shape_request
from benchmarks.shapes.agreement import PROMPT_TOKENS
from benchmarks.shapes.forwards import Plan
from benchmarks.shapes.layer_offload import read_rate
from benchmarks.shapes.measure import ShapeRequest, measure_shape, watch

LENGTHS, AGREE = "8,16", "0.8,0.9"


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = arguments("offload", __doc__)
    parser.add_argument("rate", help="of the offloaded layers: 2GB/s, or real")
    parser.add_argument("--k", default=LENGTHS, metavar="LENGTHS", help="draft lengths")
    parser.add_argument("--agree", default=AGREE, metavar="SHARES", help="forced agreement of drafts")
    return parser.parse_args(words)


def offload_request(given: argparse.Namespace) -> ShapeRequest:
    """Plain and with early exit, in one format unless several are named."""
    ks, request = read_lengths(given.k), shape_request(given)
    return replace(
        request,
        formats=request.formats or (("int8",) if request.device == "cpu" else ("bf16",)),
        agree=read_shares(given.agree),
        lengths=ks,
        plan=Plan(widths=(1, *sorted(int(k) + 1 for k in ks if k.isdecimal())), depths=(PROMPT_TOKENS,), prefill=0),
        offload=read_rate(given.rate),
    )


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    request = offload_request(given)
    show(lambda tell: measure_shape(request, watch(given.shape, tell)), given.output)


if __name__ == "__main__":
    sys.exit(run(main))
