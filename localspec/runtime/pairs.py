"""Whether one model can draft for another, for any two models on this machine, with the verdicts remembered.

Knows nothing about the hub or speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import sha256

from localspec.core import paths
from localspec.core.errors import CheckpointError
from localspec.core.events import Record
from localspec.core.json_store import JsonStore
from localspec.engine.generic_arch import read_any
from localspec.models.checkpoint import Snapshot
from localspec.models.sandbox import compare_tokenizers
from localspec.models.sandbox_jobs import TRANSLATE, TokenizerText, Verdict

LARGEST_SHARE = 4  # a drafter has at most a quarter of the target's bytes: a larger one costs more than it saves
BEST_RATIO = 10  # target to drafter, in bytes
MOST_COMPARED = 5  # candidates whose tokenizers are compared: each takes a second, once, or a download
REMEMBERED = JsonStore(paths.pairs_file, Verdict)


class PairVerdict(Record, frozen=True):
    """Whether one model can draft for another. `reason`: "same", "padding", "extra-tokens", "controls-differ",
    "translate" (other tokens, translated through text), "untranslatable", or without a comparison "recurrent",
    "no-tokenizer", "broken-tokenizer"; `target_hash` and `drafter_hash` are of both tokenizers."""

    target: str
    drafter: str
    ok: bool
    reason: str
    detail: str
    target_hash: str = ""
    drafter_hash: str = ""

    @property
    def same_tokens(self) -> bool:
        """Whether the drafter's tokens are the target's: only such a pair is chosen unasked."""
        return self.ok and self.reason != TRANSLATE


class DrafterCandidate(Record, frozen=True):
    """A model that might draft for a target, with its verdict; None: not compared yet. `on_disk`: nothing to fetch."""

    name: str
    num_bytes: int
    on_disk: bool
    verdict: PairVerdict | None = None


def pair(target: Snapshot, drafter: Snapshot) -> PairVerdict:
    """The verdict about two models: their tokenizers are compared in the sandbox once, and then never again."""
    names = target.name, drafter.name
    for model in (target, drafter):
        if not read_any(model.config).can_rewind:
            detail = f"{model.name} is a recurrent model: its state cannot be rolled back"
            return PairVerdict(*names, ok=False, reason="recurrent", detail=detail)
        if model.tokenizer_file is None:
            return PairVerdict(*names, ok=False, reason="no-tokenizer", detail=f"{model.name} has no tokenizer.json")
    here, there = target.read_tokenizer(), drafter.read_tokenizer()
    hashes = hash_of(here), hash_of(there)
    try:
        found = compared(here, there)
    except CheckpointError as fault:
        return PairVerdict(*names, False, "broken-tokenizer", fault.message.rstrip("."), *hashes)
    return PairVerdict(*names, found.ok, found.reason, found.detail, *hashes)


def compared(target: TokenizerText, drafter: TokenizerText) -> Verdict:
    """The verdict of an earlier comparison, else a new one. The rows of the embeddings are part of the question."""
    key = f"{side(hash_of(target), target.rows)} {side(hash_of(drafter), drafter.rows)}"
    if known := REMEMBERED.read().get(key):
        return known
    found = compare_tokenizers(target, drafter)
    REMEMBERED.put(key, found)
    return found


def side(tokenizer_hash: str, rows: int | None) -> str:
    """One model's half of a remembered pair."""
    return f"{tokenizer_hash}:{rows}"


def hash_of(tokenizer: TokenizerText) -> str:
    return sha256(tokenizer.text.encode("utf-8", "surrogatepass")).hexdigest()


def candidates(target: Snapshot, others: Iterable[Snapshot]) -> list[DrafterCandidate]:
    """The models on disk that might draft for a target, best first: those that can, then the others of its family. A
    model of another family that cannot draft is left out."""
    small = [one for one in others if one.name != target.name and is_small(one.total_bytes, target.total_bytes)]
    found = [DrafterCandidate(one.name, one.total_bytes, on_disk=True, verdict=pair(target, one)) for one in small]
    family = {one.name for one in small if one.config.get("model_type") == target.config.get("model_type")}
    shown = [one for one in found if one.name in family or (one.verdict is not None and one.verdict.ok)]
    return ranked(target.total_bytes, shown)


def is_small(num_bytes: int, target_bytes: int) -> bool:
    return 0 < num_bytes * LARGEST_SHARE <= target_bytes


def by_promise(target: Snapshot, small: Iterable[Snapshot]) -> list[Snapshot]:
    """The models to compare first: of the target's family, then of a good size."""
    kind, size = target.config.get("model_type"), target.total_bytes
    return sorted(small, key=lambda one: (one.config.get("model_type") != kind, off_size(size, one.total_bytes)))


def ranked(target_bytes: int, found: Iterable[DrafterCandidate]) -> list[DrafterCandidate]:
    """Candidates by verdict, then by how near their size is to a tenth of the target's."""
    return sorted(found, key=lambda one: (ORDER.index(verdict_word(one)), off_size(target_bytes, one.num_bytes)))


def off_size(target_bytes: int, num_bytes: int) -> float:
    """How far a drafter's size is from a tenth of the target's."""
    return abs(math.log(target_bytes / max(num_bytes, 1) / BEST_RATIO)) if target_bytes else 0.0


ORDER = ("fits", "few", TRANSLATE, "unknown", "no")  # what a verdict promises, best first


def verdict_word(one: DrafterCandidate) -> str:
    if one.verdict is None:
        return "unknown"
    if not one.verdict.ok:
        return "no"
    if one.verdict.reason == TRANSLATE:
        return TRANSLATE
    return "few" if one.verdict.reason == "controls-differ" else "fits"
