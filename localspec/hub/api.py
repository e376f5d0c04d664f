"""Downloads from Python: the plan and what happens as events, or the folder at the end. Imports no huggingface_hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any  # Any: an option has a type of its own

from localspec.core.arguments import checked
from localspec.hub.process import ANSWER_SECONDS, HubProcess
from localspec.hub.records import AskPull, Go, HubAnswer, Pulled, PullPlan, PullRequest
from localspec.hub.refusals import refuse_licences, refuse_unready
from localspec.hub.request import pull_request
from localspec.runtime import known_pairs


@checked
def pull_events(
    model: str | PullRequest, *, accept_licence: bool = False, silence: float = ANSWER_SECONDS, **options: Any
) -> Iterator[HubAnswer]:
    """Progress and a PullPlan; whoever iterates on agrees to it: Progress, Retrying and Notice, a Fetched for each
    repository, and Pulled. Closed at any point, what has come stays. `accept_licence`: of a non-commercial licence,
    which is remembered; without it AccessDenied. `options`: draft, quant, ctx and xet, as `localspec pull` has them."""
    request = pull_request(model, **options) if isinstance(model, str) else model
    with HubProcess(silence=silence) as hub:
        for answer in hub.ask(AskPull(request)):
            yield answer
            if isinstance(answer, PullPlan):
                refuse_unready(answer)
                refuse_licences(answer.repositories, accepted=accept_licence)
                for event in hub.ask(Go()):
                    if isinstance(event, Pulled) and request.draft == "none" and not request.repairs:
                        known_pairs.PULLED.remove(event.target.repo)  # an earlier pull may have brought one
                    yield event


@checked
def pull(model: str, *, accept_licence: bool = False, **options: Any) -> Path:
    """Downloads a model, a key or a repository as `localspec pull` takes it, and its drafter. Returns what loads it:
    its folder, or its GGUF file. A licence that forbids commercial use is accepted once, with `accept_licence`."""
    for answer in pull_events(model, accept_licence=accept_licence, **options):
        if isinstance(answer, Pulled):
            return Path(answer.file or answer.target.folder)
    raise AssertionError("a download ends with Pulled, or with an error")
