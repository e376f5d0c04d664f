"""The list of models shows what it has found while it looks on, and what is chosen there stays chosen."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from textual.widgets import OptionList

from localspec.runtime.local_models import ListedModel
from localspec.tui.panels import disk_tab
from localspec.tui.panels.disk_tab import LOOKING
from localspec.tui.screens.models import ModelsScreen
from tests.support.chat_stage import open_chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

OFF = ("off", "decode plain")
DRAFTS = (("auto", "layer 1"), OFF)


async def test_models_are_shown_while_others_are_looked_for(monkeypatch: pytest.MonkeyPatch):
    go_on = threading.Event()

    def found(*_: object, **__: object) -> Iterator[ListedModel]:
        yield ListedModel("guide", "int8", 29_000_000, "fits", DRAFTS)
        yield ListedModel("ollama:qwen3:8b", "Q4_K_M", 5_200_000_000, "fits", DRAFTS)
        go_on.wait()
        yield ListedModel("lmstudio:somebody/a-long-name/a-long-name", "Q8_0", 9_900_000_000, "too large", (OFF,))

    monkeypatch.setattr(disk_tab, "PACE", 0)
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", found)
    try:
        async with open_chat(ScriptedEngine(), size=(110, 30)) as stage:
            await stage.ready()
            await stage.pilot.press("ctrl+o")
            await stage.sees(LOOKING, "guide", "ollama:qwen3:8b", "Q4_K_M")
            await stage.pilot.press("down", "tab", "down")
            models, drafts = (stage.app.screen.query_one(name, OptionList) for name in ("#models", "#drafts"))
            assert (models.highlighted, drafts.highlighted) == (1, 1)
            go_on.set()
            await stage.sees("lmstudio:somebody/a-long-name/a-long-name", "too large")
            await stage.until(lambda: LOOKING not in stage.seen)
            assert (models.highlighted, drafts.highlighted, drafts.has_focus) == (1, 1, True)
            assert models.option_count == 3
    finally:
        go_on.set()


async def test_the_model_in_use_is_chosen_though_it_is_found_after_another(monkeypatch: pytest.MonkeyPatch):
    """To read the first one's header takes long on a machine that is busy."""
    go_on = threading.Event()

    def found(*_: object, **__: object) -> Iterator[ListedModel]:
        yield ListedModel("other", "int8", 29_000_000, "fits", DRAFTS)
        yield ListedModel("another", "int8", 29_000_000, "fits", DRAFTS)
        go_on.wait()
        yield ListedModel("guide", "int8", 29_000_000, "fits", (*DRAFTS, ("small", "a smaller model")))

    monkeypatch.setattr(disk_tab, "PACE", 0)
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", found)
    try:
        async with open_chat(ScriptedEngine(), size=(110, 30)) as stage:
            await stage.ready()
            await stage.pilot.press("ctrl+o")
            await stage.sees(LOOKING, "another")
            models = stage.app.screen.query_one("#models", OptionList)
            assert models.highlighted == 0
            go_on.set()
            await stage.until(lambda: models.highlighted == 2)
            await stage.sees("a smaller model")
    finally:
        go_on.set()


async def test_a_list_that_is_closed_looks_no_further(monkeypatch: pytest.MonkeyPatch):
    go_on, ended, looked = threading.Event(), threading.Event(), list[int]()

    def found(*_: object, **__: object) -> Iterator[ListedModel]:
        try:
            for number in range(100):
                looked.append(number)
                yield ListedModel(f"m{number}", "int8", 1, "fits", (OFF,))
                go_on.wait()
        finally:
            ended.set()

    monkeypatch.setattr(disk_tab, "PACE", 0)
    monkeypatch.setattr("localspec.runtime.local_models.on_disk", found)
    try:
        async with open_chat(ScriptedEngine(), size=(110, 30)) as stage:
            await stage.ready()
            await stage.pilot.press("ctrl+o")
            await stage.sees("m0")
            assert isinstance(stage.app.screen, ModelsScreen)
            await stage.pilot.press("escape")
            await stage.until(lambda: not isinstance(stage.app.screen, ModelsScreen))
            go_on.set()
            await stage.until(ended.is_set)
            assert len(looked) == 2
    finally:
        go_on.set()
