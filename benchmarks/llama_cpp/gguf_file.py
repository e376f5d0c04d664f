"""A model's tensors as a GGUF file for llama.cpp, every linear in one of its own formats. Needs the `gguf` package.

Without another file's tokenizer it has none: what is measured then speaks token ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal  # Any: gguf is untyped

from torch import Tensor

from localspec.engine.arch import Arch
from localspec.loading.sources import TensorSource

GgufFormat = Literal["F32", "Q8_0", "Q4_0"]

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
EMBEDDING = "token_embd.weight"


def write_gguf(file: Path, arch: Arch, source: TensorSource, kind: GgufFormat, words: Path | None = None) -> int:
    """Writes the file, with the tokenizer and the chat template of the file `words`, if there is one.

    Returns the bytes of what a forward reads: all but an embedding of its own, of which it looks up a row.
    """
    import gguf

    writer: Any = gguf.GGUFWriter(file, "llama")
    describe(writer, arch, gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    if words is None:
        writer.add_tokenizer_model("no_vocab")
    else:
        copy_tokenizer(writer, gguf.GGUFReader(words))
    read = 0
    for name, tensor in tensors(arch, source):
        values = tensor.float().numpy()
        if tensor.dim() == 1:  # norms stay in float32
            writer.add_tensor(name, values)
            continue
        values = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
        writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType[kind])
        read += 0 if name == EMBEDDING and not arch.tied_head else values.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


def describe(writer: Any, arch: Arch, file_type: int) -> None:
    rope = dict(arch.rope)
    writer.add_file_type(file_type)
    writer.add_vocab_size(arch.vocab_size)
    writer.add_context_length(arch.max_context)
    writer.add_embedding_length(arch.hidden_size)
    writer.add_block_count(arch.num_layers)
    writer.add_feed_forward_length(arch.intermediate_size)
    writer.add_head_count(arch.num_heads)
    writer.add_head_count_kv(arch.num_kv_heads)
    writer.add_key_length(arch.head_dim)
    writer.add_value_length(arch.head_dim)
    writer.add_layer_norm_rms_eps(arch.norm_eps)
    writer.add_rope_dimension_count(arch.head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])


def copy_tokenizer(writer: Any, reader: Any) -> None:
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)


def tensors(arch: Arch, source: TensorSource) -> Iterator[tuple[str, Tensor]]:
    """Tensors in llama.cpp's names and its order of rotary channels."""
    yield EMBEDDING, source.read("model.embed_tokens.weight")
    for index in range(arch.num_layers):
        for ours, theirs in LAYER_NAMES.items():
            tensor = source.read(f"model.layers.{index}.{ours}.weight")
            if theirs in ("attn_q", "attn_k"):
                tensor = by_pairs(tensor, arch.head_dim)
            yield f"blk.{index}.{theirs}.weight", tensor
    yield "output_norm.weight", source.read("model.norm.weight")
    if not arch.tied_head:
        yield "output.weight", source.read("lm_head.weight")


def by_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Channels that turn together, half a head apart in checkpoints, next to each other."""
    return weight.view(-1, 2, head_dim // 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
