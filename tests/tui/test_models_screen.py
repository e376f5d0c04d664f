"""The models screen: what is on disk, a search of the hub, and downloads that go on whatever is on the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import PullError, UsageError
from localspec.hub.blobs import PART
from localspec.hub.older import Older
from localspec.hub.queue import Download, kept_downloads
from localspec.hub.records import (
    AskDelete,
    AskFit,
    AskPair,
    AskPull,
    AskSearch,
    Deleted,
    DeletePlan,
    FitFound,
    Go,
    Licence,
    ModelFiles,
    PairFound,
    Progress,
    Pulled,
    PullRequest,
    Retrying,
    SearchPage,
    SearchRow,
)
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.runtime.local_models import ListedModel
from localspec.runtime.origins import ModelOrigin
from localspec.runtime.pairs import DrafterCandidate, PairVerdict
from localspec.tui.panels import hub_tab
from localspec.tui.screens import dialog
from localspec.tui.screens import models as models_screen
from localspec.tui.screens.dialog import Dialog, DialogButton
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.models import ModelsScreen
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.paced_hub import PacedHub
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_hub import COMMIT, GB, a_fit, a_plan, a_pulled, a_repository, gated

pytestmark = pytest.mark.heavy

OFF = (("off", "decode plain"),)
FAIR = Licence("fair", non_commercial=True)
ROWS = (
    SearchRow("org/model", 4 * GB, "fits", Licence("apache-2.0"), "", 900, 2_000_000_000, "BF16", "org/small"),
    SearchRow("org/huge", 140 * GB, "too large", Licence("llama3"), "auto", 700, 70_000_000_000, "BF16"),
    SearchRow("facebook/layers", 13 * GB, "fits", FAIR, "manual", 500, 6_740_000_000, "F16", "early exit"),
    SearchRow("org/head", GB, "", Licence("mit"), "", 100, note="head for vLLM"),
)
VERDICT = PairVerdict("org/model", "org/small", True, "same", "the same tokens")
FETCHING = Progress("org/model", "downloading", 2 * GB, 4 * GB, bytes_per_second=88e6, eta_s=23.0)


def shelf(*names: str) -> list[ListedModel]:
    hub = ModelOrigin("Hugging Face", "org/cached", COMMIT)
    found = [ListedModel("guide", "int8", 29_000_000, "fits", OFF, ModelOrigin("built in"))]
    found.append(ListedModel("org/cached", "bf16", 4 * GB, "fits in int8", OFF, hub))
    return [
        *found,
        *(ListedModel(name, "bf16", GB, "fits", OFF, ModelOrigin("Hugging Face", name, COMMIT)) for name in names),
    ]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TYPING_SECONDS", "REST_SECONDS"):
        monkeypatch.setattr(hub_tab, name, 0.0)
    monkeypatch.setattr(dialog, "REST_SECONDS", 0.0)
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: shelf())
    monkeypatch.setattr("localspec.runtime.local_models.in_repository", lambda _, repo, *__, **___: shelf(repo)[2:])
    monkeypatch.setattr(
        "localspec.tui.control.library.Library.free_words", lambda _: "RAM 22.1 GB free · disk 212.0 GB free"
    )


@asynccontextmanager
async def models(*engines: ScriptedEngine, size: tuple[int, int] = (120, 30), tab: str = "") -> AsyncIterator[Stage]:
    async with open_chat(*(engines or (ScriptedEngine(),)), size=size) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+o")
        await stage.sees("org/cached")
        if tab:
            await stage.pilot.press(tab)
        yield stage


def screen(stage: Stage) -> ModelsScreen:
    assert isinstance(stage.app.screen, ModelsScreen)
    return stage.app.screen


def a_hub(**scripts: Any) -> dict[Any, Any]:
    """A search that finds ROWS, exact fits, and a download that waits for the test before its last bytes."""
    usual: dict[Any, Any] = {
        AskSearch: [[SearchPage(ROWS)]],
        AskFit: [[FitFound(a_fit())]],
        AskPair: [[PairFound((DrafterCandidate("org/small", GB, False, VERDICT),))]],
        AskPull: [[a_plan()]],
    }
    return usual | {globals()[name]: script for name, script in scripts.items()}


async def test_beside_the_drafters_the_last_line_names_no_key_of_the_models():
    async with models() as stage:
        await stage.sees("Tab drafters", "x delete", "v verify")
        await stage.pilot.press("tab")
        await stage.sees("Enter loads the model with this drafter · Tab models · Esc closes")
        assert "x delete" not in stage.seen
        await stage.pilot.press("tab")
        await stage.sees("Tab drafters", "x delete", "v verify")


async def test_d_adds_only_a_drafter_whose_tokens_were_compared(monkeypatch: pytest.MonkeyPatch):
    """As Enter does."""
    hub = PacedHub(a_hub(AskPair=[[PairFound((DrafterCandidate("org/unread", GB, False),))]])).install(monkeypatch)
    async with models(tab="2") as stage:
        await stage.sees("with 4,096 tokens")
        await stage.pilot.press("enter", "d")
        await stage.sees("No drafter was found for ")
        assert not any(one.request.drafter for one in hub.of(AskFit))


async def test_the_hub_is_asked_only_when_its_tab_is_opened_and_a_row_says_all_before_a_download(
    monkeypatch: pytest.MonkeyPatch,
):
    """A search, the exact fit in place of the estimate, a drafter as one item, order and filters, the licence."""
    exact = Event()
    hub = PacedHub(a_hub(AskFit=[[exact, FitFound(a_fit(word="fits", num_bytes=3_700_000_000))]])).install(monkeypatch)
    async with models() as stage:
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert not hub.asked
        await stage.pilot.press("ctrl+o")
        await stage.sees("org/cached", "On disk 2", "RAM 22.1 GB free · disk 212.0 GB free")
        await stage.pilot.press("2")
        await stage.sees("org/model", "≈4.0 GB", "≈140.0 GB", "too large", "head for vLLM", "gated by hand", "+ small")
        await stage.sees("fair, non-commercial", "Estimated from the number of parameters.")
        await stage.pilot.press(*"qwen 2", "enter")
        await stage.until(lambda: hub.of(AskSearch)[-1].request.words == "qwen 2")
        exact.set()
        await stage.sees("with 4,096 tokens: 10.0 GB in int8, 2.0 GB left", " 3.7 GB  fits")
        assert "4.0 GB" not in stage.seen, "the search's estimate of it"
        await stage.pilot.press("d")
        await stage.sees("+ small same", "4.7 GB", "with small and 4,096 tokens")
        assert hub.of(AskFit)[-1].request.drafter == "org/small"
        assert hub.of(AskPair)[-1].request.hub
        await stage.pilot.press("d")
        await stage.until(lambda: "+ small same" not in stage.seen)
        await stage.pilot.press("f")
        await stage.until(lambda: "org/huge" not in stage.seen and "org/head" not in stage.seen)
        await stage.pilot.press("f", "g")
        await stage.until(lambda: hub.of(AskSearch)[-1].request.gated is False)
        await stage.pilot.press("s", "s")
        await stage.until(lambda: hub.of(AskSearch)[-1].request.sort == "likes")
        await stage.pilot.press("i")
        await stage.sees("org/model is under apache-2.0. Its text: https://huggingface.co/org/model")
        await stage.pilot.press("o")
        await stage.sees("This link leads to huggingface.co")
        await stage.pilot.press("escape")
        await stage.until(lambda: screen(stage))


@pytest.mark.parametrize("width", [100, 80])
async def test_licence_and_pair_have_what_is_free_from_80_columns_on(width: int, monkeypatch: pytest.MonkeyPatch):
    """At 80 the pair alone: the licence is in the line below the list."""
    PacedHub(a_hub()).install(monkeypatch)
    async with models(size=(width, 30), tab="2") as stage:
        await stage.sees("facebook/layers", "with 4,096 tokens")
        (line,) = [line for line in stage.seen.splitlines() if "facebook/layers" in line]
    assert "gated by hand  early exit" in line
    assert ("fair, non-c" in line) is (width == 100)


async def test_a_download_is_one_question_and_goes_on_whatever_is_on_the_screen(monkeypatch: pytest.MonkeyPatch):
    """Check 16: the screen closed, an answer running, a new chat. Check 17: the list has it, no focus moves."""
    go_on, ends = Event(), Event()
    script = a_hub(Go=[[FETCHING, go_on, replace(FETCHING, done=3 * GB), ends, a_pulled()]])
    hub = PacedHub(script).install(monkeypatch)
    engine = ScriptedEngine(HELLO, paused=True)
    engine.permit(1)
    async with models(engine, tab="2") as stage:
        await stage.sees("org/model")
        await stage.pilot.press("enter", "enter")
        await stage.sees("Download org/model?", "org/model @ 1a2b3c4 · 2.00 B BF16 · licence apache-2.0")
        await stage.sees("4.0 GB in 2 files (1.0 GB are here) · disk: 212.0 GB free", "fits in int8 with 4,096 tokens")
        assert not hub.of(Go)
        await stage.pilot.press("enter")
        await stage.sees("↓ 50 %", "Downloads 1")
        await stage.pilot.press("3")
        await stage.sees("████████░░░░░░░░", "2.0/4.0 GB", "50 % · 88 MB/s · 23 s", "2.0 GB of 4.0 GB · 88 MB/s · 23 s")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.begins("go")
        await stage.sees("↓ 50 % model")
        go_on.set()
        await stage.sees("↓ 75 % model", "generating")
        stage.engine.permit()
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.", "↓ 75 % model")
        await stage.pilot.press("ctrl+o")
        await stage.sees("org/cached")
        await stage.pilot.press("tab")
        focused = screen(stage).focused
        headers = Event()

        def looked(*_: object, **__: object) -> Iterator[ListedModel]:
            headers.wait()
            yield from shelf("org/model")

        monkeypatch.setattr("localspec.runtime.local_models.on_disk", looked)
        try:
            ends.set()
            await stage.sees("org/model is complete.", "1 lists it: Enter loads it.", "On disk 3")
            assert screen(stage).disk.model_list.option_count == 3  # and no header of another has been read again
            assert screen(stage).focused is focused
        finally:
            headers.set()
        await stage.until(lambda: not [one for one in stage.app.workers if one.group == "look" and one.is_running])
        assert [model.name for model in screen(stage).disk.models] == ["guide", "org/cached", "org/model"]
        assert screen(stage).focused is focused
        assert "Downloads 1" not in stage.seen
        assert not kept_downloads().read()


@pytest.mark.slow
async def test_the_queue_is_there_after_a_restart_paused_and_is_kept_in_order(monkeypatch: pytest.MonkeyPatch):
    """Pause, go on, order, drop with its question, a stall with its reason and its key."""
    for position, name in enumerate(("org/one", "org/two", "org/three"), 1):
        kept_downloads().put(name, Download(PullRequest(name), position, "downloading", GB, 4 * GB))
    stall, ends = Event(), Event()
    at_a_quarter = replace(FETCHING, done=GB)
    stalled = Retrying("org/one", "the hub stopped answering (30 s)", 8.0)
    script = a_hub(
        AskPull=[[a_plan(a_repository("org/one"))]],
        AskDelete=[[DeletePlan(("org/two",), GB, GB)]],
        Go=[
            [at_a_quarter, stall, stalled, at_a_quarter, ends, PullsEnd],
            [ends, PullsEnd],
            [Deleted(("org/two",), GB)],
        ],
    )
    hub = PacedHub(script).install(monkeypatch)
    async with models() as stage:
        await stage.sees("Downloads 3")
        assert not hub.asked
        await stage.pilot.press("3")
        await stage.sees("⏸ org/one", "paused at 25 %", "3.0 GB of 12.0 GB")
        assert not hub.asked
        await stage.pilot.press("p")
        await stage.sees("↓ org/one")
        await stage.pilot.press("down", "J")
        rows = lambda: [item.request.repo for item in screen(stage).downloads.items]  # noqa: E731
        await stage.until(lambda: rows() == ["org/one", "org/three", "org/two"])
        stall.set()
        await stage.sees("! org/one", "the hub stopped answering (30 s); tries again in", "r now")
        await stage.pilot.press("up", "up", "r")
        await stage.until(lambda: len(hub.of(Go)) == 2)
        await stage.sees("↓ org/one")
        await stage.pilot.press("p")
        await stage.sees("⏸ org/one")
        await stage.pilot.press("end", "x")
        await stage.sees("org/two is not complete (25 %).", "keep the parts")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: rows() == ["org/one", "org/three"])
        await stage.until(lambda: hub.of(AskDelete))
        await stage.sees("1.0 GB are free again")
    assert [(item.request.repo, item.state) for item in sorted(kept_downloads().read().values(), key=by_position)] == [
        ("org/one", "paused"),
        ("org/three", "paused"),
    ]


async def test_the_cursor_goes_to_the_neighbour_of_a_download_that_was_dropped(monkeypatch: pytest.MonkeyPatch):
    """It jumped to the first row, where the next key did what was meant for another."""
    for position, name in enumerate(("org/one", "org/two", "org/three", "org/four"), 1):
        kept_downloads().put(name, Download(PullRequest(name), position, "paused"))
    PacedHub(a_hub()).install(monkeypatch)
    async with models(tab="3") as stage:
        await stage.sees("org/four")
        tab = screen(stage).downloads
        await stage.pilot.press("down", "down")
        for left, neighbour in (("one two four", "org/four"), ("one two", "org/two")):
            await stage.pilot.press("x")
            rows = [f"org/{name}" for name in left.split()]
            await stage.until(lambda: [item.request.repo for item in tab.items] == rows)  # noqa: B023 - awaited here
            assert tab.item is not None
            assert tab.item.request.repo == neighbour


@pytest.mark.slow
async def test_a_full_disk_and_a_gate_that_closed_stop_one_download_and_neither_the_next_nor_the_chat(
    monkeypatch: pytest.MonkeyPatch,
):
    """Check 8: the rows say why, with the key that tries again; a question is answered as ever."""
    for position, name in enumerate(("org/one", "org/two", "org/three"), 1):
        kept_downloads().put(name, Download(PullRequest(name), position, "downloading", GB, 4 * GB))
    ends = Event()
    full = PullError("The disk is full: 1.0 GB of 4.0 GB are kept.", hint="Free 3.0 GB, then repeat the command.")
    closed = a_plan(gated(a_repository("org/two"), "awaiting"), fit=None)
    plans = [[a_plan(a_repository(name))] for name in ("org/one", "org/three")]
    goes = [[replace(FETCHING, done=GB), full], [FETCHING, ends, a_pulled()]]
    hub = PacedHub(a_hub(AskPull=[plans[0], [closed], plans[1]], Go=goes)).install(monkeypatch)
    async with models(ScriptedEngine(HELLO), tab="3") as stage:
        await stage.sees("⏸ org/one", "⏸ org/two", "⏸ org/three")
        await stage.pilot.press("p", "down", "p", "down", "p")
        await stage.sees("! org/one", "The disk is full: 1.0 GB of 4.0 GB are kept. r tries again")
        await stage.sees("! org/two", "Awaiting review: ana has asked", "↓ org/three", "50 %")
        assert len(hub.of(Go)) == 2
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.asks("go", "Hello there, world.", "Bye.", "↓ 50 % three")
        ends.set()
        await stage.sees("org/three is complete.", "Ctrl+O and Enter load it, or:", "/model org/three")


async def test_parts_that_another_program_writes_now_are_no_leftovers(monkeypatch: pytest.MonkeyPatch):
    """Of those that are shown one may be gone on with before the key is pressed."""
    parts = {name: hub_cache.kept(name) / "blobs" / "abc.12345678.incomplete" for name in ("org/a", "org/b", "org/now")}
    for name, part in parts.items():
        part.parent.mkdir(parents=True)
        part.write_bytes(bytes(2_000_000))
        if name != "org/now":
            os.utime(part, (0, 0))
    plan = DeletePlan(("org/b",), 2_000_000, unfinished_bytes=2_000_000)
    hub = PacedHub(a_hub(AskDelete=[[plan]])).install(monkeypatch)
    monkeypatch.setattr(models_screen, "LOOK_SECONDS", 60.0)
    async with models() as stage:
        await stage.sees("c deletes 4 MB of unfinished downloads: org/a (begun by another program), org/b")
        assert "org/now" not in stage.seen
        os.utime(parts["org/a"])
        await stage.pilot.press("c")
        await stage.sees("Delete org/b?")
        assert [asked.repos for asked in hub.of(AskDelete)] == [("org/b",)]
        await stage.pilot.press("escape")
        os.utime(parts["org/b"])
        await stage.until(lambda: isinstance(stage.app.screen, ModelsScreen))
        await stage.pilot.press("c")
        await stage.sees("There are no leftover parts of downloads.")
        assert len(hub.of(AskDelete)) == 1


@pytest.mark.parametrize("revision", ["", "v1"])
async def test_a_file_of_a_gguf_repository_is_announced_by_the_name_that_loads_it(
    revision: str, monkeypatch: pytest.MonkeyPatch
):
    """The repository's own name would be refused: another of its files is here too."""
    files = hub_cache.kept("org/x-GGUF") / "snapshots" / COMMIT
    references = hub_cache.kept("org/x-GGUF") / "refs"
    for folder in (files, references):
        folder.mkdir(parents=True)
    for name in ("x-Q4_0.gguf", "x-Q8_0.gguf"):
        (files / name).write_bytes(b"GGUF")
    for name in ("main", "v1"):
        (references / name).write_text(COMMIT)
    typed = f"org/x-GGUF{revision and f'@{revision}'}:Q8_0"
    ends = Event()
    PacedHub(a_hub(Go=[[FETCHING, ends, a_pulled()]])).install(monkeypatch)
    async with models(ScriptedEngine()) as stage:
        screen(stage).library.downloads.queue.add(PullRequest("org/x-GGUF", revision, "Q8_0"))
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.app.screen is stage.chat)
        ends.set()
        await stage.sees(f"{typed} is complete.", "Ctrl+O and Enter load it, or:", f"/model {typed}")
    catalog = Catalog.load()
    assert catalog.resolve(typed).path == files / "x-Q8_0.gguf"
    with pytest.raises(UsageError, match="has 2 models"):
        catalog.resolve("org/x-GGUF")


PullsEnd = Pulled(a_pulled().target)


def by_position(item: Download) -> int:
    return item.position


async def test_gates_and_licences_are_part_of_the_question(monkeypatch: pytest.MonkeyPatch):
    """A closed gate has its next step and no download; a non-commercial licence is acknowledged once."""
    closed = a_plan(gated(a_repository("facebook/layers", licence=FAIR), "awaiting"), fit=None)
    granted = a_plan(a_repository("facebook/layers", licence=FAIR))
    asked, ends = Event(), Event()
    reading = Progress("facebook/layers", "headers", 0, 0)
    hub = PacedHub(a_hub(AskPull=[[reading, asked, closed], [granted]], Go=[[ends, a_pulled(granted)]])).install(
        monkeypatch
    )
    async with models(tab="2", size=(80, 24)) as stage:
        await stage.sees("facebook/layers")
        await stage.pilot.press("down", "down", "down", "enter")
        await stage.sees("facebook/layers: reading headers…")
        asked.set()
        await stage.sees("Awaiting review: ana has asked", "Nothing was downloaded.", "See its page")
        assert "Download both" not in stage.seen
        await stage.pilot.press("escape", "enter")
        await stage.sees("Accept the licence (non-commercial) and download")
        await stage.pilot.press("enter")
        await stage.until(lambda: hub.of(Go))
        ends.set()
        await stage.sees("facebook/layers is complete.")
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, Dialog))
        await stage.sees("Download facebook/layers?")
        assert "Accept the licence" not in stage.seen


async def test_a_model_is_deleted_when_that_is_said_and_one_that_is_not_ours_never(monkeypatch: pytest.MonkeyPatch):
    file = paths.models_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("schema_version = 1\n[models.mine]\nrepo = 'org/cached'\n\n[models.other]\nrepo = 'org/other'\n")
    plan = DeletePlan(("org/cached",), 4 * GB, shared_bytes=GB)
    hub = PacedHub({AskDelete: [[plan]], Go: [[Deleted(("org/cached",), 4 * GB)]]}).install(monkeypatch)
    async with models() as stage:
        await stage.pilot.press("x")
        await stage.sees("guide comes with localspec and is not deleted.", "f formats")
        await stage.pilot.press("c")
        await stage.sees("There are no leftover parts of downloads.")
        await stage.pilot.press("down", "x")
        await stage.sees("Delete org/cached?", "This frees 4.0 GB on the disk.", "1.0 GB stay: other repositories")
        await stage.sees("models.toml loses mine.")
        await stage.pilot.press("escape", "x")
        await stage.until(lambda: isinstance(stage.app.screen, Dialog) and len(hub.of(AskDelete)) == 2)
        assert not hub.of(Go)
        await stage.pilot.press("enter")
        await stage.sees("Deleted org/cached: 4.0 GB are free again.")
        await stage.until(lambda: "mine" not in file.read_text())
        assert "[models.other]\nrepo = 'org/other'\n" in file.read_text()
        monkeypatch.setattr("localspec.tui.control.library.is_loaded", lambda _: True)
        await stage.pilot.press("x")
        await stage.sees("org/cached is loaded.")
        assert len(hub.of(AskDelete)) == 2


async def test_of_a_gguf_repository_with_several_models_one_is_deleted_alone(monkeypatch: pytest.MonkeyPatch):
    kept = hub_cache.kept("org/m-GGUF")
    (folder := kept / "snapshots" / COMMIT).mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    for quant in ("Q4_0", "Q8_0"):
        (folder / f"m-{quant}.gguf").write_bytes(b"")
    own = ModelOrigin("Hugging Face", "org/m-GGUF", COMMIT)
    shown = [ListedModel(f"org/m-GGUF:{quant}", quant, GB, "fits", OFF, own) for quant in ("Q4_0", "Q8_0")]
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: [*shelf(), *shown])
    name, plan = "org/m-GGUF:Q4_0", DeletePlan((), GB, models=("org/m-GGUF:Q4_0",))
    hub = PacedHub({AskDelete: [[plan]], Go: [[Deleted((), GB, models=(name,))]]}).install(monkeypatch)
    async with models() as stage:
        await stage.pilot.press("down", "down", "x")
        await stage.sees(f"Delete {name}?", "This frees 1.0 GB on the disk.")
        await stage.pilot.press("enter")
        await stage.sees(f"Deleted {name}: 1.0 GB are free again.")
    assert hub.of(AskDelete) == [AskDelete((), models=(ModelFiles("org/m-GGUF", name, ("m-Q4_0.gguf",)),))]


async def test_the_disk_is_looked_at_again_after_a_deletion_and_a_download(monkeypatch: pytest.MonkeyPatch):
    """What is free stands in the header, what is left over under the list."""
    free = ["disk 10.0 GB free"]
    monkeypatch.setattr("localspec.tui.control.library.Library.free_words", lambda _: free[0])
    ends, plan = Event(), DeletePlan(("org/cached",), 4 * GB)
    script = a_hub(AskDelete=[[plan]], Go=[[Deleted(("org/cached",), 4 * GB)], [ends, a_pulled()]])
    hub = PacedHub(script).install(monkeypatch)
    async with models() as stage:
        await stage.sees("disk 10.0 GB free")
        await stage.pilot.press("down", "x")
        await stage.sees("Delete org/cached?")
        free[0] = "disk 14.0 GB free"
        monkeypatch.setattr(
            "localspec.hub.older.older", lambda: (Older("org/model", (COMMIT,), GB), Older("org/b", (COMMIT,), GB))
        )
        await stage.pilot.press("enter")
        await stage.sees("disk 14.0 GB free", "c deletes 2.0 GB of older versions: org/model, org/b")
        screen(stage).library.downloads.queue.add(PullRequest("org/model"))
        await stage.until(lambda: len(hub.of(Go)) == 2)
        free[0] = "disk 9.0 GB free"
        ends.set()
        await stage.sees("disk 9.0 GB free")


async def test_what_is_free_is_looked_at_again_while_the_screen_is_shown_also_under_a_question(
    monkeypatch: pytest.MonkeyPatch,
):
    """A download or another program takes some."""
    free = ["disk 10.0 GB free"]
    monkeypatch.setattr("localspec.tui.control.library.Library.free_words", lambda _: free[0])
    monkeypatch.setattr(models_screen, "FREE_SECONDS", 0.05)
    PacedHub(a_hub(AskDelete=[[DeletePlan(("org/cached",), 4 * GB)]])).install(monkeypatch)
    async with models() as stage:
        await stage.sees("disk 10.0 GB free")
        free[0] = "disk 9.0 GB free"
        await stage.sees("disk 9.0 GB free")
        await stage.pilot.press("down", "x")
        await stage.sees("Delete org/cached?")
        free[0] = "disk 8.0 GB free"
        await stage.until(lambda: screen_below(stage).strip.free == "disk 8.0 GB free")


def link(repo: str, path: str, blob: str) -> None:
    """A file of a commit, as a link to this blob."""
    folder = hub_cache.kept(repo) / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / path).symlink_to(f"../../blobs/{blob}")


async def test_parts_are_not_deleted_where_a_version_downloaded_by_its_commit_would_go_too(
    monkeypatch: pytest.MonkeyPatch,
):
    """Such a version is on no branch; its repository's folder is deleted as a whole. Small files, which a download
    links first, are no version."""
    for position, name in enumerate(("org/pinned", "org/parts"), 1):
        kept_downloads().put(name, Download(PullRequest(name), position, "paused", GB, 4 * GB))
    for repo in ("org/pinned", "org/parts", "org/left"):
        link(repo, "config.json", "b" * 40)
    link("org/pinned", "pytorch_model.bin", "c" * 64)
    for repo in ("org/pinned", "org/left"):
        (hub_cache.kept(repo) / "blobs").mkdir()
        (hub_cache.kept(repo) / "blobs" / f"{'d' * 64}{PART}").write_bytes(bytes(1_000_000))
    PacedHub(a_hub()).install(monkeypatch)
    async with models() as stage:
        await stage.sees("c deletes 1 MB of unfinished downloads: org/left (dropped; parts kept)")
        await stage.pilot.press("3")
        await stage.sees("org/pinned")
        await stage.pilot.press("x")
        await stage.sees("Cancel it and keep the parts")
        assert "delete the parts" not in stage.seen
        await stage.pilot.press("escape", "down", "x")
        await stage.sees("Cancel it and keep the parts", "Cancel it and delete the parts")


def linked(repo: str, file: str = "config.json", commit: str = COMMIT) -> None:
    """A file of a version that its branch names, as a download leaves it."""
    path = hub_cache.kept(repo) / "snapshots" / commit / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    main = hub_cache.kept(repo) / "refs" / "main"
    main.parent.mkdir(exist_ok=True)
    main.write_text(commit)


@pytest.mark.parametrize("change", ["another file", "a newer version"])
async def test_what_another_program_adds_to_a_repository_that_is_here_is_listed(
    change: str, monkeypatch: pytest.MonkeyPatch
):
    """Names of repositories alone were compared: a second file of one came when the screen was opened again."""
    monkeypatch.setattr(models_screen, "LOOK_SECONDS", 0.05)
    linked("org/cached", "m-Q4_0.gguf")
    async with models() as stage:
        await stage.until(lambda: screen(stage).here is not None)
        monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: shelf("org/cached:Q4_1"))
        if change == "another file":
            linked("org/cached", "m-Q4_1.gguf")
        else:
            linked("org/cached", "m-Q4_0.gguf", "d" * 40)
        await stage.sees("org/cached:Q4_1", "On disk 3")


async def test_versions_that_no_row_has_are_counted_below_the_list(monkeypatch: pytest.MonkeyPatch):
    """A model that was pulled by a commit alone took its bytes unseen; one whose version has a row is not counted."""
    monkeypatch.setattr(models_screen, "LOOK_SECONDS", 0.05)
    linked("org/cached", "model.safetensors")
    async with models() as stage:
        await stage.until(lambda: screen(stage).here is not None)
        assert "pulled as" not in stage.seen
        folder = hub_cache.kept("org/pinned") / "snapshots" / ("e" * 40)
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(5_000_000))
        await stage.sees(
            "1 version pulled as ORG/NAME@REV, of org/pinned, is not listed and takes 5 MB.", "localspec rm org/pinned"
        )
        shutil.rmtree(hub_cache.kept("org/pinned"))
        await stage.until(lambda: "pulled as" not in stage.seen)


async def test_without_a_network_the_hub_says_so_in_a_line_and_all_else_works(monkeypatch: pytest.MonkeyPatch):
    """HF_HUB_OFFLINE asks nothing; a hub out of reach is a sentence. What another program fetches comes by itself."""
    no_route = PullError("There is no route to the hub.", hint="Check the connection.")
    hub = PacedHub({AskSearch: [[no_route]]}).install(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(models_screen, "LOOK_SECONDS", 0.05)
    linked("org/cached")
    async with models(tab="2") as stage:
        await stage.sees("Offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set")
        assert not hub.asked
        monkeypatch.delenv("HF_HUB_OFFLINE")
        await stage.pilot.press("1", "2")
        await stage.sees("There is no route to the hub. Enter tries again.")
        await stage.pilot.press("tab", "1")
        monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: shelf("org/fetched"))
        linked("org/fetched")
        await stage.sees("org/fetched", "On disk 3")
        assert screen(stage).disk.model_list.has_focus


async def test_after_a_search_that_failed_enter_searches_again_and_acts_on_no_row_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
):
    """It loaded or downloaded the first row of the search before; without one it did nothing."""
    away, waits = PullError("The hub has a problem of its own (status 503).", hint="Wait a minute."), Event()
    hub = PacedHub(a_hub(AskSearch=[[SearchPage(ROWS)], [waits, away], [away], [SearchPage(ROWS[1:2])]]))
    hub.install(monkeypatch)
    async with models(tab="2") as stage:
        await stage.sees("org/model")
        screen(stage).hub.words.value = "huge"
        await stage.until(lambda: len(hub.of(AskSearch)) == 2)
        await stage.pilot.press("enter")
        assert screen(stage).hub.words.has_focus, "nothing was found yet"
        waits.set()
        await stage.sees("The hub has a problem of its own (status 503). Enter tries again.")
        await stage.until(lambda: len(hub.of(AskSearch)) == 3 and "org/model" not in stage.seen)
        assert screen(stage).hub.words.has_focus
        await stage.pilot.press("enter")
        await stage.sees("org/huge")
        await stage.until(lambda: screen(stage).hub.list.has_focus)
        assert hub.of(AskSearch)[-1].request.words == "huge"
        assert not hub.of(AskPull)


async def test_of_a_search_whose_next_page_fails_the_rows_stay(monkeypatch: pytest.MonkeyPatch):
    away = PullError("The hub stopped answering.", hint="Repeat the command.")
    pages = [[SearchPage(ROWS, "page=2")], [away], [SearchPage((SearchRow("org/last", GB, "fits", FAIR, "", 1),))]]
    hub = PacedHub(a_hub(AskSearch=pages)).install(monkeypatch)
    async with models(tab="2") as stage:
        await stage.sees("org/model")
        await stage.pilot.press("tab", "end")
        await stage.sees("The hub stopped answering. The last row tries again.", "org/model", "org/head")
        await stage.pilot.press("home", "end")
        await stage.sees("org/last")
        assert [one.request.cursor for one in hub.of(AskSearch)] == ["", "page=2", "page=2"]


@pytest.mark.slow
async def test_a_complete_download_is_announced_once_and_over_no_question(monkeypatch: pytest.MonkeyPatch):
    """J, K and r change nothing of it; a question that is open at the end is answered first. After a deletion neither
    the queue nor the hub's tab has it, though nothing else was looked for."""
    ends = Event()
    delete = DeletePlan(("org/model",), 4 * GB)
    goes = [[FETCHING, ends, a_pulled()], [Deleted(("org/model",), 4 * GB)]]
    script = a_hub(AskPull=[[a_plan()]], AskDelete=[[delete]], Go=goes)
    PacedHub(script).install(monkeypatch)
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", lambda *_, **__: shelf("org/model"))
    monkeypatch.setattr(models_screen, "LOOK_SECONDS", 60.0)
    async with models(tab="2", size=(60, 16)) as stage:
        said = list[str]()
        monkeypatch.setattr(stage.app, "notify", lambda words, **_: said.append(words))
        await stage.sees("org/model")
        await stage.pilot.press("enter", "enter")
        await stage.sees("Download org/model?")
        await stage.pilot.press("enter")
        await stage.sees("↓ 50 %")
        await stage.pilot.press("3", "x")
        await stage.sees("Cancel this download?")
        linked("org/model")
        queue = screen_below(stage).downloads.queue
        ends.set()
        await stage.until(lambda: not queue.unfinished)
        assert not said
        await stage.pilot.press("escape")
        await stage.until(lambda: said)
        await stage.sees("✓ org/model")
        await stage.pilot.press("J", "K", "r", "2", "tab", "3")
        await stage.pilot.pause()
        assert [words.partition(".")[0] for words in said] == ["org/model is complete"]
        await stage.pilot.press("2")
        await stage.sees("✓ disk")
        await stage.pilot.press("tab", "1", "end", "x")
        await stage.sees("Delete org/model?")
        shutil.rmtree(hub_cache.kept("org/model"))
        await stage.pilot.press("enter")
        await stage.until(lambda: not queue.items)
        await stage.pilot.press("2")
        await stage.until(lambda: "org/model" in stage.seen and "✓ disk" not in stage.seen)


def screen_below(stage: Stage) -> ModelsScreen:
    """The models screen under a question."""
    return next(each for each in stage.app.screen_stack if isinstance(each, ModelsScreen))


@pytest.mark.slow
async def test_the_search_has_the_focus_whenever_its_tab_is_opened(monkeypatch: pytest.MonkeyPatch):
    """Letters are words then, and no shortcuts; Tab and Down lead to the list, whose keys stand at the bottom."""
    PacedHub(a_hub()).install(monkeypatch)
    async with models(tab="2") as stage:
        for leave in ("tab", "down"):
            await stage.sees("org/model", "Enter searches · Tab ↓ list")
            assert screen(stage).hub.words.has_focus
            border = screen(stage).hub.words.styles.border_left[0]
            await stage.pilot.press(leave)
            await stage.sees("Enter download")
            assert screen(stage).hub.list.has_focus
            assert screen(stage).hub.words.styles.border_left[0] != border, "in one colour, too, it shows"
            await stage.pilot.press("1", "2")
        await stage.pilot.press(*"sgd")
        assert screen(stage).hub.words.value == "sgd"


async def test_the_files_of_a_gguf_repository_are_listed_with_their_sizes(monkeypatch: pytest.MonkeyPatch):
    """As `localspec pull` lists them."""
    variants = a_fit("Q4_1", word="fits", num_bytes=600_000_000), a_fit("F16", word="too large", num_bytes=21 * GB)
    PacedHub(a_hub(AskPull=[[a_plan(a_repository(files=()), fit=None, variants=variants)]])).install(monkeypatch)
    async with models(tab="2") as stage:
        await stage.sees("org/model")
        await stage.pilot.press("tab", "enter")
        await stage.sees("It has several models.", "Q4_1   600 MB  fits", "F16   21.0 GB  too large")


async def test_the_key_for_help_lists_the_keys_of_this_screen_and_closes_the_list_again(
    monkeypatch: pytest.MonkeyPatch,
):
    """Also from the field that words are typed in."""
    PacedHub(a_hub()).install(monkeypatch)
    async with models(size=(120, 220)) as stage:
        for way, does in (("1", "Weight formats"), ("ctrl+pagedown", "Close"), ("tab", "Only what fits")):
            await stage.pilot.press(way, "f1")
            await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
            await stage.sees("At a message (Alt+↑ goes to one), with an empty prompt")
            assert does in stage.seen.partition("At a message (Alt+↑ goes to one), with an empty prompt")[0]
            await stage.pilot.press("f1")
            await stage.until(lambda: isinstance(stage.app.screen, ModelsScreen))


async def test_what_is_here_already_is_loaded_instead_of_downloaded(monkeypatch: pytest.MonkeyPatch):
    hub = PacedHub(a_hub()).install(monkeypatch)
    monkeypatch.setattr("localspec.hub.blobs.is_complete", lambda _: True)
    async with models(tab="2") as stage:
        chosen = list[tuple[str | None, ...]]()
        monkeypatch.setattr(stage.chat.models, "choose", lambda *choice: chosen.append(choice))
        await stage.sees("org/model")
        await stage.pilot.press("enter", "enter")
        await stage.sees("It is already on this machine.", "Load it")
        assert "Download org/model?" not in stage.seen
        await stage.pilot.press("enter")
        await stage.until(lambda: chosen)
        assert chosen == [("org/model", None, "")]
        assert stage.app.screen is stage.chat
    assert not hub.of(Go)


async def test_an_answer_counts_from_half_a_second_after_the_key_that_asked(monkeypatch: pytest.MonkeyPatch):
    """A process had to be started in between: the question is no surprise when it comes."""
    monkeypatch.setattr(dialog, "REST_SECONDS", 600.0)
    replies = list[str | None]()
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        for asked_at in (None, monotonic(), monotonic() - 601):
            question = Dialog("Delete it?", [], [DialogButton("yes", "Delete it")], asked_at=asked_at)
            stage.app.push_screen(question, replies.append)
            await stage.until(lambda: stage.app.screen is question and question.focused)  # noqa: B023 - awaited here
            await stage.pilot.press("enter")
            if stage.app.screen is question:
                await stage.pilot.press("escape")
            await stage.until(lambda: stage.app.screen is stage.chat)
        assert replies == [None, None, "yes"]


def test_the_screen_and_its_queue_import_no_hub_library(tmp_path: Path):
    """Check 25."""
    code = "import sys, localspec.tui.app, localspec.tui.screens.models\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert {"huggingface_hub", "torch", "httpx"} & set(done.stdout.split()) == set()
