"""`localspec verify-files`: the check with progress, and wrong files fetched again, alone."""

from __future__ import annotations

from pathlib import Path

from localspec.cli import questions
from localspec.cli.io import print_text
from localspec.cli.models_text import verified_text
from localspec.cli.output import print_records
from localspec.cli.progress import ProgressBar
from localspec.core.errors import NotDownloaded, PullError
from localspec.core.events import Loading
from localspec.core.sanitize import one_line
from localspec.hub import pulls
from localspec.hub.integrity import FilesVerified, Verifying, mend, verify_files
from localspec.hub.records import PullRequest
from localspec.models import hub_cache
from localspec.models.catalog import Catalog


def verify(model: str, *, fetch: bool, as_json: bool) -> int:
    """Checks every file; the exit code of the download, where wrong files are fetched again."""
    path = path_of(model)
    found = checked(path, model)
    if as_json:
        print_records(found)
    else:
        print_text(verified_text(found))
    if not found.bad:
        return 0
    repo, commit = hub_cache.fetched_from(path)
    if repo and (fetch or (not as_json and wanted(found))):
        variant = "" if path.is_dir() else path.name
        return fetch_again(found, PullRequest(repo, commit, variant, draft="none", repairs=True), as_json=as_json)
    hint = f"Fetch only these files again: localspec verify-files {model} --fetch" if repo else "Fetch the model again."
    raise PullError(f"{found.bad_words}.", hint=hint)


def path_of(model: str) -> Path:
    """The path of a model; NotDownloaded says of a begun download that the rest is missing."""
    catalog = Catalog.load()
    try:
        return catalog.resolve(model).path
    except NotDownloaded as fault:
        if not pulls.known(catalog.repository(model) or model.partition(":")[0]):
            raise
        hint = f"Fetch the rest: localspec pull {model}"
        raise NotDownloaded(f"'{model}' is not complete on this machine.", hint=hint) from fault


def checked(path: Path, name: str) -> FilesVerified:
    with ProgressBar() as bar:
        for event in verify_files(path, name):
            if isinstance(event, Verifying):
                bar.show(Loading("checking", event.done, event.total))
            else:
                return event
    raise AssertionError("a check ends with its result")


def wanted(found: FilesVerified) -> bool:
    names = ", ".join(one_line(file.path) for file in found.bad)
    return questions.interactive() and questions.confirmed(f"Fetch {names} again?", default=True, to_do="fetch")


def fetch_again(found: FilesVerified, request: PullRequest, *, as_json: bool) -> int:
    """Deletes what is wrong, and pulls the same commit: everything else is there."""
    from localspec.cli.download.command import pull
    from localspec.cli.download.request import RequestedPull

    mend(found)
    return pull(RequestedPull(request.repo, request, yes=True, json=as_json))
