"""Searches a fake hub's models, as GET /api/models does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.support.fake_hub.repository import FakeRepository, Json

Query = Mapping[str, Sequence[str]]
BRIEF = ("likes", "private", "downloads", "tags", "pipeline_tag", "library_name", "createdAt", "trendingScore")
FULL = (*BRIEF, "author", "sha", "lastModified", "gated", "disabled", "siblings")
FLAGS = {"full": FULL, "config": (*BRIEF, "config"), "cardData": (*BRIEF, "cardData")}
SORTS = ("trendingScore", "downloads", "likes", "lastModified", "createdAt")
PARAMETERS = {"search", "author", "filter", "gated", "pipeline_tag", "num_parameters", "sort", "direction"}
UNDERSTOOD = PARAMETERS | {"limit", "cursor", "expand"} | FLAGS.keys()
UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def found(repositories: Iterable[FakeRepository], query: Query) -> list[FakeRepository]:
    """Those that match, in the order asked for."""
    matching = [one for one in repositories if matches(one, query)]
    key = query.get("sort", ["trendingScore"])[0]
    return sorted(matching, key=lambda one: str(one.facts()[key]).zfill(12), reverse=True)


def matches(repository: FakeRepository, query: Query) -> bool:
    name, tags = repository.name.lower(), repository.all_tags
    words = [word for text in query.get("search", ()) for word in text.lower().split()]
    return (
        not repository.private
        and all(word in name for word in words)
        and all(repository.owner == author for author in query.get("author", ()))
        and all(tag in tags for tag in (*query.get("filter", ()), *query.get("pipeline_tag", ())))
        and all(bool(repository.gated) == (flag.lower() == "true") for flag in query.get("gated", ()))
        and all(in_range(sum(repository.parameters.values()), text) for text in query.get("num_parameters", ()))
    )


def in_range(count: int, text: str) -> bool:
    """Whether a count of parameters lies in "min:6B,max:128B"; one that the hub does not know lies in none."""
    bounds = dict(re.findall(r"(min|max):([\d.]+[KMBT]?)", text))
    return count > 0 and number(bounds.get("min", "0")) <= count <= number(bounds.get("max", "1000000T"))


def number(text: str) -> float:
    digits = text.rstrip("KMBT")
    return float(digits) * UNITS[text.removeprefix(digits)]


def row(repository: FakeRepository, query: Query, default: tuple[str, ...] = BRIEF) -> Json:
    """What the list or model_info has of one: `expand` names all that is wanted, or else there is a usual choice."""
    flags = [fields for flag, fields in FLAGS.items() if flag in query]
    wanted = {*query["expand"]} if "expand" in query else {*default}.union(*flags)
    facts = repository.facts(blobs="blobs" in query)
    return {"_id": repository.commit[:24], "id": repository.name, "modelId": repository.name} | {
        key: value for key, value in facts.items() if key in wanted
    }
