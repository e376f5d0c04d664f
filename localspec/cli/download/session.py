"""One pull from the question to the next command: plan, gate, licence, yes or no, download.

Talks to the hub's process and to a Show; knows nothing about terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Protocol

from localspec.cli.download.record import PullRecord, recorded, watched
from localspec.cli.download.request import RequestedPull
from localspec.core.errors import (
    AccessDenied,
    Cancelled,
    CheckpointError,
    DoesNotFit,
    HubAway,
    LocalspecError,
    PullError,
)
from localspec.core.events import Failure, Notice
from localspec.core.sanitize import one_line
from localspec.hub.gates import next_step
from localspec.hub.licences import acknowledge
from localspec.hub.plan_words import flagged_sentence
from localspec.hub.process import HubProcess
from localspec.hub.records import AskPull, Go, HubAnswer, Progress, Pulled, PullPlan, Repository
from localspec.hub.refusals import licence_sentence, refuse_full, refuse_unready

GATE_SECONDS = 600.0  # between two looks at a gate


class Show(Protocol):
    """Prints what happens, and asks."""

    def plan(self, plan: PullPlan) -> None: ...

    def gate(self, plan: PullPlan, *, waits: bool) -> None: ...

    def event(self, event: HubAnswer) -> None: ...

    def confirmed(self, question: str, *, yes: str, default: bool = True) -> bool:
        """The answer to a question; True without one where all was agreed to, `yes` then says so."""
        ...


class GateClosed(Exception):
    """The gate is closed, and its screen was shown. `fault`: what it is for a program that reads JSON."""

    def __init__(self, repository: Repository) -> None:
        repo, access = one_line(repository.repo), repository.access
        hint = next_step(repo, one_line(access.page), access)
        self.fault = AccessDenied(f"{repo} may not be read yet ({access.gate}).", hint=hint)


class StoppedWatching(KeyboardInterrupt):
    """Ctrl+C while another process downloads. `last`: how far that was."""

    def __init__(self, last: Progress | None) -> None:
        self.last = last


def planned(hub: HubProcess, asked: RequestedPull, show: Show) -> PullPlan:
    """The plan, shown; waits for a gate to open if that is wanted. GateClosed where it is closed."""
    gate = ""
    while True:
        plan = looked_again(hub, asked, show) if gate else one_plan(hub, asked, show)
        if all(one.access.may_read for one in plan.repositories):
            show.plan(plan)
            return plan
        closed = next(one for one in plan.repositories if not one.access.may_read)
        if gate != closed.access.gate:
            gate = closed.access.gate
            show.gate(plan, waits=asked.wait)
        if not asked.wait:
            raise GateClosed(closed)
        sleep(GATE_SECONDS)


def looked_again(hub: HubProcess, asked: RequestedPull, show: Show) -> PullPlan:
    """The plan in a wait of days: that the hub is away is shown once, and it is asked until it is back."""
    is_shown = False
    while True:
        try:
            return one_plan(hub, asked, show)
        except HubAway as away:
            if not is_shown:
                show.event(Notice("warning", away.code, f"{away.message} Access is still checked every 10 minutes."))
                is_shown = True
        sleep(GATE_SECONDS)


def one_plan(hub: HubProcess, asked: RequestedPull, show: Show) -> PullPlan:
    for event in hub.ask(AskPull(asked.request)):
        if isinstance(event, PullPlan):
            return event
        show.event(event)
    raise PullError("The hub gave no plan.", hint="Repeat the command.")


def planned_code(plan: PullPlan) -> int:
    """The exit code of a plan that is only shown: that of a pull where localspec could not load the model."""
    return CheckpointError.exit_code if plan.unloadable else 0


def dry_run_code(plan: PullPlan) -> int:
    """The exit code of a dry run; DoesNotFit, as of the pull itself, where the disk could not hold it."""
    if not plan.unloadable:
        refuse_full(plan, plan.disk_free)
    return planned_code(plan)


def check(plan: PullPlan) -> None:
    """Refuses before a byte what localspec could not load, or the disk not hold."""
    refuse_unready(plan)
    refuse_full(plan, plan.disk_free)


def agree(plan: PullPlan, asked: RequestedPull, show: Show) -> None:
    """Asks what has to be asked; Cancelled, or DoesNotFit, after a no."""
    for one in plan.repositories:
        if sentence := licence_sentence(one):
            if not show.confirmed(f"{sentence} Do you accept it?", yes=f"{sentence} --yes accepts it.", default=False):
                raise Cancelled("The licence was not accepted.", hint="Nothing was downloaded.")
            acknowledge(one.repo, one.licence)
    if (sentence := flagged_sentence(plan)) and not anyway(sentence, show):
        raise Cancelled("Nothing was downloaded.")
    if plan.fit is not None and not plan.fit.chosen:
        sentence = f"{plan.target.repo} does not fit on this machine."
        if not anyway(sentence, show):
            raise DoesNotFit(sentence, hint="Nothing was downloaded. A smaller context may fit: --ctx 2048")
    elif plan.bytes_left and not asked.agreed and not show.confirmed("Download?", yes=""):
        raise Cancelled("Nothing was downloaded.")


def anyway(sentence: str, show: Show) -> bool:
    return show.confirmed(f"{sentence} Download it anyway?", yes=f"{sentence} --yes downloads it.", default=False)


def download(hub: HubProcess, plan: PullPlan, show: Show) -> Pulled:
    """Fetches what the plan says. What happens is recorded for other terminals; where one of them fetches the same,
    waits for it first."""
    record = PullRecord(plan.target.repo)
    while True:
        with recorded(record) as held:
            if held is not None:
                return finished(noted(hub.ask(Go()), record), show)
        follow(record, show)


def follow(record: PullRecord, show: Show) -> None:
    """Shows another process's download until it ends; StoppedWatching on Ctrl+C, which does not end it."""
    last: Progress | None = None
    try:
        for event in watched(record):
            last = event if isinstance(event, Progress) and event.stage == "downloading" and event.total else last
            show.event(event)
    except KeyboardInterrupt:
        raise StoppedWatching(last) from None


def noted(events: Iterator[HubAnswer], record: PullRecord) -> Iterator[HubAnswer]:
    try:
        for event in events:
            record.add(event)
            yield event
    except LocalspecError as fault:
        record.add(Failure(fault.code, fault.message, fault.hint, fault.exit_code))
        raise


def finished(events: Iterator[HubAnswer], show: Show) -> Pulled:
    for event in events:
        show.event(event)
        if isinstance(event, Pulled):
            return event
    raise PullError("The download ended early.", hint="Repeat the command: progress is kept.")
