"""What the models screen does beyond its lists: deletes and checks models, shows pages, says what is free.

Deleting is the hub's process's, which is ended when it has answered. Knows no list and no tab.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError
from localspec.core.main_memory import available_bytes
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.models import hub_cache
from localspec.runtime.origins import origin_of
from localspec.tui.chat.pages import page_of
from localspec.tui.control.downloads import Downloads
from localspec.tui.control.outside import Outside
from localspec.tui.control.parts import Parts
from localspec.tui.control.state import AWAY
from localspec.tui.screens.asking import Asking, Reply

if TYPE_CHECKING:
    from localspec.hub.process import HubProcess
    from localspec.hub.records import Deleted, DeletePlan
    from localspec.runtime.local_models import Shelved

DELETE = "delete"
LOADED = "{name} is loaded. Load another model, or /unload it, then delete it."
NOT_OURS = {
    "built in": "{name} comes with localspec and is not deleted.",
    "Ollama": "{name} is Ollama's. Try: ollama rm {rest}",
    "a folder": "{name} is a folder of yours: localspec does not delete it.",
}
OF_ANOTHER = "{name} is {program}'s: delete it there."


class Library:
    """`downloads` outlive the screen; what is deleted is asked about first."""

    def __init__(self, parts: Parts, outside: Outside) -> None:
        self.screen, self.state, self.feedback, self.tuning = parts.screen, parts.state, parts.feedback, parts.tuning
        self.outside = outside
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
        return f"{memory} · disk {size_words(disk_free(hub_cache.folder()))}"

    # --- deleting

    def delete(self, model: Shelved) -> None:
        """Ask with what it frees; a model that is loaded, or is not the hub's, is refused with the reason."""
        if why := self.refusal(model):
            self.say(why, warns=True)
        else:
            self.work(partial(self.plan_deletion, model.origin.repo))

    def refusal(self, model: Shelved) -> str:
        name, (program, repo, _) = one_line(model.name), model.origin
        if not repo:
            sentence = NOT_OURS.get(program, OF_ANOTHER)
            return sentence.format(name=name, program=program, rest=name.partition(":")[2])
        return LOADED.format(name=name) if repo in self.loaded_repositories else ""

    @property
    def loaded_repositories(self) -> set[str]:
        """The repositories of the model and its drafter; none while no model is in memory."""
        if self.state.phase in AWAY - {"loading"}:
            return set()
        found = set[str]()
        for name in (self.tuning.name, str(self.tuning.load.draft)):
            with suppress(LocalspecError):
                found.add(origin_of(name, self.tuning.catalog.resolve(name).path).repo)
        return found

    def plan_deletion(self, repo: str) -> None:
        """Runs in a thread."""
        hub, plan = planned_deletion(repo)
        self.screen.app.call_from_thread(self.ask_deletion, hub, plan)

    def delete_parts(self, repo: str) -> None:
        """Deletes a repository of which only parts are here. Runs in a thread."""
        hub, _ = planned_deletion(repo)
        self.carry_out(hub)

    def ask_deletion(self, hub: HubProcess, plan: DeletePlan) -> None:
        lines = [f"This frees {size_words(plan.freed_bytes)} of the disk."]
        if plan.unfinished_bytes:
            lines.append(f"{size_words(plan.unfinished_bytes)} of them are parts of unfinished downloads.")
        if plan.shared_bytes:
            lines.append(f"{size_words(plan.shared_bytes)} stay: other repositories share them.")
        replies = [Reply(DELETE, f"Delete it, and free {size_words(plan.freed_bytes)}")]
        asking = Asking(f"Delete {', '.join(plan.repos)}?", lines, replies)
        self.screen.app.push_screen(asking, partial(self.answer_deletion, hub))

    def answer_deletion(self, hub: HubProcess, reply: str | None) -> None:
        self.work(partial(self.carry_out, hub) if reply == DELETE else hub.close)

    def carry_out(self, hub: HubProcess) -> None:
        """Runs in a thread."""
        from localspec.hub.records import Deleted, Go

        with hub:
            done = next(answer for answer in hub.ask(Go()) if isinstance(answer, Deleted))
        self.screen.app.call_from_thread(self.deleted, done)

    def deleted(self, done: Deleted) -> None:
        self.say(f"Deleted {', '.join(done.repos)}: {size_words(done.freed_bytes)} are free again.")
        self.listed_anew("")

    # --- pages

    def open_page(self, repo: str) -> None:
        """Ask whether to open a repository's page."""
        self.outside.ask_about(page_of(repo))

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


def planned_deletion(repo: str) -> tuple[HubProcess, DeletePlan]:
    """What deleting it frees, and the process that waits for Go. Waits for it."""
    from localspec.hub.process import HubProcess
    from localspec.hub.records import AskDelete, DeletePlan

    hub = HubProcess()
    try:
        return hub, next(answer for answer in hub.ask(AskDelete((repo,))) if isinstance(answer, DeletePlan))
    except BaseException:
        hub.close()
        raise


def nothing(_repo: str) -> None:
    """Stands in until the models are listed."""


def disk_free(folder: Path) -> int:
    """Bytes free where this folder is, or will be."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    return shutil.disk_usage(there).free
