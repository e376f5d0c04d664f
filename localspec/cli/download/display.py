"""How a pull is shown: as text with a bar, or as one event a line of JSON. Prints; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from localspec.cli.download import screens
from localspec.cli.download.bar import TransferBar
from localspec.cli.io import as_json, print_fitted, print_note, print_notice
from localspec.cli.questions import confirmed
from localspec.core.events import Notice
from localspec.hub.gates import gate_lines
from localspec.hub.records import Fetched, HubAnswer, Progress, PullPlan, Repository, Retrying

WAITS = "Waiting: access is checked every 10 minutes. Ctrl+C stops."
WAITS_HERE = "Waiting in this terminal: access is checked every 10 minutes, then it downloads in the background."


class TextShow:
    """The plan on stdout; questions and progress on stderr. `background`: the download leaves this terminal."""

    def __init__(self, bar: TransferBar, *, yes: bool, background: bool = False) -> None:
        self._bar, self._yes = bar, yes
        self._wait = WAITS_HERE if background else WAITS
        self._repositories: Sequence[Repository] = ()
        self._watched = dict[tuple[str, str], Fetched]()  # what another process has fetched, and hashed, just now

    def plan(self, plan: PullPlan) -> None:
        self._bar.wipe()
        self._repositories = [one for one in (plan.target, plan.drafter) if one]
        print_fitted(screens.variants_text(plan) if plan.variants else screens.plan_text(plan))

    def gate(self, plan: PullPlan, *, waits: bool) -> None:
        self._bar.wipe()
        closed = next(one for one in (plan.target, plan.drafter) if one and not one.access.may_read)
        print_fitted(f"{screens.heading(closed)}\n  {screens.contents(closed)}")
        for line in gate_lines(closed.repo, closed.access, plan.meanwhile, waits=waits):
            print_fitted(f"  {line}")
        if waits:
            print_note(self._wait)

    def event(self, event: HubAnswer) -> None:
        match event:
            case Progress():
                self._bar.show(event)
            case Retrying():
                self._bar.retry(event)
            case Notice():
                self._bar.wipe()
                print_notice(event)
            case Fetched():
                self._bar.wipe()
                known = next((one for one in self._repositories if one.repo == event.repo), None)
                if known is None:
                    self._watched[event.repo, event.commit] = event
                else:
                    fetched = self._watched.get((event.repo, event.commit), event)
                    print_fitted(f"  {screens.checked_words(fetched, known)}")

    def confirmed(self, question: str, *, yes: str, default: bool = True) -> bool:
        self._bar.wipe()
        if self._yes:
            if yes:
                print_note(yes)
            return True
        return confirmed(question, default=default, to_do="download")


class JsonShow:
    """Every event on stdout; no questions."""

    def plan(self, plan: PullPlan) -> None:
        self.event(plan)

    def gate(self, plan: PullPlan, **_: object) -> None:
        self.event(plan)

    def event(self, event: HubAnswer) -> None:
        print(as_json(msgspec.to_builtins(event)), flush=True)

    def confirmed(self, *_: object, **__: object) -> bool:
        return True
