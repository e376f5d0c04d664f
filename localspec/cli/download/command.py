"""The steps of `localspec pull` around a session: in front or in the background, and what follows it."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.cli.download import background as in_background
from localspec.cli.download import screens, session
from localspec.cli.download.bar import TransferBar, amount, is_in_bytes
from localspec.cli.download.display import JsonShow, TextShow
from localspec.cli.download.record import HELD
from localspec.cli.download.request import RequestedPull
from localspec.cli.download.session import Show
from localspec.cli.io import as_json, print_fitted, print_note
from localspec.cli.questions import confirmed
from localspec.config.models_file import check_key, other_model, store_model
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.events import Failure
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import LOOKUP, has_model
from localspec.hub.process import HubProcess
from localspec.hub.records import Progress, Pulled, PullPlan
from localspec.models.catalog import Catalog
from localspec.runtime import known_pairs


def pull(asked: RequestedPull, *, background: bool = False) -> int:
    """Pulls what was asked for; the exit code."""
    with TransferBar() as bar, HubProcess() as hub:
        show: Show = JsonShow() if asked.json else TextShow(bar, yes=asked.yes, background=background)
        try:
            agree_to_key(asked)
            if background and not asked.dry_run:
                in_background.refuse_taken(asked)
            in_background.watch_another(asked, show)
            plan = session.planned(hub, asked, show)
            if asked.dry_run:
                return session.dry_run_code(plan)
            session.check(plan)
            if not asked.request.repairs:
                session.agree(plan, asked, show)
            if background and plan.bytes_left:
                return in_background.detach(asked, plan)
            after(asked, plan, session.download(hub, plan, show))
            return 0
        except session.StoppedWatching as left:
            return left_alone(asked, bar, left.last)
        except KeyboardInterrupt:
            return stopped(asked, bar)
        except session.GateClosed as closed:
            note_failure(closed.fault, asked)
            return closed.fault.exit_code
        except LocalspecError as fault:
            return failed(fault, asked)


def agree_to_key(asked: RequestedPull) -> None:
    """Refuses a key that cannot be written, and asks before it means another model; in the background that was asked
    before."""
    key, repo = asked.request.key, asked.request.repo
    if not key:
        return
    check_key(key, repo)
    before, where = map(one_line, other_model(key, repo))
    if not before or asked.dry_run or HELD in os.environ:
        return
    if asked.yes:
        message = f"'{key}' is {before} in {where}, not {repo}."
        raise UsageError(message, hint="Choose another: --as KEY. Or leave out --yes, to be asked.")
    question = f"'{key}' is {before} in {where}. Replace it with {repo}?"
    if not confirmed(question, default=False, to_do="download"):
        raise Cancelled(f"'{key}' stays {before}.", hint="Nothing was downloaded.")


def after(asked: RequestedPull, plan: PullPlan, pulled: Pulled) -> None:
    """Registers the model under its key, and says how to chat with it. The drafter of an earlier pull is its own no
    more, where none was asked for: not by a download that began elsewhere and goes on."""
    if asked.request.draft == "none" and not (asked.agreed or asked.request.repairs):
        known_pairs.PULLED.remove(pulled.target.repo)
    if asked.request.key:
        store_model(asked.request.key, *entry(plan, pulled, asked.request.draft))
    if not asked.json:
        print_fitted(screens.ready_words(asked.request.key or name_of(asked, pulled), plan))


def name_of(asked: RequestedPull, pulled: Pulled) -> str:
    """What loads a pulled model: the key that was typed, its file or its repository."""
    revision = asked.request.revision
    if pulled.file and revision not in ("", "main"):
        return screens.gguf_name(pulled.file)
    if pulled.file or Catalog.load().key_of(asked.typed):
        return asked.typed
    return f"{pulled.target.repo}@{revision}" if revision not in ("", "main") else pulled.target.repo


def entry(plan: PullPlan, pulled: Pulled, draft: str) -> tuple[dict[str, object], dict[str, object] | None]:
    """What models.toml says of a pulled model, and of its drafter: look-up alone where none was asked for, also in
    place of one that an earlier pull wrote. A layer without a source stays out: so it is called untested wherever the
    entry is read."""
    offer = plan.offer
    file = Path(pulled.file).relative_to(pulled.target.folder).as_posix() if pulled.file else None
    fields: dict[str, object] = {"repo": plan.target.repo, "revision": pulled.target.commit, "file": file}
    if not file and not plan.target.chat_template:
        fields["fallback_template"] = plan.preset or None
    if offer.kind == "none":
        return fields, {"kind": LOOKUP.name} if draft == "none" else None
    if offer.source == offer.UNTESTED:
        return fields, {"kind": offer.kind, "k": offer.k}
    drawn = {"model": offer.name} if has_model(offer.kind) else {"exit_layer": offer.exit_layer}
    source = {"source": offer.source} if offer.source else {}
    return fields, {"kind": offer.kind, **drawn, "k": offer.k, **source}


def stopped(asked: RequestedPull, bar: TransferBar) -> int:
    """Ctrl+C: progress is kept, if anything came, and how to go on."""
    bar.wipe()
    came = bar.last is not None and is_in_bytes(bar.last) and bar.last.done
    kept = f" Progress is kept: {amount(bar.last)}." if came and bar.last else ""
    print_note(f"Stopped.{kept} Go on: {asked.command}")
    return Cancelled.exit_code


def left_alone(asked: RequestedPull, bar: TransferBar, last: Progress | None) -> int:
    """Ctrl+C while another process downloads: that one goes on."""
    bar.wipe()
    so_far = f" ({amount(last)})" if last else ""
    print_note(f"It goes on downloading in the background{so_far}. See it: localspec pull {asked.typed}")
    return Cancelled.exit_code


def failed(fault: LocalspecError, asked: RequestedPull) -> int:
    """Raises the error again, after its line of JSON; what the user declined is a note, but where others follow it."""
    note_failure(fault, asked)
    if asked.agreed or not isinstance(fault, Cancelled):
        raise fault
    print_note(str(fault))
    return fault.exit_code


def note_failure(fault: LocalspecError, asked: RequestedPull) -> None:
    """Prints the line of JSON that ends a pull in an error."""
    if asked.json:
        event = Failure(fault.code, fault.message, fault.hint, fault.exit_code)
        print(as_json({"type": event.type, **{name: getattr(event, name) for name in event.__struct_fields__}}))
