"""A pull as it was typed: what is asked of the hub, and how the command goes about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any  # Any: click's parsed options

from localspec.core.weight_formats import AUTO
from localspec.hub.records import PullRequest
from localspec.hub.request import pull_request


@dataclass(frozen=True, slots=True)
class RequestedPull:
    """A pull as it was typed: `typed` names it in sentences and in the command that goes on with it. `agreed`: that it
    is downloaded was asked before, of this one and others, so only a licence, the hub's scanners and the fit are asked
    about."""

    typed: str
    request: PullRequest
    yes: bool = False
    dry_run: bool = False
    wait: bool = False
    json: bool = False
    agreed: bool = False

    @property
    def words(self) -> list[str]:
        """The words of a command that pulls the same without a question."""
        return ["pull", self.typed, "--yes", *self.options]

    @property
    def command(self) -> str:
        """The command that goes on with it, with its questions."""
        return shlex.join(["localspec", "pull", self.typed, *self.options, *(["--wait"] if self.wait else [])])

    @property
    def options(self) -> list[str]:
        """The options that were given about what is pulled."""
        request, weights = self.request, self.request.weights
        words = ["--draft", request.draft] if request.draft != "auto" else []
        words += ["--as", request.key] if request.key else []
        words += ["--quant", weights.weight_format] if weights.weight_format != AUTO else []
        words += ["--ctx", str(weights.ctx)] if weights.ctx else []
        return [*words, *(["--xet"] if request.xet else [])]


def asked_for(typed: str, given: Mapping[str, Any], *, as_json: bool) -> RequestedPull:
    """What the options of `localspec pull` ask for."""
    request = pull_request(typed, **{name: given[name] for name in ("draft", "quant", "ctx", "key", "xet")})
    return RequestedPull(typed, request, given["yes"], given["dry_run"], given["wait"], as_json)
