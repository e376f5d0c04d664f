"""What a user asks to pull, a key, or REPO, REPO@REV and REPO:VARIANT, as a request to the hub.

Knows the catalogue and no network.
"""

from __future__ import annotations

from localspec.core.errors import UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import AUTO
from localspec.hub.records import PullRequest
from localspec.models.catalog import Catalog


def pull_request(
    typed: str, *, draft: str = "auto", quant: str = AUTO, ctx: int | None = None, key: str = "", xet: bool = False
) -> PullRequest:
    """The request for what was typed. `quant` and `ctx`: how its fit is planned; `key`: its name in models.toml."""
    repo, revision, variant = asked_repository(typed)
    weights = WeightOptions(weight_format=quant, ctx=ctx)
    return PullRequest(repo, revision, variant, draft, key, weights, xet)


def asked_repository(typed: str) -> tuple[str, str, str]:
    """Its repository, revision and variant; of a key the commit that models.toml has, if it has one."""
    catalog = Catalog.load()
    name, revision, variant = (typed, "", "") if catalog.key_of(typed) else parts_of(typed)
    if known := catalog.key_of(name):
        table = catalog.models[known]
        if table.repo is None:
            raise UsageError(f"'{known}' is on this machine already.", hint=f"Chat with it: localspec chat {known}")
        return table.repo, revision or table.revision or "", variant
    if repo := catalog.repository(name):
        return repo, revision, variant
    catalog.resolve(name)  # says what is meant, if it is a typing error
    raise UsageError(f"'{typed[:200]}' names no repository.", hint="Give owner/name, as on huggingface.co.")


def parts_of(typed: str) -> tuple[str, str, str]:
    """NAME, REV and VARIANT of NAME@REV:VARIANT; "" for what is not there."""
    named, _, variant = typed.partition(":")
    name, _, revision = named.partition("@")
    return name, revision, variant
