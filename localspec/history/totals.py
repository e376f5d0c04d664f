"""Sums over the history for each combination of model, drafter and weight format, so that a trial does not
change another's figures.

Knows the tables, and no rates: those are properties of the records.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from localspec.core.events import DrafterSums
from localspec.history.database import Database
from localspec.history.records import HistoryTotals, ModelTotals

COUNTS = """
SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM message),
  (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)
"""
# Earlier versions also compared with an earlier start's rounds ("calibrated"): that does not measure a drafter.
BY_MODEL = """
SELECT target, coalesce(draft, ''), coalesce(quant, ''), count(*), total(prompt_n), total(predicted_n),
  total(predicted_ms), total(draft_n_accepted), total(draft_n_rejected),
  total(iif(speedup IS NULL OR baseline_source = 'calibrated', 0, predicted_ms)),
  total(iif(baseline_source = 'calibrated', 0, predicted_ms * speedup))
FROM generation GROUP BY 1, 2, 3 ORDER BY sum(count(*)) OVER (PARTITION BY target) DESC, 1, 4 DESC, 2, 3
"""
BY_DRAFTER = """
SELECT target, coalesce(draft, ''), coalesce(quant, ''), drafter, total(drafted), total(accepted), total(rejected)
FROM drafted JOIN generation USING (message_id) GROUP BY 1, 2, 3, 4
"""


def totals(database: Database) -> HistoryTotals:
    with database.snapshot():
        ((chats, messages, file_bytes),) = database.read(COUNTS)
        models, kinds = database.read(BY_MODEL), database.read(BY_DRAFTER)
    by_drafter = defaultdict[tuple[str, ...], dict[str, DrafterSums]](dict)
    for target, draft, quant, kind, *sums in kinds:
        by_drafter[target, draft, quant][kind] = DrafterSums(*map(int, sums))
    found = (msgspec.structs.replace(model(*row), by_drafter=by_drafter[tuple(row)[:3]]) for row in models)
    return HistoryTotals(chats, messages, file_bytes, tuple(found))


def model(target: str, draft: str, quant: str, answers: int, *sums: float) -> ModelTotals:
    prompt_n, predicted_n, predicted_ms, accepted, rejected, compared_ms, plain_ms = sums
    return ModelTotals(
        target=target,
        draft=draft,
        quant=quant,
        answers=answers,
        prompt_n=int(prompt_n),
        predicted_n=int(predicted_n),
        predicted_ms=predicted_ms,
        draft_n_accepted=int(accepted),
        draft_n_rejected=int(rejected),
        compared_ms=compared_ms,
        plain_ms=plain_ms,
    )
