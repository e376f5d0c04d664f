"""models.toml says which models there are; a mistake in it, or in a name, is answered with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import CatalogError, NotDownloaded
from localspec.models import hub_cache
from localspec.models.catalog import Catalog

EXAMPLE = """
schema_version = 1
[models.small]
path = "assets/small"
name = "Small One"
aliases = ["s", "tiny"]
[models.small.sampling]
temperature = 0.6
top_k = 20
[models.small.draft]
kind = "early-exit"
exit_layer = 8
k = 4
[models.small.drafts.other]
kind = "model"
model = "MODEL"
[models.far]
repo = "Somebody/Far-7B"
"""


def load(folder: Path, text: str) -> Catalog:
    file = folder / "models.toml"
    file.write_text(text)
    return Catalog.load(file)


def test_the_packaged_catalogue_offers_guide_with_both_drafts() -> None:
    entry = Catalog.load().resolve("guide")
    assert entry.path == paths.packaged("assets/guide/target")
    assert entry.sampling.temperature == 0
    assert entry.draft is not None
    assert entry.draft.kind == "early-exit"
    small = entry.named_draft("small")
    assert small is not None
    assert (small.kind, small.model) == ("model", "assets/guide/draft")


@pytest.mark.parametrize("name", ["small", "s", "tiny"])
def test_a_key_and_its_aliases_mean_the_same_model(name: str, tmp_path: Path) -> None:
    entry = load(tmp_path, EXAMPLE).resolve(name)
    assert (entry.key, entry.name) == ("small", "Small One")
    assert (entry.sampling.temperature, entry.sampling.top_k, entry.sampling.top_p) == (0.6, 20, None)
    assert entry.draft is not None
    assert (entry.draft.exit_layer, entry.draft.k) == (8, 4)
    assert entry.named_draft("nobody") is None


def test_a_drafts_folder_is_found_when_it_is_there(tmp_path: Path) -> None:
    entry = load(tmp_path, EXAMPLE.replace("MODEL", str(tmp_path))).resolve("small")
    draft = entry.named_draft("other")
    assert draft is not None
    assert draft.folder == tmp_path
    elsewhere = load(tmp_path, EXAMPLE.replace("MODEL", "Somebody/Else")).resolve("small").named_draft("other")
    assert elsewhere is not None
    assert (elsewhere.model, elsewhere.folder) == ("Somebody/Else", None)


def test_any_folder_is_a_model_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    catalog = load(tmp_path, EXAMPLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("mine", "./mine", "~/mine", str(tmp_path / "mine"), "mine/"):
        entry = catalog.resolve(name)
        assert entry.path.samefile(tmp_path / "mine"), name
        assert (entry.name, entry.draft) == ("mine", None)


def test_a_key_wins_over_a_folder_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path, EXAMPLE).resolve("small").name == "Small One"


def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotDownloaded) as caught:
        Catalog.load().resolve("giude")
    assert caught.value.message == "There is no model 'giude'; did you mean 'guide'?"
    assert "guide" in caught.value.hint


def test_a_known_model_that_is_not_here_says_so_and_names_no_command_that_does_not_exist(tmp_path: Path) -> None:
    for name in ("far", "Somebody/Far-7B"):
        with pytest.raises(NotDownloaded, match="is not on this machine") as caught:
            load(tmp_path, EXAMPLE).resolve(name)
        assert caught.value.hint == "Give its folder or GGUF file: ./FOLDER or ./FILE.gguf."


COMMIT = "0123456789abcdef" * 2 + "01234567"


def fetched(repository: str, commit: str = COMMIT) -> Path:
    """As huggingface_hub leaves it in its cache, without its files."""
    kept = hub_cache.folder() / f"models--{repository.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(commit)
    (kept / "snapshots" / commit).mkdir(parents=True)
    return kept / "snapshots" / commit


def test_what_was_fetched_is_found_by_the_name_of_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = load(tmp_path, EXAMPLE)
    far, plain = fetched("Somebody/Far-7B"), fetched("gpt2")
    assert catalog.resolve("Somebody/Far-7B").path == catalog.resolve("far").path == far
    assert catalog.resolve("gpt2").path == plain
    assert [catalog.lasting_name(name) for name in ("far", "Somebody/Far-7B", "gpt2")] == [
        "far", "Somebody/Far-7B", "gpt2"
    ]  # fmt: skip
    assert hub_cache.repositories() == ["Somebody/Far-7B", "gpt2"]
    (tmp_path / "Somebody" / "Far-7B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert catalog.resolve("Somebody/Far-7B").path.samefile(tmp_path / "Somebody" / "Far-7B"), "a folder comes first"


@pytest.mark.parametrize("commit", ["../../../elsewhere", "", "main", "\xff", COMMIT + "0"])
def test_a_cache_that_names_no_commit_leads_nowhere(commit: str) -> None:
    kept = hub_cache.folder() / "models--maker--model"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(commit, encoding="latin-1")
    for place in ("snapshots", "snapshots/main", "snapshots/" + COMMIT + "0"):
        (kept / place).mkdir()
    (hub_cache.folder().parent / "elsewhere").mkdir()
    assert hub_cache.snapshot("maker/model") is None
    assert hub_cache.repositories() == []


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
        ({"HF_HUB_CACHE": "~/a", "HOME": "/d"}, "/d/a"),
        ({"HUGGINGFACE_HUB_CACHE": "$PLACE/a", "PLACE": "/e"}, "/e/a"),
        ({"HF_HOME": "${PLACE}/b", "PLACE": "/e"}, "/e/b/hub"),
    ],
)
def test_the_cache_is_where_the_hubs_own_programs_have_it(
    said: dict[str, str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in said.items():
        monkeypatch.setenv(variable, value)
    assert hub_cache.folder() == Path(where)


@pytest.mark.parametrize("name", ["", ".", "./nobody", "~nobody/x", "/no/such", "a\0b", "x" * 5000, "..\\x"])
def test_no_name_crashes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == ".":
        assert load(tmp_path, EXAMPLE).resolve(name).path.samefile(tmp_path)
        return
    with pytest.raises(NotDownloaded):
        load(tmp_path, EXAMPLE).resolve(name)


MISTAKES = {
    "schema_version = 1\n[models.x]\npath = 'a'\nnmae = 'b'": "unknown key 'nmae'.*did you mean 'name'",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.sampling]\ntemprature = 1": "did you mean 'temperature'",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.draft]\nkind = 'early-exit'\nexit_layr = 1": "'exit_layer'",
    "schema_version = 1\n[modles.x]\npath = 'a'": "did you mean 'models'",
    "schema_version = 1\n[models.x]": "exactly one of repo and path",
    "schema_version = 1\n[models.x]\npath = 'a'\nrepo = 'b/c'": "exactly one of repo and path",
    "schema_version = 1\n[models.x]\npath = 1": "Expected `str",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.sampling]\ntemperature = -1": ">= 0",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.sampling]\ntop_p = nan": "float",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.draft]\nkind = 'off'\nk = 17": "<= 16",
    "schema_version = 1\n[models.x]\npath = 'a'\n[models.x.draft]\nkind = 'early-exit'\nexit_layer = 0": ">= 1",
    "schema_version = 1\n[models.x]\npath = 'a'\naliases = ['y']\n[models.y]\npath = 'b'": "'y' names both 'x' and 'y'",
    "schema_version = 2": "has schema_version 2",
    "": "schema_version",
    "schema_version = 1\nschema_version = 1": "models.toml: ",
    "[[[": "models.toml: ",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_the_file_is_explained(text: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=MISTAKES[text]) as caught:
        load(tmp_path, text)
    assert "models.toml" in caught.value.message
    assert caught.value.hint


def test_a_newer_file_asks_for_an_upgrade(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, "schema_version = 9")
    assert "pip install --upgrade localspec" in caught.value.hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_bytes(b"\xff\xfe")
    for file in (tmp_path / "nobody.toml", tmp_path / "models.toml"):
        with pytest.raises(CatalogError, match=file.name) as caught:
            Catalog.load(file)
        assert caught.value.hint
