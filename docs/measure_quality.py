"""How far each format's predictions are from float32's, on the guide's held-out texts. Prints a Markdown table.

    .venv/bin/python docs/measure_quality.py

Mean Kullback-Leibler divergence from float32 in nats, and how often the likeliest token is the same, over the tokens
of answers and over whole conversations. "engine" is the CPU engine itself, with its 8-bit activations and 16-bit keys
and values; the other rows are weights of ours or of bitsandbytes in torch, in float32, so that only weights differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from torch import Tensor
from torch.nn.functional import kl_div

from localspec.blueprint import Blueprint
from localspec.checkpoint import open_snapshot, parse_tokenizer
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import Format
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.pack import pack, unpack
from localspec.engine.cpu.program import load
from localspec.engine.decoder import Decoder
from localspec.loader import assemble
from localspec.packing import pack_source
from localspec.recipe import corpus, evaluate
from localspec.sources import Files, Memory, Reader

CONTEXT = 512
EVERY = 4  # of the held-out conversations
Tensors = dict[str, Tensor]


def nf4(weight: Tensor) -> Tensor:
    """As bitsandbytes keeps it: blocks of 64, float32 scales."""
    return dequantize_4bit(*quantize_4bit(weight.float().contiguous(), blocksize=64, quant_type="nf4"))


def ours(kind: Format) -> Callable[[Tensor], Tensor]:
    return lambda weight: unpack(pack(weight, kind, load(choose())), kind)


def changed(tensors: Mapping[str, Tensor], change: Callable[[Tensor], Tensor], *, head: bool) -> Tensors:
    """The linears' weights after `change`; the embedding stays."""
    return {name: change(w) if "_proj." in name or (head and "lm_head" in name) else w for name, w in tensors.items()}


def decoders(arch: Arch, tensors: Tensors) -> Iterator[tuple[str, Decoder | PackedDecoder]]:
    """Float32 first."""

    def in_torch(tensors: Tensors) -> Decoder:
        return assemble(arch, Memory(tensors), dtype=torch.float32, context=CONTEXT)

    yield "float32", in_torch(tensors)
    for head in (False, True):
        and_head = " and head" if head else ""
        yield f"bitsandbytes nf4, linears{and_head}", in_torch(changed(tensors, nf4, head=head))
        yield f"int4, linears{and_head}", in_torch(changed(tensors, ours("int4"), head=head))
        yield f"int8, linears{and_head}", in_torch(changed(tensors, ours("int8"), head=head))
    kinds: tuple[Format, ...] = ("int4", "int8")
    for kind in kinds:
        weights = pack_source(Blueprint(arch, kind), Reader(Memory(tensors)), load(choose()))
        yield f"engine {kind}", PackedDecoder(arch, weights, CONTEXT, load(choose()))


def logits(decoder: Decoder | PackedDecoder, ids: Tensor) -> Tensor:
    decoder.crop(0)
    return decoder.forward(ids).double().log_softmax(-1)


def main() -> None:
    torch.set_num_threads(1)  # so small a model gains nothing from more
    snapshot = open_snapshot(Path("assets/guide/target"))
    files, words = Files(snapshot), parse_tokenizer(snapshot.read_tokenizer(), snapshot.name)
    tensors = {name: files.read(name).float() for name in files.names()}
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    arch = replace(read_arch(snapshot.config), tied_head=False)
    texts = [
        (torch.tensor(asked.prompt + asked.answer[:-1]), len(asked.prompt) - 1)
        for asked in evaluate.held_out(corpus.load(), words, seed=0)[::EVERY]
    ]
    expected: list[Tensor] = []
    for name, decoder in decoders(arch, tensors):
        found = [logits(decoder, ids) for ids, _ in texts]
        if not expected:
            expected = found
            answers, everything = (sum(len(ids) - skip * first for ids, first in texts) for skip in (1, 0))
            print(f"| weights | KL, {answers} tokens of answers | same | KL, all {everything} tokens | same |")
            print("|---|---|---|---|---|")
            continue
        cells = [cell for skip in (1, 0) for cell in compare(expected, found, [skip * first for _, first in texts])]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def compare(expected: list[Tensor], found: list[Tensor], starts: list[int]) -> tuple[str, str]:
    """Mean divergence, and the share of positions with the same likeliest token."""
    p, q = (torch.cat([rows[start:] for rows, start in zip(side, starts, strict=True)]) for side in (expected, found))
    divergence = kl_div(q, p, reduction="batchmean", log_target=True).item()
    return f"{divergence:.7f}", f"{(p.argmax(-1) == q.argmax(-1)).double().mean():.2%}"


if __name__ == "__main__":
    main()
