"""The steps of `localspec pull` around a session: in front or in the background, and what follows it."""

from __future__ import annotations

import os
import subprocess
import sys

from localspec.cli.io import as_json, print_note, print_text
from localspec.cli.pulling import screens, session
from localspec.cli.pulling.asked import Asked
from localspec.cli.pulling.bar import TransferBar, amount
from localspec.cli.pulling.record import HELD, PullRecord, recorded, watched
from localspec.cli.pulling.session import Show
from localspec.cli.pulling.show import JsonShow, TextShow
from localspec.config.models_writing import check_key, store_model
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.events import Failure
from localspec.hub.process import HubProcess
from localspec.hub.records import Pulled, PullPlan
from localspec.models.catalog import Catalog


def pull(asked: Asked, *, background: bool = False, repairs: bool = False) -> int:
    """Pulls what was asked for; the exit code. `repairs`: files of a model that is on this machine, which needs no
    other yes."""
    with TransferBar() as bar, HubProcess() as hub:
        show: Show = JsonShow() if asked.json else TextShow(bar, yes=asked.yes)
        try:
            if asked.request.key:
                check_key(asked.request.key, asked.request.repo)
            watch_another(asked, show)
            plan = session.planned(hub, asked, show)
            if asked.dry_run:
                return session.planned_code(plan)
            session.check(plan)
            if not repairs:
                session.agree(plan, asked, show)
            if background:
                return detach(asked)
            after(asked, plan, session.download(hub, plan, show))
            return 0
        except KeyboardInterrupt:
            return stopped(asked, bar)
        except session.GateClosed as closed:
            note_failure(closed.fault, asked)
            return closed.fault.exit_code
        except LocalspecError as fault:
            return failed(fault, asked)


def watch_another(asked: Asked, show: Show) -> None:
    """Shows another localspec's pull of the same repository until it ends: it is not fetched twice."""
    if asked.dry_run or HELD in os.environ:
        return
    record = PullRecord(asked.request.repo)
    if (free := record.take()) is not None:
        free.close()
        return
    print_note(f"Another localspec is downloading {asked.request.repo}. Ctrl+C leaves it alone.")
    for event in watched(record):
        show.event(event)


def detach(asked: Asked) -> int:
    """Starts the same pull in a process of its own, which has the right to fetch from the start and ends with the
    download."""
    with recorded(PullRecord(asked.request.repo)) as held:
        if held is None:
            raise UsageError(f"Another localspec is downloading {asked.request.repo}.", hint="See it: run this again.")
        quiet, environment = subprocess.DEVNULL, {**os.environ, HELD: str(held.fd)}
        command = [sys.executable, "-m", "localspec", *asked.words, "--json"]
        subprocess.Popen(
            command,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            env=environment,
            pass_fds=(held.fd,),
            start_new_session=True,
        )
    print_text(f"Downloading in the background. See how far it is: localspec pull {asked.typed}")
    return 0


def after(asked: Asked, plan: PullPlan, pulled: Pulled) -> None:
    """Registers the model under its key, and says how to chat with it."""
    if asked.request.key:
        store_model(asked.request.key, *entry(plan, pulled))
    if not asked.json:
        print_text(screens.ready_words(asked.request.key or name_of(asked, pulled), plan))


def name_of(asked: Asked, pulled: Pulled) -> str:
    """What loads a pulled model: the key that was typed, its file or its repository."""
    revision = asked.request.revision
    if pulled.file and revision not in ("", "main"):
        return screens.gguf_name(pulled.file)
    if pulled.file or Catalog.load().key_of(asked.typed):
        return asked.typed
    return f"{pulled.target.repo}@{revision}" if revision not in ("", "main") else pulled.target.repo


def entry(plan: PullPlan, pulled: Pulled) -> tuple[dict[str, object], dict[str, object] | None]:
    """What models.toml says of a pulled model, and of its drafter."""
    offer = plan.offer
    fields: dict[str, object] = {"repo": plan.target.repo, "revision": pulled.target.commit}
    if pulled.file:
        fields = {"repo": None, "revision": None, "path": pulled.file}
    elif plan.preset:
        fields["template"] = "none"
    if offer.kind == "none":
        return fields, None
    drawn = {"model": offer.name} if offer.kind == "model" else {"exit_layer": offer.exit_layer}
    source = {"source": offer.source} if offer.source else {}
    return fields, {"kind": offer.kind, **drawn, "k": offer.k, **source}


def stopped(asked: Asked, bar: TransferBar) -> int:
    """Ctrl+C: what came is kept, and how to go on."""
    bar.wipe()
    kept = f": {amount(bar.last)}" if bar.last and bar.last.total else ""
    print_note(f"Stopped. What came is kept{kept}. Go on: localspec pull {asked.typed}")
    return Cancelled.exit_code


def failed(fault: LocalspecError, asked: Asked) -> int:
    """Raises the error again, after its line of JSON; what the user declined is a note."""
    note_failure(fault, asked)
    if not isinstance(fault, Cancelled):
        raise fault
    print_note(str(fault))
    return fault.exit_code


def note_failure(fault: LocalspecError, asked: Asked) -> None:
    """Prints the line of JSON that ends a pull in an error."""
    if asked.json:
        event = Failure(fault.code, fault.message, fault.hint, fault.exit_code)
        print(as_json({"type": event.type, **{name: getattr(event, name) for name in event.__struct_fields__}}))
