"""The rows of the models screen at three widths: what stays whole, what a name gets, and what a sum counts."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from localspec.hub.integrity import FileFound, FilesVerified
from localspec.hub.queue import Download
from localspec.hub.records import Licence, PullRequest, SearchRow
from localspec.runtime.local_models import ListedModel
from localspec.runtime.origins import FILE, ModelOrigin
from localspec.tui.control.library import Leftovers, not_ours, right_words
from localspec.tui.panels import download_rows, hub_rows
from localspec.tui.panels.disk_tab import ModelPick, OnDisk
from localspec.tui.panels.hub_rows import Listing
from localspec.tui.panels.hub_search import HubSearch
from tests.support.scripted_hub import a_fit

GB = 1_000_000_000
LONG = "localspec/SmolLM2-135M-Instruct-GGUF"
RUNNING = Download(
    PullRequest(LONG), 1, "downloading", 2 * GB, 4 * GB, "downloading", bytes_per_second=2e6, eta_s=1333.0
)
PAUSED = Download(PullRequest("org/paused"), 2, "paused", GB, 40 * GB)


def downloads(width: int, *items: Download) -> list[str]:
    """The edges and the scroll bar take four columns."""
    return [line.plain.rstrip() for line in download_rows.listed(items, {}, width - 4)]


@pytest.mark.parametrize(
    ("width", "name"), [(120, LONG), (80, "SmolLM2-135M-Instruct-GGUF"), (60, "SmolLM2-135M-Instruct…")]
)
def test_rate_and_time_left_stay_whole_and_the_name_has_what_they_leave(width: int, name: str):
    row, _ = downloads(width, RUNNING, PAUSED)
    assert len(row) <= width - 4
    assert "50 % · 2.0 MB/s · 22 min 13 s" in row
    assert name in row


@pytest.mark.parametrize("width", [120, 80, 60])
def test_a_slow_download_is_called_slow_at_every_width(width: int):
    slow = replace(RUNNING, bytes_per_second=92_000.0, eta_s=21_739.0, slow=True)
    (row,) = downloads(width, slow)
    assert len(row) <= width - 4
    assert row.endswith("50 % · slow: 92 kB/s · 6 h 2 min")
    assert download_rows.total_line([slow]) == "2.0 GB of 4.0 GB · slow: 92 kB/s · 6 h 2 min"
    assert download_rows.total_line([replace(slow, bytes_per_second=1.0)]) == "2.0 GB of 4.0 GB · slow: under 1 kB/s"


def test_a_download_waits_for_the_one_that_runs_only_where_that_is_above_it():
    """It may have been moved past it."""
    waiting = Download(PullRequest("org/next"), 2, "waiting")
    assert downloads(120, RUNNING, waiting)[1].endswith("waits for the one above")
    assert downloads(120, waiting, RUNNING)[0].endswith("  waits")
    assert downloads(120, waiting)[0].endswith("  waits")


def test_where_there_is_space_size_and_bar_are_shown_too():
    wide, narrow = downloads(120, RUNNING)[0], downloads(60, RUNNING)[0]
    assert "2.0/4.0 GB" in wide
    assert "████████░░░░░░░░" in wide
    assert "█" not in narrow


def test_what_is_paused_is_in_no_rate_and_no_time_left():
    assert download_rows.total_line([RUNNING, PAUSED]) == "2.0 GB of 4.0 GB · 2.0 MB/s · 16 min 40 s · 1 paused"
    assert download_rows.total_line([PAUSED]) == "1.0 GB of 40.0 GB · 1 paused"


@pytest.mark.parametrize(("width", "gated", "gate"), [(120, "manual", "gated by hand"), (80, "", "")])
def test_the_name_of_a_repository_is_whole_where_licence_and_pair_can_give_way(
    width: int, gated: Literal["", "manual"], gate: str
):
    row = SearchRow(LONG, GB, "fits in int4", Licence("fair", non_commercial=True), gated, 1, pair="early exit")
    hub = hub_rows.listed([Listing(row, here="↓ 50 %")], width - 4)[0].plain
    assert LONG in hub
    for word in ("≈1.0 GB", "fits in int4", gate, "↓ 50 %"):
        assert word in hub
    assert len(hub) <= width - 4


def test_the_hub_is_sorted_by_fit_as_well_and_by_what_headers_said_of_it():
    """What fits first, then what runs from disk, what is not known, what is too large; each in the hub's order."""
    words = {"a": "too large", "b": "", "c": "from disk", "d": "fits in int4", "e": "fits"}
    rows = [Listing(SearchRow(f"org/{name}", GB, word, Licence(), "", 1)) for name, word in words.items()]
    rows.append(Listing(SearchRow("org/f", GB, "too large", Licence(), "", 1), fit=a_fit(word="fits")))
    search = HubSearch()
    while search.sort != "fit":
        search = search.changed("sort")
    assert [one.row.repo.removeprefix("org/") for one in search.arranged(rows)] == ["d", "e", "f", "c", "b", "a"]
    assert search.request().sort == "trending", "the hub knows no fit"


def test_a_gguf_repository_is_filtered_and_sorted_by_the_estimate_of_its_fit():
    """Its files are models for localspec: the word GGUF excludes nothing."""
    fits = {"a": "too large", "b": "fits in int4", "c": "fits", "d": ""}
    rows = [Listing(SearchRow(f"org/{name}", 0, word, Licence(), "", 1, note="GGUF")) for name, word in fits.items()]
    rows.append(Listing(SearchRow("org/head", GB, "fits", Licence(), "", 1, note="head for vLLM")))
    search = HubSearch().changed("fits")
    assert [one.row.repo.removeprefix("org/") for one in search.arranged(rows)] == ["b", "c"]
    while search.sort != "fit":
        search = search.changed("sort")
    shown = [one.row.repo.removeprefix("org/") for one in search.changed("fits").arranged(rows)]
    assert shown == ["b", "c", "d", "head", "a"]


def test_what_is_here_already_is_seen_in_sixty_columns_too():
    row = SearchRow(LONG, 140 * GB, "head for vLLM", Licence("mit"), "manual", 1)
    line = hub_rows.listed([Listing(row, here="↓ 50 %")], 56)[0].plain
    assert line.endswith("↓ 50 %")
    assert len(line) <= 56


def test_licence_and_pair_are_whole_where_the_name_leaves_them_their_columns():
    row = SearchRow("org/model", GB, "fits", Licence("fair", non_commercial=True), "", 1, pair="org/small")
    assert "fair, non-commercial" in (line := hub_rows.listed([Listing(row)], 116)[0].plain)
    assert "+ small" in line


class Disk(OnDisk):
    """The list with an app of this width."""

    width = 120

    @property
    def app(self):  # type: ignore[no-untyped-def,override]
        return type("App", (), {"size": type("Size", (), {"width": self.width})})


@pytest.mark.parametrize("width", [120, 80])
def test_a_model_on_disk_has_its_whole_name_where_its_origin_can_give_way(width: int):
    name = f"hf:{LONG}:Q4_K_M"
    disk = Disk(list, lambda _: (), ModelPick("guide", "auto"))
    disk.width = width
    origin = ModelOrigin("Hugging Face", LONG, "1a2b3c4d" * 5)
    disk.models = [ListedModel(name, "Q4_K_M", 105_000_000, "fits", (), origin, "2020-01-01T00:00:00+00:00")]
    line = disk.lines()[0]
    for word in (name, "Q4_K_M", "105 MB", "fits"):
        assert word in line
    assert len(line) <= width - 4
    assert ("Hugging Face" in line) is (width == 120)


def test_a_long_name_on_disk_keeps_the_program_and_its_end():
    disk = Disk(list, lambda _: (), ModelPick("guide", "auto"))
    disk.width = 60
    disk.models = [ListedModel(f"hf:{LONG}:Q4_K_M", "Q4_K_M", 105_000_000, "fits", ())]
    assert "hf:…" in disk.lines()[0]
    assert "Instruct-GGUF:Q4_K_M" in disk.lines()[0]


def test_a_path_that_is_too_long_is_its_last_part_in_one_readable_line():
    path = "/home/someone/.cache/huggingface/hub/models--org--name/snapshots/1a2b/SmolLM2-135M-Q4_1.gguf"
    disk = Disk(list, lambda _: (), ModelPick("guide", "auto"))
    disk.models = [
        ListedModel(path, "Q4_1", 105_000_000, "fits well", ()),
        ListedModel("/m/tiny", "fp32", 0, "fits", ()),
    ]
    for width in (60, 80):
        disk.width = width
        first, second = disk.lines()
        assert first.split() == ["SmolLM2-135M-Q4_1.gguf", "Q4_1", "105", "MB", "fits", "well"]
        assert "/m/tiny" in second, "a path that fits stays whole"
        assert max(len(first), len(second)) <= width - 4


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["right"], "1 file has the hub's hash."),
        (["right", "right", "unknown"], "2 files have the hub's hashes; no hash is known for 1."),
        (["unknown"], "no hash is known for its 1 file; their format and length are right."),
    ],
)
def test_one_file_is_not_counted_as_several(states: list[str], words: str):
    files = tuple(FileFound(f"{index}", 1, state) for index, state in enumerate(states))  # type: ignore[arg-type]
    assert right_words(FilesVerified("m", "f", files)) == words


def test_leftovers_say_whose_they_are():
    left = Leftovers(("org/a", "org/b"), 2_000_000, ("dropped; parts kept", "begun by another program"))
    assert left.words == ("2 MB of unfinished downloads: org/a (dropped; parts kept), org/b (begun by another program)")
    left = Leftovers(("org/a",), 2_000_000, ("dropped; parts kept",), ("org/c", "org/d"), 5_000_000)
    assert left.words.endswith("org/a (dropped; parts kept); 5 MB of older versions: org/c, org/d")
    assert Leftovers(older=("org/c",), older_bytes=5_000_000).words == "5 MB of older versions: org/c"


def test_a_file_of_the_users_own_is_said_to_be_that():
    mine, theirs = (
        ListedModel("m.gguf", "Q4_1", 1, "fits", (), origin) for origin in (ModelOrigin(FILE), ModelOrigin("LM Studio"))
    )
    assert not_ours(mine) == "m.gguf is a file of yours: localspec does not delete it."
    assert not_ours(theirs) == "m.gguf is LM Studio's: delete it there."
