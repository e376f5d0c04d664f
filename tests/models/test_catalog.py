"""models.toml says which models there are; a mistake in it, or in a name, is answered with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import UPDATE, CatalogError, CheckpointError, NotDownloaded, UsageError
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import DraftTable

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


def test_a_draft_length_is_what_k_on_the_command_line_takes(tmp_path: Path) -> None:
    for written, length in (("4", 4), ("0", 0), ("'auto'", "auto"), ("'heuristic'", "heuristic")):
        draft = load(tmp_path, EXAMPLE.replace("k = 4", f"k = {written}")).resolve("small").draft
        assert draft is not None
        assert draft.k == length


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


def test_a_file_of_a_model_is_that_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People type the path of the file that they have: a GGUF file, or a shard."""
    whole, only, several, bare = (tmp_path / name for name in ("whole", "only", "several", "bare"))
    files = (whole / "config.json", whole / "model-00001-of-00002.safetensors", whole / "model.safetensors.index.json")
    files += (only / "m-Q4_K_M-00001-of-00002.gguf", only / "m-Q4_K_M-00002-of-00002.gguf", only / "mmproj-m.gguf")
    files += (several / "a.gguf", several / "b.gguf", bare / "model.safetensors", bare / "notes.txt")
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    monkeypatch.chdir(tmp_path)
    resolve = load(tmp_path, EXAMPLE).resolve
    for name in ("whole", "whole/model-00001-of-00002.safetensors", f"{whole}/model.safetensors.index.json"):
        assert resolve(name).path.samefile(whole), name
        assert resolve(name).name == "whole"
    for name in ("only", "./only", "only/m-Q4_K_M-00001-of-00002.gguf"):
        assert resolve(name).path.samefile(only / "m-Q4_K_M-00001-of-00002.gguf"), name
    with pytest.raises(UsageError, match=r"several has 2 GGUF models\. Name one: several/a\.gguf, several/b\.gguf"):
        resolve("several")
    with pytest.raises(CheckpointError, match=r"no config\.json beside it"):
        resolve("bare/model.safetensors")
    monkeypatch.chdir(bare)
    with pytest.raises(NotDownloaded, match=r"notes.txt is not a model that localspec can read\. Use a GGUF file"):
        resolve("notes.txt")
    with pytest.raises(NotDownloaded, match=r"notes.txt is not a model that localspec can read\. Use a GGUF file"):
        resolve("./notes.txt")
    monkeypatch.chdir(whole)
    assert resolve("model-00001-of-00002.safetensors").name == "whole"


def test_a_model_of_ollamas_that_is_not_here_is_pulled_there(tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded) as caught:
        load(tmp_path, EXAMPLE).resolve("ollama:qwen3:8b")
    assert caught.value.hint == "Fetch it (ollama pull qwen3:8b), or list what is here: localspec ls"


@pytest.mark.parametrize("name", ["nosuch-Q4_K_M.gguf", "./nosuch/model.safetensors", "~/nosuch.gguf"])
def test_a_file_that_is_not_there_is_called_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded) as caught:
        load(tmp_path, EXAMPLE).resolve(name)
    assert caught.value.message == f"There is no file {name}."


def test_an_unknown_name_says_how_models_are_downloaded(tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded) as caught:
        load(tmp_path, EXAMPLE).resolve("nosuch")
    assert "localspec pull ORG/NAME" in caught.value.hint


@pytest.mark.parametrize("name", ["far", "Somebody/Far-7B", "nobody/knows-it"])
def test_a_model_that_is_not_here_says_so_and_how_to_fetch_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded, match="is not on this machine") as caught:
        load(tmp_path, EXAMPLE).resolve(name)
    assert caught.value.hint == f"Fetch it: localspec pull {name}"


@pytest.mark.parametrize("name", ["folder/folder/file", "-x/y y", "nobody/\x1b[2J"])
def test_what_can_be_no_repository_is_not_to_be_fetched(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded) as caught:
        load(tmp_path, EXAMPLE).resolve(name)
    assert "pull" not in caught.value.hint


PACKAGED = Catalog.load().models
LAYERSKIP = [key for key, table in PACKAGED.items() if (table.repo or "").startswith("facebook/layerskip-")]
PAIRS = [key for key, table in PACKAGED.items() if table.repo and table.draft and table.draft.kind == "model"]


def test_every_packaged_model_has_a_drafter_whose_source_is_named() -> None:
    """That two models are of one family is no source: somebody runs the pair, or measured it."""
    assert {"guide", *LAYERSKIP, *PAIRS} == set(PACKAGED)
    for key in (*LAYERSKIP, *PAIRS):
        draft = PACKAGED[key].draft
        assert draft is not None
        assert draft.source, key
        assert "family" not in draft.source, key


def test_the_seven_models_of_layerskip_are_gated_by_hand_base_models_that_exit_early() -> None:
    """Layers: those of the bases in tests/models/configs, which the checkpoints are derived from."""
    layers = {"7b": 32, "13b": 40, "70b": 80, "34b": 48, "8b": 32, "1b": 16}
    assert len(LAYERSKIP) == 7
    for key in LAYERSKIP:
        table = PACKAGED[key]
        assert (table.gated, table.licence, table.fallback_template) == ("manual", "fair", "none"), key
        assert table.draft is not None
        assert table.draft.kind == "early-exit"
        assert 1 <= (table.draft.exit_layer or 0) <= layers[key.rpartition("-")[2]] // 4, key
    assert PACKAGED["layerskip-llama2-7b"].draft == DraftTable("early-exit", None, 8, 6, "LayerSkip's README")


def test_every_pair_is_of_two_repositories_that_a_download_can_name() -> None:
    for key in PAIRS:
        table = PACKAGED[key]
        assert table.draft is not None
        for repo in (table.repo, table.draft.model):
            assert hub_cache.REPOSITORY.fullmatch(repo or ""), key
        assert table.repo != table.draft.model


@pytest.mark.parametrize("typed", ["qwen3-8b", "qwen3:8b", "Qwen/Qwen3-8B"])
def test_a_model_is_pulled_by_the_names_that_people_type(typed: str) -> None:
    assert Catalog.load().repository(typed) == "Qwen/Qwen3-8B"


def test_a_fetched_repository_has_what_the_catalogue_says_of_it() -> None:
    """The name that pull prints drafts as the key does."""
    folder = fetched("facebook/layerskip-llama2-7B")
    by_repository, by_key = (Catalog.load().resolve(name) for name in ("facebook/layerskip-llama2-7B", LAYERSKIP[0]))
    assert by_repository.path == by_key.path == folder
    assert by_repository.draft == by_key.draft
    assert by_repository.draft is not None
    assert (by_repository.draft.exit_layer, by_repository.draft.k) == (8, 6)
    assert by_repository.fallback_template == "none"
    assert by_repository.key == "facebook/layerskip-llama2-7B"


def test_a_branch_a_tag_or_a_commit_that_was_fetched_is_found_by_its_name() -> None:
    main = fetched("Somebody/Far-7B")
    older = main.with_name("f" * 40)
    older.mkdir()
    (main.parents[1] / "refs" / "v1").write_text(older.name)
    catalog = Catalog.load()
    for revision in ("v1", older.name):
        assert catalog.resolve(f"Somebody/Far-7B@{revision}").path == older
    assert catalog.resolve("Somebody/Far-7B@main").path == catalog.resolve("Somebody/Far-7B").path == main
    for revision in ("v2", "../refs/v1", "e" * 40):
        with pytest.raises(NotDownloaded, match="is not on this machine"):
            catalog.resolve(f"Somebody/Far-7B@{revision}")


def test_a_model_with_a_commit_is_that_commit_whatever_main_says(tmp_path: Path) -> None:
    main, older = fetched("Somebody/Far-7B"), "f" * 40
    pinned = EXAMPLE + f'revision = "{older}"\n'
    with pytest.raises(NotDownloaded):
        load(tmp_path, pinned).resolve("far")
    (main.parent / older).mkdir()
    assert load(tmp_path, pinned).resolve("far").path == main.parent / older
    assert load(tmp_path, EXAMPLE).resolve("far").path == main


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


def test_a_name_is_understood_in_any_case_with_a_slash_and_as_an_address(tmp_path: Path) -> None:
    catalog, far = load(tmp_path, EXAMPLE), fetched("Somebody/Far-7B")
    for typed in ("SMALL", "Tiny/"):
        assert catalog.resolve(typed).name == "Small One"
    for typed in ("somebody/far-7b", "Somebody/Far-7B/", "https://huggingface.co/somebody/Far-7B/tree/main"):
        assert catalog.resolve(typed).path == far
        assert catalog.lasting_name(typed) == "Somebody/Far-7B"
    with pytest.raises(NotDownloaded) as caught:
        catalog.resolve("HF.co/nobody/knows-it/")
    assert caught.value.hint == "Fetch it: localspec pull nobody/knows-it"
    with pytest.raises(UsageError, match=r"is not an address of huggingface\.co"):
        catalog.resolve("https://example.com/Somebody/Far-7B")


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
    "schema_version = 1\n[models.x]\nrepo = 'a/b'\nrevision = 'main'": "revision",
    "schema_version = 1\n[models.x]\nrepo = 'a/b'\ngated = 'perhaps'": "gated",
    "schema_version = 1\n[mine]\npath = 'a'": r"\[mine\] is not a known table\. Write \[models\.mine\]\.",
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
    assert "?." not in caught.value.message
    assert caught.value.hint


def test_a_newer_file_asks_for_an_upgrade(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, "schema_version = 9")
    assert caught.value.hint == UPDATE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_bytes(b"\xff\xfe")
    for file in (tmp_path / "nobody.toml", tmp_path / "models.toml"):
        with pytest.raises(CatalogError, match=file.name) as caught:
            Catalog.load(file)
        assert caught.value.hint
