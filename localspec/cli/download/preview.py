"""`localspec show` of a repository that is not on this machine: the plan that its pull would show. Asks the user
nothing and writes nothing."""

from __future__ import annotations

from localspec.cli.download import session
from localspec.cli.download.bar import TransferBar
from localspec.cli.download.display import TextShow
from localspec.cli.download.request import RequestedPull
from localspec.cli.io import print_fitted, print_unchanged
from localspec.cli.models_text import licence_line
from localspec.cli.output import print_records
from localspec.core.errors import AccessDenied, LocalspecError, NotDownloaded
from localspec.core.sanitize import one_line
from localspec.hub.absent import asking_about
from localspec.hub.process import HubProcess
from localspec.hub.records import PullPlan
from localspec.hub.request import pull_request
from localspec.models.catalog import FETCH


def show_absent(model: str, absence: NotDownloaded, *, licence: bool, as_json: bool) -> int:
    """Shows what a pull would fetch; the exit code of its dry run, but for a full disk. Raises `absence` for what is no
    repository."""
    try:
        asked = RequestedPull(model, pull_request(model), dry_run=True, json=as_json)
    except LocalspecError:
        raise absence from None
    with asking_about(model), TransferBar() as bar, HubProcess() as hub:
        show = TextShow(bar, yes=False)
        plan = session.one_plan(hub, asked, show)
        bar.wipe()
        if as_json:
            print_records(plan)
        elif licence:
            print_unchanged(licence_line(plan.target.licence))
        elif is_closed(plan):
            show.gate(plan, waits=False)
        else:
            show.plan(plan)
            print_fitted(next_words(model, plan))
    return AccessDenied.exit_code if is_closed(plan) else session.planned_code(plan)


def is_closed(plan: PullPlan) -> bool:
    return not all(one.access.may_read for one in plan.repositories)


def next_words(model: str, plan: PullPlan) -> str:
    """The sentence that it is not here, with the next command."""
    name = one_line(model)
    if plan.unloadable:
        return "Not on this machine."
    if plan.variants:
        return f"Not on this machine. Choose one: localspec pull {name}:{one_line(plan.variants[0].name)}"
    return f"Not on this machine. {'Fetch the rest: localspec pull' if plan.target.bytes_here else FETCH} {name}"
