"""What the user asks to pull: a key, or REPO, REPO@REV and REPO:VARIANT, as a request to the hub.

Knows the catalogue and no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any  # Any: click's parsed options

from msgspec.structs import replace

from localspec.core.errors import UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import AUTO
from localspec.hub.records import PullRequest
from localspec.models.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Asked:
    """A pull as it was typed: `typed` names it in sentences and in the command that goes on with it."""

    typed: str
    request: PullRequest
    yes: bool = False
    dry_run: bool = False
    wait: bool = False
    json: bool = False

    @property
    def words(self) -> list[str]:
        """The words of a command that pulls the same without a question."""
        request, weights = self.request, self.request.weights
        words = ["pull", self.typed, "--yes", "--draft", request.draft]
        words += ["--as", request.key] if request.key else []
        words += ["--quant", weights.weight_format] if weights.weight_format != AUTO else []
        words += ["--ctx", str(weights.ctx)] if weights.ctx else []
        return [*words, *(["--xet"] if request.xet else [])]


def asked_for(typed: str, given: Mapping[str, Any], *, as_json: bool) -> Asked:
    """What the options of `localspec pull` ask for."""
    weights = WeightOptions(weight_format=given["quant"], ctx=given["ctx"])
    catalog = Catalog.load()
    request = request_of(typed, catalog, weights, draft=given["draft"], key=given["key"], xet=given["xet"])
    return Asked(typed, request, given["yes"], given["dry_run"], given["wait"], as_json)


def request_of(typed: str, catalog: Catalog, weights: WeightOptions, *, draft: str, key: str, xet: bool) -> PullRequest:
    """The request for what was typed; a key's commit is the one that models.toml has, if it has one."""
    request = PullRequest("", draft=draft, key=key, weights=weights, xet=xet)
    if known := catalog.key_of(typed):
        table = catalog.models[known]
        if table.repo is None:
            raise UsageError(f"'{typed}' is on this machine already.", hint=f"Chat with it: localspec chat {typed}")
        return replace(request, repo=table.repo, revision=table.revision or "")
    name, at, behind = typed.partition("@")
    revision, _, variant = behind.partition(":") if at else ("", "", typed.partition(":")[2])
    name = name if at else name.partition(":")[0]
    repo = catalog.repository(name)
    if not repo:
        catalog.resolve(name)  # says what is meant, if it is a typing error
        raise UsageError(f"'{typed[:200]}' names no repository.", hint="Give owner/name, as on huggingface.co.")
    return replace(request, repo=repo, revision=revision, variant=variant)
