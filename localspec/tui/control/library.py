"""What the models screen does beyond its lists: deletes and checks models, shows pages, says what is free.

Deleting is the hub's process's, which is ended when it has answered. Knows no list and no tab.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from localspec.core import disk
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.main_memory import available_bytes
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.lists import count
from localspec.hub.environment import page_of
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.runtime.load_marks import is_loaded
from localspec.tui.control.downloads import Downloads
from localspec.tui.control.external_programs import ExternalPrograms
from localspec.tui.control.parts import ChatParts
from localspec.tui.screens.dialog import Dialog, DialogButton

if TYPE_CHECKING:
    from localspec.hub.integrity import FilesVerified
    from localspec.hub.process import HubProcess
    from localspec.hub.records import Deleted, DeletePlan, ModelFiles
    from localspec.runtime.local_models import ListedModel

DELETE, FETCH, FETCH_WORDS = "delete", "fetch", "Delete the damaged files and download them again"
PACE = 0.1  # seconds between two words about how far a check is
LOADED = "{name} is loaded. Load another model, or /unload this one, then delete it."
NOT_OURS = {
    "built in": "{name} comes with localspec and is not deleted.",
    "Ollama": "{name} is Ollama's. Try: ollama rm {rest}",
    "a folder": "{name} is a folder of yours: localspec does not delete it.",
    "a file": "{name} is a file of yours: localspec does not delete it.",
}
OF_ANOTHER = "{name} is {program}'s: delete it there."


Show = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Repositories of which only parts are here, begun by other programs or dropped, and the bytes of those; `older`:
    those with older versions, and the bytes that only these use."""

    repos: tuple[str, ...] = ()
    num_bytes: int = 0
    reasons: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    older_bytes: int = 0

    @property
    def words(self) -> str:
        named = zip(self.repos, self.reasons, strict=True)
        names = ", ".join(f"{one_line(repo)} ({reason})" for repo, reason in named)
        parts = f"{size_words(self.num_bytes)} of unfinished downloads: {names}" if self.repos else ""
        replaced = f"{size_words(self.older_bytes)} of older versions: {', '.join(map(one_line, self.older))}"
        return "; ".join(filter(None, (parts, replaced if self.older else "")))


class Library:
    """`downloads` outlive the screen; what is deleted is asked about first."""

    def __init__(self, parts: ChatParts, programs: ExternalPrograms) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.programs = programs
        self.listed_anew: Callable[[str], object] = nothing
        self.downloads = Downloads(
            parts,
            arrived=lambda repo: self.listed_anew(repo),  # noqa: PLW0108 - set later
            page=self.open_page,
            delete_parts=lambda repo: self.work(partial(self.delete_parts, repo)),
        )

    # --- what is free

    def free_words(self) -> str:
        """Memory and disk. Reads the driver and the disk."""
        from localspec.core import nvidia

        gpu = nvidia.free_bytes()
        memory = f"RAM {size_words(available_bytes())} free" if gpu is None else f"GPU {size_words(gpu)} free"
        return f"{memory} · disk {size_words(disk.free_bytes(hub_cache.folder()))} free"

    def find_leftovers(self) -> Leftovers:
        """Looks for what is not complete, and what is older: what `localspec pull` has begun joins the queue. Reads the
        disk."""
        from localspec.hub import pulls
        from localspec.hub.older import older
        from localspec.hub.writers import is_written

        self.downloads.queue.find_unfinished()
        left = [one for one in pulls.unfinished() if one.request is None and not hub_cache.has_version(one.repo)]
        found = [one for one in left if not is_written(one.repo)]
        replaced = [one for one in older() if one.num_bytes and not is_written(one.repo)]
        return Leftovers(
            tuple(one.repo for one in found),
            sum(one.done for one in found),
            tuple(one.reason for one in found),
            tuple(one.repo for one in replaced),
            sum(one.num_bytes for one in replaced),
        )

    def unlisted_words(self, listed: Collection[tuple[str, str]]) -> str:
        """What versions take that were pulled by a revision; `listed`: repositories and commits. Reads the disk."""
        from localspec.hub.unlisted import unlisted, unlisted_words

        return unlisted_words(unlisted(listed))

    # --- deleting

    def delete(self, model: ListedModel) -> None:
        """Ask with what it frees; a model that is loaded, or is not the hub's, is refused with the reason."""
        self.work(partial(self.plan_deletion, model, monotonic()))

    def delete_leftovers(self) -> None:
        """Ask with what it frees: parts of downloads that no queue has, and older versions."""
        self.work(partial(self.plan_leftovers, monotonic()))

    def plan_leftovers(self, asked_at: float) -> None:
        """Runs in a thread. Looks anew: another program may go on with what was left over."""
        if (left := self.find_leftovers()).words:
            self.plan(left.repos, asked_at, left.older)
        else:
            self.screen.app.call_from_thread(self.say, "There are no leftover parts of downloads.")

    def plan_deletion(self, model: ListedModel, asked_at: float) -> None:
        """Runs in a thread. Of a GGUF repository with several models only this one goes."""
        from localspec.hub.one_of_several import apart, links, named_model

        if not model.origin.repo:
            raise UsageError(not_ours(model))
        repos, models = apart([named_model(model.name, self.tuning.catalog) or model.origin.repo])
        if any(map(is_loaded, [*map(hub_cache.kept, repos), *(link for one in models for link in links(one))])):
            raise UsageError(LOADED.format(name=one_line(model.name)))
        self.plan(repos, asked_at, models=models)

    def plan(
        self,
        repos: tuple[str, ...],
        asked_at: float,
        older: tuple[str, ...] = (),
        models: tuple[ModelFiles, ...] = (),
    ) -> None:
        """Runs in a thread."""
        from localspec.config.models_file import keys_of, keys_of_file

        hub, plan = planned_deletion(repos, older, models)
        keys = (*keys_of(repos), *(key for one in models for key in keys_of_file(one.repo, one.paths)))
        self.screen.app.call_from_thread(self.ask_deletion, hub, plan, keys, asked_at)

    def delete_parts(self, repo: str) -> None:
        """Deletes a repository of which only parts are here. Runs in a thread."""
        hub, _ = planned_deletion((repo,))
        self.carry_out(hub, ())

    def ask_deletion(self, hub: HubProcess, plan: DeletePlan, keys: tuple[str, ...], asked_at: float) -> None:
        from localspec.hub.plan_words import deleted_names

        lines = [f"This frees {size_words(plan.freed_bytes)} on the disk."]
        if plan.unfinished_bytes:
            lines.append(f"{size_words(plan.unfinished_bytes)} of them are parts of unfinished downloads.")
        if plan.older_bytes and plan.repos:
            lines.append(f"{size_words(plan.older_bytes)} of them are older versions.")
        if plan.prepared_bytes:
            lines.append(f"{size_words(plan.prepared_bytes)} of them are prepared weights.")
        if plan.shared_bytes:
            lines.append(f"{size_words(plan.shared_bytes)} stay: other repositories share them.")
        if keys:
            lines.append(f"models.toml loses {', '.join(keys)}.")
        replies = [DialogButton(DELETE, f"Delete it, and free {size_words(plan.freed_bytes)}")]
        dialog = Dialog(f"Delete {deleted_names(plan)}?", lines, replies, asked_at=asked_at)
        self.screen.app.push_screen(dialog, partial(self.answer_deletion, hub, keys))

    def answer_deletion(self, hub: HubProcess, keys: tuple[str, ...], reply: str | None) -> None:
        self.work(partial(self.carry_out, hub, keys) if reply == DELETE else hub.close)

    def carry_out(self, hub: HubProcess, keys: tuple[str, ...]) -> None:
        """Runs in a thread."""
        from localspec.config.models_file import remove_models
        from localspec.hub.records import Deleted, Go

        with hub:
            done = next(answer for answer in hub.ask(Go()) if isinstance(answer, Deleted))
        self.screen.app.call_from_thread(self.deleted, done)
        if keys:
            remove_models(keys)
            self.tuning.catalog = Catalog.load()

    def deleted(self, done: Deleted) -> None:
        from localspec.hub.plan_words import deleted_names

        self.say(f"Deleted {deleted_names(done)}: {size_words(done.freed_bytes)} are free again.")
        for repo in done.repos:
            self.downloads.forget(repo)
        self.listed_anew("")

    # --- checking

    def verify(self, model: ListedModel, show: Show) -> None:
        """Check a model's files; `show` says in words how far that is. What is wrong can be fetched again."""
        self.work(partial(self.check, model, show))

    def check(self, model: ListedModel, show: Show) -> None:
        """Runs in a thread."""
        from localspec.hub.integrity import FilesVerified, verify_files

        call, shown_at = self.screen.app.call_from_thread, 0.0
        for event in verify_files(self.tuning.catalog.resolve(model.name).path, model.name):
            if isinstance(event, FilesVerified):
                call(show, "")
                call(self.verified, event, model)
            elif monotonic() - shown_at > PACE:
                shown_at = monotonic()
                call(show, f"Checking {one_line(event.file)}: {100 * event.done // max(event.total, 1)} %")

    def verified(self, found: FilesVerified, model: ListedModel) -> None:
        if not found.bad:
            self.say(f"{one_line(model.name)}: {right_words(found)}")
        elif not model.origin.repo:
            self.say(f"{found.bad_words}. Fetch the model again.", warns=True)
        else:
            dialog = Dialog("Fetch again?", [found.bad_words], [DialogButton(FETCH, FETCH_WORDS)])
            self.screen.app.push_screen(dialog, partial(self.mend, found, model))

    def mend(self, found: FilesVerified, model: ListedModel, reply: str | None) -> None:
        """The same commit again: all files but the wrong ones are here."""
        if reply == FETCH:
            from localspec.hub.integrity import mend
            from localspec.hub.records import PullRequest

            mend(found)
            self.downloads.queue.add(PullRequest(model.origin.repo, model.origin.commit, draft="none", repairs=True))

    # --- pages

    def open_page(self, repo: str) -> None:
        """Ask whether to open a repository's page."""
        self.programs.ask_about(page_of(repo))

    # --- for all of them

    def say(self, sentence: str, *, warns: bool = False) -> None:
        """A sentence over whatever screen is open."""
        self.screen.app.notify(one_line(sentence), severity="warning" if warns else "information", markup=False)

    def work(self, work: Callable[[], object]) -> None:
        """Run this in a thread, and show its fault."""
        self.screen.run_worker(partial(self.guarded, work), thread=True, exit_on_error=False, group="library")

    def guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except LocalspecError as fault:
            self.screen.app.call_from_thread(self.say, str(fault), warns=True)


def right_words(found: FilesVerified) -> str:
    """What was checked of files of which none is wrong."""
    unknown = sum(file.state == "unknown" for file in found.files)
    known = len(found.files) - unknown
    if not known:
        return f"no hash is known for its {count(unknown, 'file')}; their format and length are right."
    have = f"{known} files have the hub's hashes" if known > 1 else "1 file has the hub's hash"
    return f"{have}{f'; no hash is known for {unknown}' if unknown else ''}."


def not_ours(model: ListedModel) -> str:
    """Why a model is not deleted here, and where it would be."""
    name, program = one_line(model.name), model.origin.words
    return NOT_OURS.get(program, OF_ANOTHER).format(name=name, program=program, rest=name.partition(":")[2])


def planned_deletion(
    repos: tuple[str, ...], older: tuple[str, ...] = (), models: tuple[ModelFiles, ...] = ()
) -> tuple[HubProcess, DeletePlan]:
    """What deleting them, these older versions and these models frees, and the process that waits for Go. Waits for
    it."""
    from localspec.hub.process import HubProcess
    from localspec.hub.records import AskDelete, DeletePlan

    hub = HubProcess()
    try:
        asked = hub.ask(AskDelete(repos, older, models))
        return hub, next(answer for answer in asked if isinstance(answer, DeletePlan))
    except BaseException:
        hub.close()
        raise


def nothing(_repo: str) -> None:
    """Stands in until the models are listed."""
