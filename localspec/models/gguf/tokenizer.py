"""Converts the tokenizer in a GGUF file's metadata to the tokenizer.json that it was made from.

The metadata are untrusted, so all of them are checked. Knows nothing about files, the tokenizers library or
the engine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any  # Any: a stranger's metadata, and parts of a tokenizer.json

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, CheckpointError
from localspec.models.bounds import MAX_TEMPLATE_BYTES
from localspec.models.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

KEYS = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
MODELS = {"gpt2": "byte-level BPE", "llama": "SentencePiece"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of tokens
ADDED = (UNKNOWN, CONTROL, USER_DEFINED)
MAX_TOKENS = 1 << 19  # Gemma's, the most we know, are 262,144
MAX_MERGES = 1 << 20  # gpt-oss has 446,189
MAX_TOKEN_CHARACTERS = 1024  # runs of blanks and dashes are the longest, up to 512
MAX_CUTTING = 1 << 26  # the sum of squared lengths; Gemma's is 11 million
MAX_TOKENIZER_CHARACTERS = 64 << 20
BLANK = "▁"  # how SentencePiece writes a space

ROLES = ("bos", "eos", "pad", "unk")
NAMES = {"pad": "padding", "unk": "unknown"}  # what llama.cpp calls these two
ENDS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"),
        *("<end_of_turn>", "<end_of_utterance>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<｜end▁of▁sentence｜>"),
        *("<|return|>", "<|call|>"),
    }
)
"""Tokens that always end a turn or a text, as in llama.cpp."""
HARMONY = {"<|return|>", "<|call|>"}  # with these, <|end|> ends a part of an answer only


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The tokens of a file and their metadata. `ids`: by token, without padding of the embedding; `kinds`: by id.
    `where`: the file's name in errors."""

    where: str
    model: str
    tokens: Sequence[str]
    kinds: Sequence[int]
    ids: Mapping[str, int]
    metadata: Mapping[str, Any]

    @cached_property
    def special_tokens(self) -> dict[str, str]:
        """bos_token, eos_token, pad_token and unk_token for the template, as far as they exist."""
        found = {role: self.special_id(role) for role in ROLES}
        return {f"{role}_token": self.tokens[id] for role, id in found.items() if id is not None and self.tokens[id]}

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Every token that ends a turn or a text."""
        named = {self.ids[token] for token in ENDS & self.ids.keys()}
        named = {id for id in named if self.kinds[id] in ADDED or "|" in self.tokens[id]}  # Qwen has a word </s>
        if self.ids.keys() >= HARMONY:
            named.discard(self.ids.get("<|end|>", -1))
        given = {self.special_id(role) for role in ("eos", "eot", "eom")}
        return tuple(sorted(named | {id for id in given if id is not None}))

    def special_id(self, role: str) -> int | None:
        key = f"{KEYS}{NAMES.get(role, role)}_token_id"
        default = {"bos": 1, "eos": 2, "unk": 0}.get(role) if self.model == "llama" else None
        id = self.metadata.get(key, default)
        if id is None:
            return None
        if type(id) is int and 0 <= id < len(self.tokens):
            return id
        if role == "pad" or key not in self.metadata:  # some models' padding token has no row
            return None
        raise self._fault(f"says {key} = {str(id)[:40]}, and has {len(self.tokens):,} tokens")

    def tokenizer_json(self) -> str:
        """The text of an equivalent tokenizer.json."""
        spec = self._byte_level() if self.model == "gpt2" else self._sentencepiece()
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(self._added()), **spec}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        if len(text) > MAX_TOKENIZER_CHARACTERS:
            raise self._fault(f"has a tokenizer of {len(text):,} characters, more than {MAX_TOKENIZER_CHARACTERS:,}")
        return text

    def _byte_level(self) -> dict[str, Any]:
        pre = self._pre_tokenizer()
        splits = [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            for pattern in pre.patterns
        ]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        return {
            "normalizer": {"type": "NFC"} if pre.nfc else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, level]},
            "post_processor": self._opening(default=pre.bos),
            "decoder": level,
            "model": self._bpe(self._stored_merges(), ignore_merges=pre.whole),
        }

    def _sentencepiece(self) -> dict[str, Any]:
        unknown = self.special_id("unk")
        prefixed = self._flag("add_space_prefix", True)
        blanks = {"type": "Replace", "pattern": {"String": " "}, "content": BLANK}
        prefix = {"type": "Prepend", "prepend": BLANK}
        decoders: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": BLANK}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefixed:
            decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {
            "normalizer": {"type": "Sequence", "normalizers": [prefix, blanks] if prefixed else [blanks]},
            "pre_tokenizer": None,
            "post_processor": self._opening(default=True),
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": self._bpe(
                self._derived_merges(),
                unk_token=None if unknown is None else self.tokens[unknown] or None,
                fuse_unk=True,
                byte_fallback=True,
            ),
        }

    def _bpe(self, merges: list[tuple[str, str]], **options: Any) -> dict[str, Any]:
        return {"type": "BPE", **options, "vocab": dict(self.ids), "merges": merges}

    def _added(self) -> Iterator[dict[str, Any]]:
        """Yields the added tokens, which are split off a text first."""
        special = {*self.end_ids, self.special_id("bos")}
        for token, id in self.ids.items():
            kind = self.kinds[id]
            if id in special or kind in ADDED:
                flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
                yield {"id": id, "content": token, **flags, "special": id in special or kind != USER_DEFINED}

    def _opening(self, *, default: bool) -> dict[str, Any] | None:
        """The post-processor that puts BOS before every text; None without BOS."""
        bos = self.special_id("bos")
        if bos is None or not self.tokens[bos] or not self._flag("add_bos_token", default):
            return None
        token, ids = self.tokens[bos], [bos]
        opening = {"SpecialToken": {"id": token, "type_id": 0}}
        first, second = ({"Sequence": {"id": id, "type_id": 0}} for id in "AB")
        return {
            "type": "TemplateProcessing",
            "single": [opening, first],
            "pair": [opening, first, opening, second],
            "special_tokens": {token: {"id": token, "ids": ids, "tokens": [token]}},
        }

    def _pre_tokenizer(self) -> PreTokenizer:
        name = self.metadata.get(f"{KEYS}pre", "default")
        if not isinstance(name, str) or name not in PRE_TOKENIZERS:
            raise CheckpointError(
                f"{self.where} has the unknown pre-tokenizer '{str(name)[:40]}'.",
                hint="Choose the same model in safetensors, or another.",
            )
        return PRE_TOKENIZERS[name]

    def _stored_merges(self) -> list[tuple[str, str]]:
        """The merges that the file lists, each of two tokens that make a third."""
        lines = self._texts("merges", MAX_MERGES)
        cuts = [line.find(" ", 1) for line in lines]
        merges = [(line[:cut], line[cut + 1 :]) for line, cut in zip(lines, cuts, strict=True)]
        for line, cut, (left, right) in zip(lines, cuts, merges, strict=True):
            if cut < 0 or left not in self.ids or right not in self.ids or left + right not in self.ids:
                raise self._fault(f"merges {line[:40]!r}, which are not two tokens that make a third")
        return merges

    def _derived_merges(self) -> list[tuple[str, str]]:
        """All merges of two tokens into an ordinary one, by its score, then by ids."""
        scores = self._array("scores")
        if len(scores) != len(self.tokens):
            raise self._fault(f"has {len(self.tokens):,} tokens and {len(scores):,} scores")
        if not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
            raise self._fault(f"has {KEYS}scores that are not numbers")
        pieces = {token: id for token, id in self.ids.items() if self.kinds[id] not in (UNKNOWN, CONTROL, BYTE)}
        if sum(len(piece) ** 2 for piece in pieces) > MAX_CUTTING:
            raise self._fault("has tokens that are too long to be made of others")
        found = (
            (-scores[id], pieces[piece[:cut]], pieces[piece[cut:]], piece[:cut], piece[cut:])
            for piece, id in pieces.items()
            for cut in range(1, len(piece))
            if piece[:cut] in pieces and piece[cut:] in pieces
        )
        merges = list(islice(found, MAX_MERGES + 1))
        if len(merges) > MAX_MERGES:
            raise self._fault(f"has tokens that can be made of two in more than {MAX_MERGES:,} ways")
        merges.sort(key=lambda merge: merge[:3])
        return [(left, right) for *_, left, right in merges]

    def _flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(KEYS + key, default)
        if not isinstance(value, bool):
            raise self._fault(f"says {KEYS}{key} = {str(value)[:40]}, which is neither true nor false")
        return value

    def _texts(self, key: str, most: int) -> Sequence[str]:
        return _texts(self.metadata, key, most, self.where)

    def _array(self, key: str) -> Sequence[Any]:
        return _array(self.metadata, key, self.where)

    def _fault(self, what: str) -> CheckpointError:
        return _fault(self.where, what)


def read_vocabulary(metadata: Mapping[str, Any], where: str) -> Vocabulary:
    """Reads and checks the tokens; `where` names the file in errors."""
    model = metadata.get(f"{KEYS}model")
    if not isinstance(model, str) or model not in MODELS:
        named = f"a tokenizer of the kind '{str(model)[:40]}'" if model is not None else "no tokenizer"
        readable = " and ".join(f"'{name}' ({kind})" for name, kind in MODELS.items())
        raise CheckpointError(f"{where} has {named}; localspec reads {readable}.", hint=CHOOSE_ANOTHER)
    tokens = _texts(metadata, "tokens", MAX_TOKENS, where)
    longest = max(map(len, tokens), default=0)
    if longest > MAX_TOKEN_CHARACTERS:
        raise _fault(where, f"has a token of {longest:,} characters, more than {MAX_TOKEN_CHARACTERS:,}")
    kinds = _array(metadata, "token_type", where) if f"{KEYS}token_type" in metadata else (NORMAL,) * len(tokens)
    if len(kinds) != len(tokens):
        raise _fault(where, f"has {len(tokens):,} tokens and {len(kinds):,} token types")
    if not all(type(kind) is int for kind in kinds):
        raise _fault(where, f"has {KEYS}token_type that are not whole numbers")
    used = [(token, id) for id, token in enumerate(tokens) if token and not _fills(token, kinds[id], id)]
    ids = dict(used)
    if len(ids) != len(used):
        twice = next(token for token, id in used if ids[token] != id)
        raise _fault(where, f"has the token {twice[:40]!r} twice")
    if not ids:
        raise _fault(where, "has no tokens")
    return Vocabulary(where, model, tokens, kinds, ids, metadata)


def chat_template(metadata: Mapping[str, Any], where: str) -> str | None:
    """The chat template; of several the default one, else the first."""
    names = metadata.get("tokenizer.chat_templates", ())
    named = [f"{TEMPLATE}.{name}" for name in ("default", *(names if isinstance(names, tuple | list) else ()))]
    template = next((metadata[key] for key in (TEMPLATE, *named) if key in metadata), None)
    if template is None:
        return None
    if not isinstance(template, str):
        raise _fault(where, "has a chat template that is not text")
    if len(template.encode("utf-8", "surrogatepass")) > MAX_TEMPLATE_BYTES:
        raise _fault(where, f"has a chat template of more than {MAX_TEMPLATE_BYTES:,} bytes")
    return template


def _fills(token: str, kind: int, id: int) -> bool:
    """True for a padding row of the embedding, as llama.cpp names it."""
    return kind == UNUSED and token == f"[PAD{id}]"


def _texts(metadata: Mapping[str, Any], key: str, most: int, where: str) -> Sequence[str]:
    found = _array(metadata, key, where)
    if len(found) > most:
        raise _fault(where, f"has {len(found):,} {key}, more than {most:,}")
    if not all(isinstance(text, str) for text in found):
        raise _fault(where, f"has {KEYS}{key} that are not text")
    return found


def _array(metadata: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    found = metadata.get(KEYS + key)
    if not isinstance(found, tuple | list):
        raise _fault(where, f"has no list of {KEYS}{key}")
    return found


def _fault(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where} {what}.", hint=REPEAT)
