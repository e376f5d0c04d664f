"""Inspects a model's folder or GGUF file: configuration, tensor locations, tokenizer, template and end tokens.

Checks everything in these untrusted files before it is used. Knows nothing about torch, transformers or memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: JSON from a stranger, hardened below

from localspec.core import strict_json
from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, CheckpointError, LocalspecError, NotDownloaded
from localspec.models import hub_cache
from localspec.models.bounds import MAX_TEMPLATE_BYTES, check_enough_bytes, check_heads, check_numbers
from localspec.models.dtypes import refuse_not_floats
from localspec.models.foreign_code import refuse_foreign_code, without_foreign_code
from localspec.models.gguf import config as gguf_config
from localspec.models.gguf.config import read_generation, stored_as
from localspec.models.gguf.header import name_of, read_gguf
from localspec.models.gguf.names import renamed
from localspec.models.gguf.tokenizer import chat_template, read_vocabulary
from localspec.models.prequantised.config import read_rules
from localspec.models.prequantised.weights import StoredWeight, find_weights
from localspec.models.safetensors_index import TensorInfo, find_tensors
from localspec.models.sandbox_jobs import TokenizerText

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_CONFIG_BYTES = 10 << 20
MAX_CONFIG_VALUES = 100_000  # transformers copies and prints them; Gemma 3 has 45,000
MAX_TOKENIZER_BYTES = 64 << 20  # Gemma's, the largest we know, has 33 MB
MAX_GROWTH = 16  # characters that a decoder may make of one; real ones make one
MAX_DECODERS = 100  # each passes over the text; real ones are five


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An inspected model on disk. `folder`: its folder, for GGUF its file. `name`: as the user calls it; `eos_ids`:
    every token that ends a turn or a text."""

    folder: Path
    name: str
    config: dict[str, Any]
    tensors: dict[str, TensorInfo]
    generation: dict[str, Any]
    tokenizer_file: Path | None
    """tokenizer.json, or the GGUF file."""
    chat_template: str | None
    eos_ids: tuple[int, ...]
    special_tokens: Mapping[str, str]
    """bos_token, eos_token, pad_token and unk_token for the template, as far as they exist."""
    unpacked: Mapping[str, StoredWeight] = field(default_factory=dict)
    """Pre-quantised weights that are unpacked to floats while they are read, by name."""
    stored_as: str = ""
    """The format of the files, as shown to the user, where weights cannot stay in it."""
    is_gguf: bool = False

    @property
    def total_bytes(self) -> int:
        return sum(info.num_bytes for info in self.tensors.values())

    @property
    def state(self) -> str:
        """The state of the weight files: names, sizes and times, which change with the weights."""
        stats = [(file.name, file.stat()) for file in sorted({info.file for info in self.tensors.values()})]
        return "".join(f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n" for name, stat in stats)

    @property
    def fingerprint(self) -> str:
        """The state as a hash of twelve letters."""
        return sha256(self.state.encode()).hexdigest()[:12]

    @property
    def revision(self) -> str:
        """The version of the weights: the commit of a cached snapshot, else a hash of the files' state."""
        folder = self.folder.resolve()
        cached = folder.parent.name == "snapshots" and hub_cache.COMMIT.fullmatch(folder.name)
        return folder.name if cached else f"files {self.fingerprint}"

    def read_tokenizer(self) -> TokenizerText:
        """The text of its tokenizer.json, or one made from the GGUF file."""
        if self.tokenizer_file is None:
            raise CheckpointError(
                f"Model '{self.name}' has no tokenizer.json.",
                hint="Choose a copy of the model that has one.",
            )
        where = str(self.tokenizer_file)
        if self.is_gguf:
            text = read_vocabulary(read_gguf(self.tokenizer_file).metadata, where).tokenizer_json()
        else:
            text = strict_json.read_text(self.tokenizer_file, MAX_TOKENIZER_BYTES)
        return TokenizerText(text, where, self.vocab_size)

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding, with padding."""
        size = self.config.get("vocab_size")
        return size if isinstance(size, int) else None


def open_snapshot(path: Path, name: str = "") -> Snapshot:
    """Inspects a folder in Hugging Face's layout, or a GGUF file, without executing anything."""
    if os.path.isdir(path):
        return _open_folder(path, name or model_name(path))
    if os.path.lexists(path):
        return _open_gguf(path, name or name_of(path))
    raise NotDownloaded(f"There is no folder or file {path}.", hint="Give the folder or the GGUF file of a model.")


def _open_folder(folder: Path, name: str) -> Snapshot:
    config = read_config(folder / "config.json")
    tensors = find_tensors(folder, name)
    unpacked = find_weights(config, tensors)
    refuse_not_floats(config, tensors, unpacked)
    check_enough_bytes(folder / "config.json", config, tensors)
    generation = _read_optional(folder / "generation_config.json")
    tokenizer_config = _read_optional(folder / "tokenizer_config.json")
    tokenizer_file = folder / "tokenizer.json"
    specials = _special_tokens(tokenizer_config)
    rules = read_rules(config) if unpacked else None
    return Snapshot(
        folder=folder,
        name=name,
        config=config,
        tensors=tensors,
        generation=generation,
        tokenizer_file=tokenizer_file if is_there(tokenizer_file) else None,
        chat_template=_chat_template(folder, tokenizer_config),
        eos_ids=_eos_ids(config, generation, _end_of_turn(folder, tokenizer_config, specials.get("eos_token"))),
        special_tokens=specials,
        unpacked=unpacked,
        stored_as=rules.label if rules else "",
    )


def has_chat_template(path: Path) -> bool:
    """Whether a folder or GGUF file brings a chat template. What cannot be read has none: loading it says why."""
    with suppress(LocalspecError):
        if path.is_file():
            return bool(chat_template(read_gguf(path).metadata, str(path)))
        return bool(_chat_template(path, _read_optional(path / "tokenizer_config.json")))
    return False


def _open_gguf(file: Path, name: str) -> Snapshot:
    model = read_gguf(file)
    config, tensors = gguf_config.read_config(model), renamed(model)
    check_numbers(model.file, config)
    check_heads(model.file, config)
    check_enough_bytes(model.file, config, tensors)
    vocabulary = read_vocabulary(model.metadata, str(model.file))
    return Snapshot(
        folder=model.file,
        name=name,
        config=config,
        tensors=tensors,
        generation=read_generation(model),
        tokenizer_file=model.file,
        chat_template=chat_template(model.metadata, str(model.file)),
        eos_ids=vocabulary.end_ids,
        special_tokens=vocabulary.special_tokens,
        stored_as=stored_as(model),
        is_gguf=True,
    )


def model_name(folder: Path) -> str:
    """The model's name: the repository of a cached snapshot, else the folder's name."""
    resolved = folder.absolute()
    kept = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and kept.startswith(hub_cache.MODELS):
        return hub_cache.repository(kept)
    return resolved.name


def is_there(file: Path) -> bool:
    """True also for a broken link, which an interrupted download leaves: reading it reports that."""
    return os.path.lexists(file)


def parse_tokenizer(text: str, where: str) -> Tokenizer:
    """Parses a tokenizer.json with the tokenizers library, without padding and truncation."""
    from tokenizers import Tokenizer

    with tokenizer_faults(where):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
    check_decoder(tokenizer, where)
    return tokenizer


def check_decoder(tokenizer: Tokenizer, where: str) -> None:
    """CheckpointError for a decoder that makes text much longer, or searches it for a regular expression: it runs in
    the engine's process, for every token."""
    parts = list(decoders(json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}))
    if len(parts) > MAX_DECODERS or math.prod(map(growth, parts)) > MAX_GROWTH:
        message = f"{where} has a decoder that makes text longer, or replaces what a regular expression finds."
        raise CheckpointError(message, hint=CHOOSE_ANOTHER)


def growth(decoder: Mapping[str, Any]) -> int:
    """The number of characters that one may become. An empty pattern matches between any two characters."""
    match decoder.get("type"):
        case "Replace":
            return max(1, len(decoder["content"])) if decoder["pattern"].get("String") else MAX_GROWTH + 1
        case "BPEDecoder":
            return 1 if decoder["suffix"] else MAX_GROWTH + 1
        case "CTC":
            return 1 if decoder["pad_token"] and decoder["word_delimiter_token"] else MAX_GROWTH + 1
    return 1


def decoders(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a decoder, after those that it is a sequence of."""
    for inner in spec.get("decoders", ()):
        yield from decoders(inner)
    yield spec


def num_ids(tokenizer: Tokenizer) -> int:
    """The largest id plus one; the ids may have gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def check_ids(where: str, tokenizer: Tokenizer, rows: int | None) -> None:
    """CheckpointError where a token of the vocabulary has no row in the embedding. Added tokens need none (Gemma 3's
    image token in models without images): no prompt and no answer contains them."""
    added = tokenizer.get_added_tokens_decoder()
    largest = max((id for id in tokenizer.get_vocab(with_added_tokens=True).values() if id not in added), default=-1)
    if rows is not None and largest >= rows:
        raise CheckpointError(f"{where} has ids up to {largest} and the model {rows} rows.", hint=REPEAT)


@contextmanager
def tokenizer_faults(where: str) -> Iterator[None]:
    """Raises any fault of an untrusted tokenizer, Rust panics included (no Exceptions in Python), as a
    CheckpointError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{where} is not a working tokenizer ({reason}).", hint=REPEAT) from error


def read_config(file: Path) -> dict[str, Any]:
    """The checked config.json of a model's folder."""
    if not file.exists():
        if gguf := sorted(filter(Path.is_file, file.parent.glob("*.gguf"))):
            raise CheckpointError(f"{file.parent} has GGUF files.", hint=f"Give one of them: {gguf[0]}")
        raise CheckpointError(f"{file} is missing: this is not the folder of a model.", hint=REPEAT)
    config = _read_optional(file)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{file} does not say its model_type.", hint=REPEAT)
    check_heads(file, config)
    return config


def _read_optional(file: Path) -> dict[str, Any]:
    """Reads a checked configuration; {} when there is no such file."""
    if not is_there(file):
        return {}
    found = strict_json.read_object(file, MAX_CONFIG_BYTES, MAX_CONFIG_VALUES)
    for depth, key, value in strict_json.walk(found, str(file)):
        refuse_foreign_code(file, key, depth, value)
    check_numbers(file, found)
    return without_foreign_code(found)


def _special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens, each written as a string or as {"content": …}."""
    found = {}
    for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = tokenizer_config.get(role)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text:
            found[role] = text
    return found


def _chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The template: chat_template.jinja, else tokenizer_config's, a string or a list of named ones with a "default"."""
    file = folder / "chat_template.jinja"
    if is_there(file):
        return strict_json.read_text(file, MAX_TEMPLATE_BYTES)
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
    if not is_there(file):
        return None
    return _id_in_tokenizer(strict_json.read_object(file, MAX_TOKENIZER_BYTES), eos_token)


def _id_in_tokenizer(spec: Mapping[str, Any], token: str) -> int | None:
    added = spec.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and entry.get("content") == token and isinstance(entry.get("id"), int):
            return int(entry["id"])
    model = spec.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    found = vocab.get(token) if isinstance(vocab, dict) else None
    return found if isinstance(found, int) else None
