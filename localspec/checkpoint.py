"""A model's folder as downloaded: configuration, where its tensors lie, tokenizer, template and end tokens.

Checks everything a stranger wrote before anybody acts on it. Knows nothing about torch, transformers or memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: JSON from a stranger, hardened below

from localspec import hub_cache, strictjson
from localspec.dtypes import refuse_not_floats
from localspec.errors import CheckpointError, NotDownloaded
from localspec.foreign_code import refuse_foreign_code, without_foreign_code
from localspec.prequantised.config import read_rules
from localspec.prequantised.weights import StoredWeight, find_weights
from localspec.strictjson import REPEAT
from localspec.weights import TensorInfo, find_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_CONFIG_BYTES = 10 << 20
MAX_CONFIG_VALUES = 100_000  # transformers writes them out and copies them; Gemma 3 has 45,000
MAX_TOKENIZER_BYTES = 64 << 20  # Gemma's, the largest we know, has 33 MB
MAX_TEMPLATE_BYTES = 64 << 10
MAX_INTEGER = 1 << 53
MAX_GROWTH = 16  # characters that a decoder may make of one; real ones make one
MAX_DECODERS = 100  # each passes over the text; real ones are five

BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), (1, 1000)),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), (1, 65_536)),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim"), (1, 1 << 20)),
    **dict.fromkeys(("vocab_size",), (1, 1 << 22)),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head"), (1, 4096)),
    **dict.fromkeys(("head_dim",), (1, 8192)),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), (1, 10**8)),
    **dict.fromkeys(("original_max_position_embeddings", "sliding_window"), (0, 10**8)),
    **dict.fromkeys(("rope_theta", "rotary_emb_base", "factor"), (1e-3, 1e12)),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"), (0, 1)),
}
REAL = {"rope_theta", "rotary_emb_base", "factor", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}
PER_LAYER = {"intermediate_size", "num_attention_heads", "num_key_value_heads", "n_head", "head_dim"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A model on disk, inspected. `name`: as its user calls it; `eos_ids`: every token that ends a turn or a text."""

    folder: Path
    name: str
    config: dict[str, Any]
    tensors: dict[str, TensorInfo]
    generation: dict[str, Any]
    tokenizer_file: Path | None
    chat_template: str | None
    eos_ids: tuple[int, ...]
    special_tokens: Mapping[str, str]
    """bos_token, eos_token, pad_token, unk_token as the template sees them, those that there are."""
    unpacked: Mapping[str, StoredWeight] = field(default_factory=dict)
    """Weights that others have quantised and that become floats while they are read, by name."""

    @property
    def total_bytes(self) -> int:
        return sum(info.num_bytes for info in self.tensors.values())

    @property
    def state(self) -> str:
        """The files of weights as they are now: other names, sizes or times are other weights."""
        stats = [(file.name, file.stat()) for file in sorted({info.file for info in self.tensors.values()})]
        return "".join(f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n" for name, stat in stats)

    @property
    def fingerprint(self) -> str:
        """The same in twelve letters."""
        return sha256(self.state.encode()).hexdigest()[:12]

    @property
    def revision(self) -> str:
        """Which weights these are: the commit of a cached snapshot, else the files as they are."""
        folder = self.folder.resolve()
        cached = folder.parent.name == "snapshots" and hub_cache.COMMIT.fullmatch(folder.name)
        return folder.name if cached else f"files {self.fingerprint}"

    @property
    def stored_as(self) -> str:
        """The format of the files, for people, where weights cannot stay in it; else empty."""
        rules = read_rules(self.config) if self.unpacked else None
        return rules.label if rules else ""

    def read_tokenizer(self) -> str:
        """The text of its tokenizer.json."""
        if self.tokenizer_file is None:
            raise CheckpointError(
                f"Model '{self.name}' has no tokenizer.json.",
                hint="Choose a copy that has one: localspec reads no other.",
            )
        return strictjson.read_text(self.tokenizer_file, MAX_TOKENIZER_BYTES)

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding, padding included."""
        size = self.config.get("vocab_size")
        return size if isinstance(size, int) else None


def open_snapshot(folder: Path, name: str = "") -> Snapshot:
    """Inspect a folder in Hugging Face's layout; nothing of it is executed."""
    if not os.path.isdir(folder):
        raise NotDownloaded(f"There is no folder {folder}.", hint="Give the folder of a model: ./FOLDER")
    name = name or model_name(folder)
    config = _read_config(folder / "config.json")
    tensors = find_tensors(folder, name)
    unpacked = find_weights(config, tensors)
    refuse_not_floats(config, tensors, unpacked)
    _check_enough_bytes(folder / "config.json", config, tensors)
    generation = _read_optional(folder / "generation_config.json")
    tokenizer_config = _read_optional(folder / "tokenizer_config.json")
    tokenizer_file = folder / "tokenizer.json"
    specials = _special_tokens(tokenizer_config)
    return Snapshot(
        folder=folder,
        name=name,
        config=config,
        tensors=tensors,
        generation=generation,
        tokenizer_file=tokenizer_file if tokenizer_file.exists() else None,
        chat_template=_chat_template(folder, tokenizer_config),
        eos_ids=_eos_ids(config, generation, _end_of_turn(folder, tokenizer_config, specials.get("eos_token"))),
        special_tokens=specials,
        unpacked=unpacked,
    )


def model_name(folder: Path) -> str:
    """What people call it: the repository of a cached snapshot, else the folder's name."""
    resolved = folder.absolute()
    kept = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and kept.startswith(hub_cache.MODELS):
        return hub_cache.repository(kept)
    return resolved.name


def parse_tokenizer(text: str, where: str) -> Tokenizer:
    """A tokenizer.json as the tokenizers library reads it, without its padding and truncation."""
    from tokenizers import Tokenizer

    with tokenizer_faults(where):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
    check_decoder(tokenizer, where)
    return tokenizer


def check_decoder(tokenizer: Tokenizer, where: str) -> None:
    """It decodes every token of an answer in the engine's own process, so it may not make text much longer, nor search
    in it for a pattern that never ends."""
    parts = list(decoders(json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}))
    if len(parts) > MAX_DECODERS or math.prod(map(growth, parts)) > MAX_GROWTH:
        message = f"{where} has a decoder that makes text longer, or replaces what a regular expression finds."
        raise CheckpointError(message, hint="Choose another model.")


def growth(decoder: Mapping[str, Any]) -> int:
    """Characters that one may become. What is replaced everywhere, if it is nothing, is found between any two."""
    match decoder.get("type"):
        case "Replace":
            return max(1, len(decoder["content"])) if decoder["pattern"].get("String") else MAX_GROWTH + 1
        case "BPEDecoder":
            return 1 if decoder["suffix"] else MAX_GROWTH + 1
        case "CTC":
            return 1 if decoder["pad_token"] and decoder["word_delimiter_token"] else MAX_GROWTH + 1
    return 1


def decoders(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A decoder, or those that it is a sequence of."""
    for inner in spec.get("decoders", ()):
        yield from decoders(inner)
    yield spec


def num_ids(tokenizer: Tokenizer) -> int:
    """One more than the largest id; the ids may have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def check_ids(where: str, tokenizer: Tokenizer, rows: int | None) -> None:
    """Every word of the vocabulary has its row in the embedding. What was added to it (Gemma 3's token for an image, in
    models that read none) need not: no prompt and no answer has it."""
    added = tokenizer.get_added_tokens_decoder()
    largest = max((id for id in tokenizer.get_vocab(with_added_tokens=True).values() if id not in added), default=-1)
    if rows is not None and largest >= rows:
        raise CheckpointError(f"{where} has ids up to {largest} and the model {rows} rows.", hint=REPEAT)


@contextmanager
def tokenizer_faults(where: str) -> Iterator[None]:
    """What a stranger's tokenizer raises, panics in Rust (no Exceptions in Python) included, is the file's fault."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{where} is not a working tokenizer ({reason}).", hint=REPEAT) from error


def _read_config(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise CheckpointError(f"{file} is missing: this is not the folder of a model.", hint=REPEAT)
    config = _read_optional(file)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{file} does not say its model_type.", hint=REPEAT)
    _check_heads(file, config)
    return config


def _read_optional(file: Path) -> dict[str, Any]:
    """A configuration that runs nothing and claims nothing silly; {} when there is no such file."""
    if not file.exists():
        return {}
    found = strictjson.read_object(file, MAX_CONFIG_BYTES, MAX_CONFIG_VALUES)
    for depth, key, value in strictjson.walk(found, str(file)):
        refuse_foreign_code(file, key, depth, value)
        _check_number(file, key, value)
    return without_foreign_code(found)


def _check_number(file: Path, key: str, value: object) -> None:
    # Hugging Face writes model_max_length = 10^30 for "no limit"; nobody here reads it
    if isinstance(value, int) and abs(value) > MAX_INTEGER and key != "model_max_length":
        raise CheckpointError(f"{file}: {key[:80]} = {value} is out of range.", hint=REPEAT)
    if key not in BOUNDS or value is None:
        return
    low, high = BOUNDS[key]
    kinds = (int, float) if key in REAL else (int,)
    numbers: list[Any] = value if isinstance(value, list) and key in PER_LAYER else [value]
    for number in numbers:
        if isinstance(number, str):
            raise CheckpointError(f"{file}: {key} = {number[:40]!r} is text, not a number.", hint=REPEAT)
        if type(number) not in kinds or not low <= number <= high:
            fault = f"{key} = {str(value)[:40]} is out of range ({low:,} to {high:,.0f})"
            raise CheckpointError(f"{file}: {fault}.", hint=REPEAT)


def _check_heads(file: Path, config: Mapping[str, Any]) -> None:
    heads, kv_heads = _count(config, "num_attention_heads"), _count(config, "num_key_value_heads")
    hidden = _count(config, "hidden_size")
    if heads and kv_heads and heads % kv_heads:
        raise CheckpointError(f"{file}: {heads} heads do not divide into {kv_heads} key-value heads.", hint=REPEAT)
    if heads and hidden and not config.get("head_dim") and hidden % heads:
        raise CheckpointError(f"{file}: hidden_size {hidden} does not divide into {heads} heads.", hint=REPEAT)


def _check_enough_bytes(file: Path, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> None:
    """A config may not promise more than its weights hold: whoever allocated by it would starve the machine."""
    hidden, layers, vocab = (_count(config, key) for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
    least = (vocab + layers * hidden) * hidden // 4  # the embedding and one square a layer, two bits each
    held = sum(info.num_bytes for info in tensors.values())
    if held * 1.1 < least:
        raise CheckpointError(f"{file} describes {least:,} bytes of weights or more, there are {held:,}.", hint=REPEAT)


def _count(config: Mapping[str, Any], key: str) -> int:
    """A number of the config; 0 when it is not given, or given per layer."""
    value = config.get(key)
    return value if isinstance(value, int) else 0


def _special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """A token is written as a string or as {"content": …}."""
    found = {}
    for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = tokenizer_config.get(role)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text:
            found[role] = text
    return found


def _chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else tokenizer_config's: a string, or a list of named ones with a "default"."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return strictjson.read_text(file, MAX_TEMPLATE_BYTES)
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = [one for one in template if isinstance(one, dict) and one.get("name") == "default"]
        template = named[0].get("template") if named else None
    if not isinstance(template, str):
        return None
    if len(template.encode("utf-8", "surrogatepass")) > MAX_TEMPLATE_BYTES:
        raise CheckpointError(f"The chat template in {folder / 'tokenizer_config.json'} is too large.", hint=REPEAT)
    return template


def _eos_ids(config: Mapping[str, Any], generation: Mapping[str, Any], end_of_turn: int | None) -> tuple[int, ...]:
    claimed: list[object] = [end_of_turn]
    for source in (config, generation):
        ids = source.get("eos_token_id")
        claimed += ids if isinstance(ids, list) else [ids]
    return tuple(sorted({token for token in claimed if type(token) is int and token >= 0}))


def _end_of_turn(folder: Path, tokenizer_config: Mapping[str, Any], eos_token: str | None) -> int | None:
    """The id of the tokenizer's own end token, which in chat models is the template's end of turn."""
    if eos_token is None:
        return None
    decoder = tokenizer_config.get("added_tokens_decoder")
    for key, token in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(token, dict) and token.get("content") == eos_token and key.isdecimal():
            return int(key[:12])
    file = folder / "tokenizer.json"
    if not file.exists():
        return None
    return _id_in_tokenizer(strictjson.read_object(file, MAX_TOKENIZER_BYTES), eos_token)


def _id_in_tokenizer(spec: Mapping[str, Any], token: str) -> int | None:
    added = spec.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and entry.get("content") == token and isinstance(entry.get("id"), int):
            return int(entry["id"])
    model = spec.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    found = vocab.get(token) if isinstance(vocab, dict) else None
    return found if isinstance(found, int) else None
