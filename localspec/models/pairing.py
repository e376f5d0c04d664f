"""Compares two tokenizers by content and behaviour, to decide whether one model may draft for the other.

Equal sizes prove nothing and unequal sizes disprove nothing. Where they differ, the drafter may yet write text that is
translated, if both give back the text that they read. Knows nothing about models or speed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tokenizers import Tokenizer

from localspec.models.checkpoint import check_ids, num_ids, parse_tokenizer, tokenizer_faults
from localspec.models.pieces import TokenBytes, are_beside
from localspec.models.prompt import Prompter
from localspec.models.sandbox_jobs import PairReason, TokenizerText, Verdict

PROBE_LINES = 2000
PROBE_SEED = 20
PLAIN = " The quick brown fox, don't you know? Over 12 lazy DOGS (and 3 cats); it sleeps."  # what has to be translated

WORDS = """the The THE don't we'LL naïve straße İstanbul ſ ﬁne Ａ ① ½ 0 7 42 1234567 3.14159 1e-9 0xFF ٣ x²
def f(x): return x self._a += 1 {} [0] <b> </b> < > | == != -> /* */ # $ % & @ ~ ^ \\ ` ' "
漢字 かな カナ 한국어 ไทย हिन्दी العربية עברית Ελληνικά Русский Ё й ẞ 😀 🇩🇪 ❤️ … “ ” – ▁ Ġ ##
. , ; ? ! ... https://a.b/c?d=e a@b.c"""
BLANKS = " / /  /    /\t/\n/\n\n/\r\n/ \n/\u00a0/\u3000/\u200b/\ufeff/e\u0301/a\u0308/👩\u200d👩\u200d👧"


def compare(target: TokenizerText, drafter: TokenizerText) -> Verdict:
    """Compares two tokenizers; the embeddings may be padded. Runs untrusted tokenizers, so it is called in the
    sandbox."""
    first = parse_tokenizer(target.text, target.where)
    second = first if target.text == drafter.text else parse_tokenizer(drafter.text, drafter.where)
    sizes = (num_ids(first), num_ids(second))
    check_ids(target.where, first, target.rows)
    check_ids(drafter.where, second, drafter.rows)
    rows = (target.rows or sizes[0], drafter.rows or sizes[1])
    with tokenizer_faults(f"{target.where} or {drafter.where}"):
        found = _difference(first, second) if first is not second else None
        fault = next(filter(None, map(loss, (first, second), ("target", "draft"))), "") if found else ""
    if found:
        detail = f"tokenizers differ ({found})"
        return (
            Verdict(False, "untranslatable", f"{detail}, and {fault}") if fault else Verdict(True, "translate", detail)
        )
    if others := _other_controls(first, second):
        count = f"{len(others)} control tokens" if len(others) > 1 else "a control token"
        return Verdict(True, "controls-differ", f"same tokens but for {count} ({others[0]})")
    return Verdict(True, *_agreement(sizes, rows))


def loss(tokenizer: Tokenizer, owner: str) -> str:
    """Why text cannot be translated from or to a tokenizer; "" if it can."""
    if not are_beside(tokenizer):
        return f"the {owner}'s tokens are not bytes of the text"
    with_controls = Prompter(tokenizer, name=owner, template=None)
    if TokenBytes(tokenizer).text(with_controls.running(PLAIN)) != PLAIN.encode():
        return f"the {owner}'s tokenizer changes the text that it reads"
    return ""


def _difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    """A description of the first difference."""
    return _token_difference(target, drafter) or _text_difference(target, drafter)


def _token_difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    """The first id with two meanings, or token that only one has. Added tokens may be missing on either side, and
    control tokens may differ: verification keeps the text right."""
    here, there = _by_id(target), _by_id(drafter)
    added = target.get_added_tokens_decoder().keys() | drafter.get_added_tokens_decoder().keys()
    controls = _controls(target, drafter)
    for id in sorted((here.keys() | there.keys()) - controls):
        mine, theirs = here.get(id), there.get(id)
        if mine != theirs and (id not in added or (mine is not None and theirs is not None)):
            return f"id {id} {_quoted(mine)} vs {_quoted(theirs)}"
    return None


def _controls(target: Tokenizer, drafter: Tokenizer) -> set[int]:
    """The ids of added tokens that both have and at least one marks as special."""
    here, there = target.get_added_tokens_decoder(), drafter.get_added_tokens_decoder()
    return {id for id in here.keys() & there.keys() if here[id].special or there[id].special}


def _other_controls(target: Tokenizer, drafter: Tokenizer) -> list[str]:
    """Control tokens that differ in the draft, or are plain words there."""
    here, there = target.get_added_tokens_decoder(), drafter.get_added_tokens_decoder()
    found = []
    for id in sorted(_controls(target, drafter)):
        mine, theirs = here[id], there[id]
        if mine.content != theirs.content:
            found.append(f"id {id} {_quoted(mine.content)} vs {_quoted(theirs.content)}")
        elif mine.special != theirs.special:
            owner = "target" if mine.special else "draft"
            found.append(f"id {id} {_quoted(mine.content)} is special to the {owner} only")
    return found


def _text_difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    """The first probe line with different ids, or ids with different text."""
    lines = probe_lines()
    here, there = (one.encode_batch(lines, add_special_tokens=False) for one in (target, drafter))
    for line, mine, theirs in zip(lines, here, there, strict=True):
        if mine.ids != theirs.ids:
            return f"{line[:30]!r} is {mine.ids[:6]} vs {theirs.ids[:6]}"
        if target.decode(mine.ids) != drafter.decode(mine.ids):
            return f"ids {mine.ids[:6]} are two texts"
    return None


def probe_lines() -> list[str]:
    """Varied test lines, the same on every machine: languages, code, numbers, spaces, and what normalisers change."""
    rng = random.Random(PROBE_SEED)
    words = WORDS.split()
    pieces = (*words, *(word + " " for word in words), *BLANKS.split("/"))
    return ["".join(rng.choices(pieces, k=rng.randint(1, 24))) for _ in range(PROBE_LINES)]


def _agreement(sizes: tuple[int, int], rows: tuple[int, int]) -> tuple[PairReason, str]:
    same = min(sizes)
    if sizes[0] != sizes[1]:
        owner = "target" if sizes[0] > sizes[1] else "draft"
        extra = abs(sizes[0] - sizes[1])
        return "extra-tokens", f"same {same} tokens, {extra} more in the {owner}: compatible"
    if rows[0] != rows[1]:
        return "padding", f"vocab {rows[0]} vs {rows[1]}: same {same} tokens, padding differs: compatible"
    return "same", f"the same {same:,} tokens"


def _by_id(tokenizer: Tokenizer) -> Mapping[int, str]:
    return {id: token for token, id in tokenizer.get_vocab(with_added_tokens=True).items()}


def _quoted(token: str | None) -> str:
    return "nothing" if token is None else f'"{token[:40]}"'
