"""Forwards of a well-known shape with random weights, in every format and by width; with --agree, speculation too.

    python -m benchmarks.shapes --shape tiny --format int8,int4
    python -m benchmarks.shapes --shape 135m --against llama-cpp --against transformers
    python -m benchmarks.shapes --agree 0.8,0.9

Peers have the same weights, in the same process, in turn. Speed depends on shape and format, not on what weights say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.program import Arguments, read_shares, run, show
from benchmarks.shapes.measure import ShapeRequest, measure_shape, watch
from benchmarks.shapes.random_weights import SHAPES, USUAL
from localspec.bench.formats import read_formats
from localspec.core.errors import UsageError
from localspec.core.weight_formats import LISTED
from localspec.loading.devices import pick_device
from localspec.runtime.draft_choice import check_threads

SHAPE, TOKENS, REPEATS = "llama-1b", 64, 3
PEERS = ("transformers", "llama-cpp")


def arguments(name: str, description: str | None) -> Arguments:
    """The flags of whatever measures a shape."""
    parser = Arguments(name, description)
    parser.add_argument("--shape", choices=tuple(SHAPES), default=SHAPE, help="what the model is like in size")
    parser.add_argument("--format", metavar="FORMATS", help=f"some of {','.join(LISTED)}; default: all that fit")
    parser.add_argument("--exit-layer", type=int, metavar="E", help="default: after a quarter of the layers")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto, which takes a GPU if there is one")
    parser.add_threads()
    parser.add_counts(TOKENS, REPEATS, of="turns of every figure")
    parser.add_output()
    return parser


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = arguments("shapes", __doc__)
    parser.add_argument("--against", choices=PEERS, action="append", default=[], help="a peer; may be given twice")
    parser.add_argument("--agree", metavar="SHARES", help="forced agreement of drafts: 0.8, or 0.8,0.9")
    return parser.parse_args(words)


def shape_request(given: argparse.Namespace) -> ShapeRequest:
    check_threads(given.threads)
    return ShapeRequest(
        given.shape,
        formats=read_formats(given.format),
        exit_layer=given.exit_layer,
        max_tokens=given.max_tokens,
        repeats=given.repeats,
        threads=given.threads,
        device=shape_device(given.device),
    )


def shape_device(asked: str) -> str:
    """A GPU if there is one, unless another is named."""
    if asked.partition(":")[0] not in ("auto", *USUAL):
        raise UsageError(f"A shape is not measured on --device {asked[:20]}.", hint="Use --device cpu or cuda.")
    return pick_device(asked)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    request = replace(shape_request(given), against=tuple(given.against), agree=read_shares(given.agree))
    show(lambda tell: measure_shape(request, watch(given.shape, tell)), given.output)


if __name__ == "__main__":
    sys.exit(run(main))
