"""Downloads from Python: the plan and what happens as events, or the folder at the end. Imports no huggingface_hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any  # Any: an option has a type of its own

from localspec.hub.process import ANSWER_SECONDS, HubProcess
from localspec.hub.records import Answer, AskPull, Go, Pulled, PullPlan, PullRequest


def pull_events(request: PullRequest, *, silence: float = ANSWER_SECONDS) -> Iterator[Answer]:
    """Progress and a PullPlan; whoever iterates on agrees to it: Progress, Retrying and Notice, a Fetched for each
    repository, and Pulled. Closed at any point, what has come stays."""
    with HubProcess(silence=silence) as hub:
        for answer in hub.ask(AskPull(request)):
            yield answer
            if isinstance(answer, PullPlan):
                yield from hub.ask(Go())


def pull(repo: str, **options: Any) -> Path:
    """Downloads a repository and its drafter; the options are the fields of PullRequest. Returns what loads it: its
    folder, or its GGUF file."""
    for answer in pull_events(PullRequest(repo, **options)):
        if isinstance(answer, Pulled):
            return Path(answer.file or answer.target.folder)
    raise AssertionError("a download ends with Pulled, or with an error")
