"""What a user asks to pull, a key, or REPO, REPO@REV and REPO:VARIANT, as a request to the hub.

Knows the catalogue and no network.
"""

from __future__ import annotations

from localspec.core import paths
from localspec.core.arguments import checked
from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import AUTO
from localspec.engine.drafters.table import has_model, parse
from localspec.hub.records import PullRequest
from localspec.loading.plan_request import check
from localspec.models.addresses import GIVE
from localspec.models.catalog import Catalog, variant_of
from localspec.models.catalog_file import ModelTable

EXAMPLES, FREE = 3, "apache-2.0"  # names in a hint, of models that need no permission


@checked
def pull_request(
    model: str, *, draft: str = "auto", quant: str = AUTO, ctx: int | None = None, key: str = "", xet: bool = False
) -> PullRequest:
    """The request for what was typed. `quant` and `ctx`: how its fit is planned; `key`: its name in models.toml."""
    weights = WeightOptions(weight_format=quant, ctx=ctx)
    check(weights)
    repo, revision, variant = asked_repository(model)
    draft = asked_drafter(model, draft)
    return PullRequest(repo, revision, variant, draft, key, weights, xet)


def asked_drafter(typed: str, draft: str) -> str:
    """auto, none or a repository; UsageError for a drafter without a model."""
    if draft == "off":
        return "none"
    if (kind := parse(draft).kind) != "auto" and not has_model(kind):
        raise UsageError(
            "An early exit is part of the target: there is nothing to download for it.",
            hint=f"Leave it out here, and name it for the chat: localspec chat {typed} --draft {draft}",
        )
    return Catalog.load().plain_name(draft) if draft not in ("auto", "none") else draft


def asked_repository(typed: str) -> tuple[str, str, str]:
    """Its repository, revision and variant; of a key the commit and file that models.toml has, if it has them."""
    catalog = Catalog.load()
    typed = catalog.plain_name(typed)
    name, revision, variant = (typed, "", "") if catalog.key_of(typed) else parts_of(typed)
    if known := catalog.key_of(name):
        table = catalog.models[known]
        if table.repo is None:
            raise UsageError(here_already(known, table), hint=f"Chat with it: localspec chat {known}")
        own = variant_of(table.file) if table.file else ""
        return table.repo, revision or table.revision or "", variant or own
    if repo := catalog.repository(name):
        return repo, revision, variant
    try:
        catalog.resolve(name)
    except NotDownloaded as fault:  # says what is meant, if it is a typing error
        free = [key for key, table in catalog.models.items() if table.repo and table.licence == FREE]
        hint = f"Give ORG/NAME, or a name of the catalogue, such as {', '.join(free[:EXAMPLES])}."
        raise NotDownloaded(fault.message, hint=hint) from fault
    raise UsageError(f"'{typed[:200]}' is not the name of a repository.", hint=GIVE)


def here_already(key: str, table: ModelTable) -> str:
    """Why a model without a repository is not fetched."""
    ships = table.path is not None and not paths.expanded(table.path).is_absolute()
    return f"{key} is built in: there is nothing to fetch." if ships else f"'{key}' is on this machine already."


def parts_of(typed: str) -> tuple[str, str, str]:
    """NAME, REV and VARIANT of NAME@REV:VARIANT; "" for what is not there."""
    named, _, variant = typed.partition(":")
    name, _, revision = named.partition("@")
    return name, revision, variant
