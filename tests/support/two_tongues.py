"""Models that write a given text in tokens of their own, and the tokenizers of a pair. Knows no test."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from localspec.engine.drafters.translated import TranslatedDrafter
from localspec.engine.protocols import ExitStates
from localspec.models.pieces import TokenBytes
from localspec.models.prompt import Prompter
from localspec.models.translation import Tongue, Translation
from tests.support.tokenizers import CORPUS, byte_level, gpt2_like, llama2_like, llama3_like, trained_once

TEXT = (
    " The quick brown fox, don't you know? Over 12345 lazy DOGS (and 3 cats); it sleeps.\n\n"
    "def add(first, second):\n    return first + second  # twice\n\n- one\n- two: naïve señor\n"
    "😀 smiles, 🇩🇪 waves; ❤️ and 漢字. They're doing well, hello there general."
)
ASCII = TEXT.encode("ascii", "ignore").decode()


@trained_once
def unigram(*, nfkc: bool = False) -> Tokenizer:
    """A Unigram model that knows every ASCII character, with SentencePiece's blanks and without byte tokens."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC() if nfkc else None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    alphabet = [chr(code) for code in range(0x21, 0x7F)] + ["\n", "▁"]
    trainer = trainers.UnigramTrainer(
        vocab_size=320,
        initial_alphabet=alphabet,
        special_tokens=["<unk>", "<s>", "</s>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([*CORPUS, *alphabet], trainer)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def prefixing() -> Tokenizer:
    """Byte-level with a space before every text, as GPT-2's of RoBERTa."""
    spec = json.loads(byte_level("<|endoftext|>", vocab_size=330).to_str())
    spec["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return Tokenizer.from_str(json.dumps(spec))


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": gpt2_like,
    "few merges": lambda: byte_level("<|endoftext|>", vocab_size=300),
    "digits in threes": llama3_like,
    "byte fallback": llama2_like,
    "prepended": lambda: llama2_like(legacy=True),
    "unigram": unigram,
    "unigram with NFKC": lambda: unigram(nfkc=True),
    "prefix space": prefixing,
}


def tongue(tokenizer: Tokenizer) -> Tongue:
    return Tongue(TokenBytes(tokenizer), Prompter(tokenizer, name="a tokenizer", template=None).running)


class Reciter:
    """A Target and a decoder: after a prompt of one id it recites a text in its own tokens, then `end`, and after any
    other text whatever its noise says. In float64; every row is a function of the ids up to it."""

    def __init__(self, tongue: Tongue, text: str, *, end: int, vocab: int, context: int = 4096) -> None:
        self.tongue, self.recited, self.end = tongue, text.encode(), end
        self.arch = SimpleNamespace(vocab_size=vocab)
        self.context, self.length, self.forwards = context, 0, 0
        self.ids: list[int] = []
        self.noise = torch.randn(97, vocab, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.known: dict[bytes, int] = {}

    def forward(self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False) -> Tensor:
        assert exit_states is None
        assert self.length + len(ids) <= self.context
        del self.ids[self.length :]
        rows = []
        for id in ids.tolist():
            assert 0 <= id < self.arch.vocab_size
            self.ids.append(id)
            rows.append(self.row())
        self.length, self.forwards = len(self.ids), self.forwards + 1
        return torch.stack(rows[-1:] if last_only else rows)

    def row(self) -> Tensor:
        row = self.noise[hash(tuple(self.ids)) % len(self.noise)].clone()
        written = self.tongue.pieces.text(self.ids[1:])
        if self.recited.startswith(written):
            row[self.next(written)] += 10
        return row

    def next(self, written: bytes) -> int:
        """The token that goes on: of the rest's canonical ids the first."""
        if written not in self.known:
            rest = self.recited[len(written) :]
            try:
                found = self.tongue.encode(rest.decode()) if rest else [self.end]
            except UnicodeDecodeError:  # in the middle of a character
                found = [self.spelled(rest)]
            self.known[written] = found[0]
        return self.known[written]

    def spelled(self, rest: bytes) -> int:
        """The longest token that the rest begins with."""
        vocab = range(self.arch.vocab_size)
        fitting = [id for id in vocab if (piece := self.tongue.pieces.of(id)) and rest.startswith(piece)]
        return max(fitting, key=lambda id: len(self.tongue.pieces.of(id) or b""))

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)
        del self.ids[self.length :]


@dataclass(frozen=True)
class Pair:
    """A target that recites, its end token, and a drafter that recites the same in other tokens."""

    target: Reciter
    drafter: TranslatedDrafter
    end: int
    prompt: Sequence[int] = (0,)

    def begin(self) -> None:
        self.translation.begin([0], len(self.prompt))

    @property
    def translation(self) -> Translation:
        assert isinstance(self.drafter.translator, Translation)
        return self.drafter.translator


def reciting(target: str, drafter: str, text: str, *, drafted: str | None = None, context: int = 4096) -> Pair:
    """`drafted`: what the drafter recites instead."""
    ends = []
    reciters = []
    for name, recited in ((target, text), (drafter, text if drafted is None else drafted)):
        tokenizer = TOKENIZERS[name]()
        ends.append(tokenizer.get_vocab_size())  # an id of its own, without text
        made = Reciter(tongue(tokenizer), recited, end=ends[-1], vocab=ends[-1] + 1, context=context)
        reciters.append(made)
    first, second = reciters
    translation = Translation(first.tongue, second.tongue, end_ids=[ends[1]], end_id=ends[0])
    pair = Pair(first, TranslatedDrafter(second, translation), ends[0])  # type: ignore[arg-type]
    pair.begin()
    return pair
