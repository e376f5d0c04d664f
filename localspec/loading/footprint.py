"""How many bytes of memory a model takes: tables, layers, KV store and workspace, in every format.

Works from a snapshot's headers and config alone. Knows nothing about torch, and not how much memory there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.core.weight_formats import WeightFormat
from localspec.engine.arch import Arch
from localspec.engine.cpu.formats import OUTPUTS, RECORD_BYTES, PackedFormat
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.engine.lengths import usual
from localspec.engine.limits import GRAPH_ROWS, GRAPH_WIDTH, MAX_GRAPHS, PREFILL_CHUNK
from localspec.loading.cpu_layout import Blueprint
from localspec.models.checkpoint import Snapshot
from localspec.models.dtypes import FLOATS
from localspec.models.prequantised.weights import besides

PACKED_WORKSPACE, WORKSPACE = 28 << 20, 152 << 20  # activations of a prefill chunk, and rows on their way into blocks
GENERIC_WORKSPACE = 256 << 20  # what transformers computes a chunk in; not measured family by family
GRAPH_BYTES = 2 << 20  # what a driver keeps of a graph; a guess, never measured
SLOTS = 2  # for offloaded layers: one is computed with while the next is copied
FIRST_LAYER = "model.layers.0."
HEADS = ("lm_head.", "embed_out.", "output_projection.")  # of all families, where it is no embedding's table


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model, in bytes. `tables`: embedding, head, norm, and what the first layer has more than others;
    `layer`: one layer; `kv`: the stores of all contexts; `drafter`: a model beside this one; `workspace`: what both
    compute in; `graphs`: CUDA graphs, with all layers resident. Where transformers runs the model, `tables` are all
    weights."""

    tables: int
    layer: int
    layers: int
    kv: int
    workspace: int
    drafter: int = 0
    graphs: int = 0

    @property
    def whole(self) -> int:
        """Memory with all layers resident."""
        return self.tables + self.layers * self.layer + self.beside + self.graphs

    def offloaded(self, resident: int) -> int:
        """Memory with so many layers resident, and slots for those that are offloaded."""
        return self.tables + (resident + SLOTS) * self.layer + self.beside

    @property
    def beside(self) -> int:
        """Memory beside the model's own weights."""
        return self.kv + self.drafter + self.workspace

    def resident(self, num_bytes: int) -> int:
        """How many layers may be resident where the others are offloaded; negative where not even the rest fits."""
        return (num_bytes - self.offloaded(0)) // self.layer


def packed_format(row: WeightFormat) -> PackedFormat | None:
    """The CPU engine's records that a weight format is; None where another kernel computes it."""
    return next((name for name in RECORD_BYTES if row.is_packed and name == row.codec), None)


def footprint(
    snapshot: Snapshot, row: WeightFormat, context: int, *, keep_head: bool = False, parallel: int = 1
) -> Footprint:
    """Memory of a model in a weight format, with so many contexts."""
    arch = read_any(snapshot.config)
    if isinstance(arch, GenericArch):
        kv_bytes = int(arch.kv_elements(context) * (row.bytes_per_weight if row.is_float else 2))
        weights = generic_bytes(snapshot, arch, row, keep_head=keep_head)
        return Footprint(weights, 0, 0, kv_bytes, GENERIC_WORKSPACE)
    if packed := packed_format(row):
        blueprint = Blueprint(arch, packed)
        layer = sum(piece.num_bytes for piece in blueprint.layers[-1])  # the first may be larger, and always stays
        tables = blueprint.num_bytes - arch.num_layers * layer
        head = blueprint.pieces["embedding" if blueprint.shares_head else "head"]
        copied = copied_rows(arch) // OUTPUTS * (head.num_bytes // head.shape[0])
        workspace = PACKED_WORKSPACE + blueprint.scratch_bytes(context) + parallel * copied
        workspace += logit_bytes(arch, parallel - 1)
        return Footprint(tables, layer, arch.num_layers, parallel * blueprint.kv_bytes(context), workspace)
    kv_bytes = arch.kv_elements(context) * arch.kv_element_bytes(context)
    workspace = WORKSPACE + mask_bytes(arch, context)
    workspace += row.import_bytes + (2 * arch.largest_linear if row.unpacks_linears else 0)
    graphs = graph_bytes(arch, context) if row.device == "cuda" else 0
    element = row.bytes_per_weight
    copied = int((element if row.is_float else 4) * copied_rows(arch) * arch.hidden_size)  # as floats
    workspace += parallel * (arch.rotation_bytes(context) + copied) + logit_bytes(arch, parallel - 1)
    if row.is_float:
        layer = int(element * num_elements(snapshot, FIRST_LAYER))
        tables = int(element * num_elements(snapshot)) - arch.num_layers * layer
    else:
        layer, tables = int(element * arch.layer_elements), quantised_tables(arch, element, keep_head=keep_head)
    return Footprint(tables, layer, arch.num_layers, parallel * kv_bytes, workspace, graphs=graphs)


def copied_rows(arch: Arch) -> int:
    """Rows of its head that a model copies for a shorter one, where it drafts."""
    lengths = usual(arch.vocab_size)
    return lengths.slots if lengths else 0


def logit_bytes(arch: Arch, others: int) -> int:
    """Logits of a forward in which others have their longest drafts, too."""
    return 4 * others * GRAPH_WIDTH * arch.vocab_size


def mask_bytes(arch: Arch, context: int, rows: int = PREFILL_CHUNK) -> int:
    """Masks of a chunk's attention in torch: a row for every query of a group, and what it is made from."""
    return rows * context * (arch.query_group + 1) * arch.kv_element_bytes(context)


def graph_bytes(arch: Arch, context: int) -> int:
    """Memory of CUDA graphs: what they read and write, what the longest computes in, and the graphs themselves."""
    read = 2 * 4 * GRAPH_WIDTH * (2 * arch.hidden_size + arch.vocab_size)
    computed = 4 * GRAPH_ROWS * (8 * arch.hidden_size + 6 * arch.intermediate_size)
    return read + computed + mask_bytes(arch, context, GRAPH_ROWS) + MAX_GRAPHS * GRAPH_BYTES


def num_elements(snapshot: Snapshot, prefix: str = "") -> int:
    """Elements of the tensors whose names begin with the prefix."""
    return sum(math.prod(shape) for name, shape in shapes(snapshot).items() if name.startswith(prefix))


def shapes(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors; what is unpacked while loading counts as the weights that it becomes."""
    plain = snapshot.tensors.keys() - besides(snapshot.unpacked, snapshot.tensors)
    found = {name: snapshot.tensors[name].shape for name in plain}
    return found | {name: weight.shape for name, weight in snapshot.unpacked.items()}


def generic_bytes(snapshot: Snapshot, arch: GenericArch, row: WeightFormat, *, keep_head: bool) -> int:
    """Weights as transformers holds them. Before they are quantised they are all in 16 bits, which takes memory unless
    they are stored so."""
    if row.is_read_only:
        return snapshot.total_bytes
    if row.is_float:
        return int(num_elements(snapshot) * row.bytes_per_weight)
    size = 0 if all(info.dtype == "BF16" for info in snapshot.tensors.values()) else 2 * num_elements(snapshot)
    for name, info in snapshot.tensors.items():
        words = arch.vocab_size in info.shape  # an embedding stays as it is, and is the head's weight too perhaps
        stays = len(info.shape) != 2 or is_table(name, info.shape, arch.vocab_size)
        narrow = not stays or (words and not keep_head)
        size += int((2 * stays + row.bytes_per_weight * narrow) * math.prod(info.shape))
    return size


def quantised_tables(arch: Arch, element: float, *, keep_head: bool) -> int:
    """The embedding in 16 bits, and the head too if it stays so; a tied one is then the embedding itself."""
    table = arch.vocab_size * arch.hidden_size
    head = (0 if arch.tied_head else 2 * table) if keep_head else element * table
    return int(2 * table + head)


def in_16_bits(snapshot: Snapshot, row: WeightFormat, *, keep_head: bool) -> dict[str, int]:
    """The tables that stay in 16 bits where the other weights do not: bytes by name, as the files have them. GPTQ
    leaves the head too; a tied one is the embedding itself."""
    if not row.has_wide_tables:
        return {}
    vocab_size, found = read_any(snapshot.config).vocab_size, shapes(snapshot)
    heads = {name for name in found if any(head in name for head in HEADS)}
    tables = {
        name: 2 * math.prod(shape)
        for name, shape in found.items()
        if is_table(name, shape, vocab_size)
        and (snapshot.is_gguf or name in snapshot.unpacked or snapshot.tensors[name].dtype in FLOATS)
    }
    embedding = sum(size for name, size in tables.items() if name not in heads)
    if not (keep_head or row.is_read_only):
        return {"embedding": embedding}
    if snapshot.config.get("tie_word_embeddings") is True or not heads:
        return {"embedding with the tied head": embedding}
    head = sum(tables.get(name, 0) for name in heads)  # nothing, where the files have it quantised
    return {"embedding": embedding, "head": head} if head else {"embedding": embedding}


def is_table(name: str, shape: tuple[int, ...], vocab_size: int) -> bool:
    """Whether a tensor is a table of rows to look up: an embedding, of words or of positions, or the head."""
    return len(shape) == 2 and (vocab_size in shape or "embed" in name or "wpe" in name)
