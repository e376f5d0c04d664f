"""GGUF files that other programs keep are found by readable names; what is broken or hostile there breaks nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from localspec.core import paths
from localspec.core.errors import CatalogError, NotDownloaded
from localspec.history.text.lists import LONGEST_MODEL, model_name
from localspec.hub.request import asked_repository
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.models.gguf import stores
from localspec.models.gguf.stores import GgufModel, kept
from localspec.runtime.local_models import UNREADABLE, names, on_disk
from tests.conftest import Program
from tests.support.gguf_files import save_pair

HASH = "0123456789abcdef" * 4
MODEL, ADAPTER, TEMPLATE, PROJECTOR = (
    f"application/vnd.ollama.image.{layer}" for layer in ("model", "adapter", "template", "projector")
)
COMMIT = "c" * 40


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def ollama(tmp_path: Path) -> Path:
    """As conftest.py's OLLAMA_MODELS says."""
    return tmp_path / "ollama_models"


def put(file: Path, content: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def manifest(store: Path, name: str, *layers: tuple[str, Any], host: str = "registry.ollama.ai") -> Path:
    content = {"schemaVersion": 2, "layers": [{"mediaType": kind, "digest": digest} for kind, digest in layers]}
    return put(store / "manifests" / host / name, json.dumps(content))


def blob(store: Path, digest: str = HASH, sign: str = "-") -> Path:
    return put(store / "blobs" / f"sha256{sign}{digest}")


def found() -> list[str]:
    return [one.name for one in kept()]


def test_ollamas_models_have_the_names_that_ollama_shows(ollama: Path):
    file = blob(ollama)
    layers = ((TEMPLATE, f"sha256:{'b' * 64}"), (MODEL, f"sha256:{HASH}"), (PROJECTOR, f"sha256:{'c' * 64}"))
    manifest(ollama, "library/qwen3/8b", *layers)
    manifest(ollama, "library/llama3.2/latest", *layers)
    manifest(ollama, "somebody/theirs/q4", *layers)
    manifest(ollama, "bartowski/Llama-3.2-3B-Instruct-GGUF/Q4_K_M", *layers, host="hf.co")
    assert kept() == [
        GgufModel(f"ollama:{name}", file)
        for name in (
            "hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
            "llama3.2:latest",
            "qwen3:8b",
            "somebody/theirs:q4",
        )
    ]
    assert stores.find("ollama:qwen3:8b") == stores.find("ollama:llama3.2") == file
    assert stores.find("ollama:qwen3") is None


def test_ollamas_older_blobs_are_found(ollama: Path):
    file = blob(ollama, sign=":")
    manifest(ollama, "library/old/latest", (MODEL, f"sha256:{HASH}"))
    assert kept() == [GgufModel("ollama:old:latest", file)]


def test_without_a_variable_ollamas_store_is_in_the_home(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setattr(stores, "OLLAMA_SERVICE", home / "service")
    for store, name in ((home / ".ollama" / "models", "mine"), (home / "service", "everybodys")):
        blob(store)
        manifest(store, f"library/{name}/1b", (MODEL, f"sha256:{HASH}"))
    assert found() == ["ollama:mine:1b", "ollama:everybodys:1b"]


BROKEN: dict[str, tuple[tuple[str, Any], ...]] = {
    "a blob that is not there": ((MODEL, f"sha256:{'d' * 64}"),),
    "a blob outside the store": ((MODEL, "sha256:../../../../outside"),),
    "a blob that is an absolute path": ((MODEL, "/etc/passwd"),),
    "a digest that is a number": ((MODEL, 7),),
    "no model": ((TEMPLATE, f"sha256:{HASH}"),),
    "a model that an adapter changes": ((MODEL, f"sha256:{HASH}"), (ADAPTER, f"sha256:{HASH}")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_manifest_that_names_no_model_hides_no_other(name: str, ollama: Path):
    blob(ollama)
    put(ollama.parent / "outside")
    manifest(ollama, "library/bad/latest", *BROKEN[name])
    manifest(ollama, "library/good/latest", (MODEL, f"sha256:{HASH}"))
    assert found() == ["ollama:good:latest"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"layers": 7}', '{"layers": [7, null, {}]}', '{"layers": [' * 2000, "\0" * (2 << 20)]
)
def test_a_manifest_that_is_none_hides_no_other(content: str, ollama: Path):
    blob(ollama)
    put(ollama / "manifests" / "registry.ollama.ai" / "library" / "bad" / "latest", content)
    manifest(ollama, "library/good/latest", (MODEL, f"sha256:{HASH}"))
    assert found() == ["ollama:good:latest"]


def test_what_lies_beside_manifests_is_none(ollama: Path):
    blob(ollama)
    manifest(ollama, "stray", (MODEL, f"sha256:{HASH}"))
    manifest(ollama, "library/a/b/c/too-deep", (MODEL, f"sha256:{HASH}"))
    os.mkfifo(manifest(ollama, "library/good/latest", (MODEL, f"sha256:{HASH}")).with_name("pipe"))
    assert found() == ["ollama:good:latest"]


def test_lm_studios_models_are_found_wherever_it_keeps_them(home: Path, tmp_path: Path):
    chosen = tmp_path / "big disk"
    put(home / ".lmstudio" / "settings.json", json.dumps({"downloadsFolder": str(chosen)}))
    put(chosen / "somebody" / "model" / "a.Q4_K_M.gguf")
    put(home / ".lmstudio" / "models" / "somebody" / "model" / "b.GGUF")
    put(home / ".cache" / "lm-studio" / "models" / "somebody" / "old" / "c.gguf")
    assert found() == [
        "lmstudio:somebody/model/a.Q4_K_M",
        "lmstudio:somebody/model/b",
        "lmstudio:somebody/old/c",
    ]


def test_a_home_of_lm_studio_elsewhere_is_found(home: Path, tmp_path: Path):
    put(home / ".lmstudio-home-pointer", f"{tmp_path / 'elsewhere'}\n")
    put(tmp_path / "elsewhere" / "models" / "somebody" / "model" / "a.gguf")
    assert found() == ["lmstudio:somebody/model/a"]


@pytest.mark.parametrize("settings", ["", "[]", '{"downloadsFolder": 7}', '{"downloadsFolder": "\\u0000"}', "{" * 9999])
def test_settings_that_say_nothing_are_passed_over(settings: str, home: Path):
    put(home / ".lmstudio" / "settings.json", settings)
    put(home / ".lmstudio" / "models" / "somebody" / "model" / "a.gguf")
    assert found() == ["lmstudio:somebody/model/a"]


def test_llama_cpps_and_hugging_faces_caches_are_found(tmp_path: Path):
    put(tmp_path / "llama_cache" / "ggml-org_tiny-GGUF_tiny-Q8_0.gguf")
    kept_as = tmp_path / "hub" / "models--somebody--tiny-GGUF"
    put(kept_as / "refs" / "main", COMMIT)
    target = put(kept_as / "blobs" / HASH)
    link = kept_as / "snapshots" / COMMIT / "Q4_K_M" / "tiny-Q4_K_M.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    link.with_name("gone.gguf").symlink_to("nowhere")
    assert found() == ["llama.cpp:ggml-org_tiny-GGUF_tiny-Q8_0", "somebody/tiny-GGUF:Q4_K_M"]
    assert stores.find("hf:somebody/tiny-GGUF/Q4_K_M/tiny-Q4_K_M") == link, "chats keep the older name"
    assert [one.file for one in stores.in_repository("somebody/tiny-GGUF:q4_k_m")] == [link]


def in_cache(tmp_path: Path, repository: str, *files: str) -> list[Path]:
    kept_as = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
    put(kept_as / "refs" / "main", COMMIT)
    return [put(kept_as / "snapshots" / COMMIT / file) for file in files]


def test_a_quantisation_names_a_file_where_it_is_the_only_one_of_it(tmp_path: Path):
    files = in_cache(tmp_path, "a/b", "m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "x/m-Q8_0.gguf", "y/m-Q8_0.gguf", "m.gguf")
    named = {one.name: one.file for one in kept()}
    assert list(named) == ["a/b:Q4_K_M", "a/b:UD-Q4_K_M", "hf:a/b/m", "hf:a/b/x/m-Q8_0", "hf:a/b/y/m-Q8_0"]
    catalog = Catalog.load()
    assert {name: catalog.resolve(name).path for name in named} == named
    assert catalog.resolve("hf:a/b/m-Q4_K_M").path == files[0]


def test_a_quantisation_that_is_not_here_is_said_with_those_that_are(tmp_path: Path):
    in_cache(tmp_path, "a/b", "m-Q4_1.gguf")
    with pytest.raises(NotDownloaded) as fault:
        Catalog.load().resolve("a/b:Q8_0")
    assert fault.value.message == "Q8_0 of a/b is not on this machine; Q4_1 is."
    assert fault.value.hint == "Fetch it: localspec pull a/b:Q8_0"
    in_cache(tmp_path, "a/b", "m-Q5_0.gguf")
    with pytest.raises(NotDownloaded, match=r"; Q4_1, Q5_0 are\."):
        Catalog.load().resolve("a/b:Q8_0")
    with pytest.raises(NotDownloaded, match=r"^Q8_0 of a/c is not on this machine\. Fetch"):
        Catalog.load().resolve("a/c:Q8_0")


def own(text: str) -> Catalog:
    put(paths.models_file(), f"schema_version = 1\n{text}")
    return Catalog.load()


def test_a_key_of_a_gguf_file_follows_the_cache_and_says_how_to_fetch_it(tmp_path: Path):
    (file,) = in_cache(tmp_path, "a/b", "deep/m-Q4_1.gguf")
    table = f"[models.smol]\nrepo = 'a/b'\nrevision = '{COMMIT}'\nfile = 'deep/m-Q4_1.gguf'\n"
    assert own(table).resolve("smol").path == file
    assert asked_repository("smol") == ("a/b", COMMIT, "Q4_1")
    file.unlink()
    with pytest.raises(NotDownloaded) as fault:
        own(table).resolve("smol")
    assert fault.value.hint == "Fetch it: localspec pull a/b:Q4_1 --as smol"


@pytest.mark.parametrize("file", ["../m.gguf", "/m.gguf", "a/../../m.gguf", "a\\b.gguf", "m.bin", "./m.gguf", ""])
def test_a_file_is_inside_its_repository(file: str):
    with pytest.raises(CatalogError):
        own(f"[models.x]\nrepo = 'a/b'\nfile = {json.dumps(file)}\n")
    with pytest.raises(CatalogError, match="no repo"):
        own("[models.x]\npath = 'a'\nfile = 'b.gguf'\n")


@pytest.mark.heavy
def test_a_file_with_a_key_is_listed_once(tmp_path: Path):
    (file,) = in_cache(tmp_path, "a/b", "m-Q8_0.gguf")
    made, _ = save_pair(tmp_path / "made", "Q8_0")
    file.unlink()
    os.link(made, file)
    catalog = own("[models.smol]\nrepo = 'a/b'\nfile = 'm-Q8_0.gguf'\n")
    for now, listed in (("", "smol"), ("smol", "smol"), ("a/b:Q8_0", "a/b:Q8_0"), ("hf:a/b/m-Q8_0", "hf:a/b/m-Q8_0")):
        assert [one.name for one in on_disk(catalog, now)] == ["guide", listed]
    assert [one.name for one in on_disk(own(""), "")] == ["guide", "a/b:Q8_0"]


def test_a_model_in_parts_is_one_and_projectors_are_none(home: Path):
    folder = home / ".lmstudio" / "models" / "somebody" / "big"
    for part in (1, 2, 3):
        put(folder / f"big-Q8_0-{part:05d}-of-00003.gguf")
    put(folder / "mmproj-big-f16.gguf")
    put(folder / "README.md")
    assert kept() == [GgufModel("lmstudio:somebody/big/big-Q8_0", folder / "big-Q8_0-00001-of-00003.gguf")]


def test_links_that_go_round_end(home: Path):
    models = home / ".lmstudio" / "models"
    put(models / "somebody" / "model" / "a.gguf")
    (models / "somebody" / "again").symlink_to(models, target_is_directory=True)
    (models / "itself").symlink_to("itself")
    assert found() == ["lmstudio:somebody/model/a"]


def test_a_folder_behind_a_link_is_looked_into(home: Path, tmp_path: Path):
    put(tmp_path / "disk" / "model" / "a.gguf")
    (home / ".lmstudio" / "models").mkdir(parents=True)
    (home / ".lmstudio" / "models" / "somebody").symlink_to(tmp_path / "disk", target_is_directory=True)
    assert found() == ["lmstudio:somebody/model/a"]


def test_thousands_of_folders_are_not_all_looked_into(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stores, "MAX_ENTRIES", 50)
    for number in range(40):
        put(home / ".lmstudio" / "models" / f"{number:03d}" / "model" / "a.gguf")
    assert 0 < len(found()) < 25
    deep = home / ".lmstudio" / "models" / "-" / "1" / "2" / "3"
    put(deep / "a.gguf")
    put(deep / "4" / "b.gguf")
    assert not {"lmstudio:-/1/2/3/a", "lmstudio:-/1/2/3/4/b"} & set(found())


def test_a_name_that_no_terminal_shows_is_not_offered(home: Path):
    put(home / ".lmstudio" / "models" / "somebody" / "model" / "a\x1b[2J.gguf")
    put(home / ".lmstudio" / "models" / "somebody" / "model" / os.fsdecode(b"a\xff.gguf"))
    assert found() == []


def test_a_model_of_another_program_is_loaded_by_its_name(ollama: Path):
    file = blob(ollama)
    manifest(ollama, "library/tiny/latest", (MODEL, f"sha256:{HASH}"))
    catalog = Catalog.load()
    for name in ("ollama:tiny:latest", "ollama:tiny"):
        entry = catalog.resolve(name)
        assert (entry.key, entry.path) == (name, file)
        assert catalog.lasting_name(name) == name


@pytest.mark.parametrize("prefix", stores.STORES)
def test_a_model_that_another_program_does_not_have_is_a_sentence(prefix: str, ollama: Path):
    with pytest.raises(NotDownloaded, match=f"'{prefix}:nope' is not on this machine") as caught:
        Catalog.load().resolve(f"{prefix}:nope")
    assert "localspec ls" in caught.value.hint
    blob(ollama)
    manifest(ollama, "library/qwen3/8b", (MODEL, f"sha256:{HASH}"))
    with pytest.raises(NotDownloaded, match=r"did you mean 'ollama:qwen3:8b'\?"):
        Catalog.load().resolve("ollama:qwen3:8B")


def test_a_long_name_keeps_its_program_and_its_end():
    shown = model_name("lmstudio:somebody/a-model-with-a-long-name/a-model-with-a-long-name-Q4_K_M")
    assert shown.startswith("lmstudio:…")
    assert shown.endswith("-Q4_K_M")
    assert len(shown) == LONGEST_MODEL


@pytest.mark.heavy
def test_what_can_be_loaded_is_listed_with_format_size_and_fit(home: Path, ollama: Path, tmp_path: Path):
    file, _ = save_pair(tmp_path, "Q8_0")
    folder = home / ".lmstudio" / "models" / "somebody" / "tiny"
    folder.mkdir(parents=True)
    os.link(file, folder / "tiny-Q8_0.gguf")
    os.link(file, blob(ollama).with_name(f"sha256-{'e' * 64}"))
    manifest(ollama, "library/tiny/latest", (MODEL, f"sha256:{'e' * 64}"))
    put(folder / "broken.gguf", "GGUF")
    for name, kind in (("sight", "mmproj"), ("changes", "adapter")):
        save_kind(folder / f"{name}.gguf", kind)
    listed = {one.name: one for one in on_disk(Catalog.load(), "guide")}
    size = open_snapshot(file).total_bytes
    for name in ("ollama:tiny:latest", "lmstudio:somebody/tiny/tiny-Q8_0"):
        assert (listed[name].quant, listed[name].num_bytes, listed[name].fit) == ("Q8_0", size, "fits")
    assert listed["lmstudio:somebody/tiny/broken"].fit == UNREADABLE
    assert not {"lmstudio:somebody/tiny/sight", "lmstudio:somebody/tiny/changes"} & listed.keys()
    assert {"ollama:tiny:latest", "lmstudio:somebody/tiny/tiny-Q8_0"} <= set(names())


def save_kind(file: Path, kind: str) -> None:
    """A file that is a part of a model, as it says itself."""
    import gguf

    writer: Any = gguf.GGUFWriter(file, "clip" if kind == "mmproj" else "llama")
    writer.add_type(kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.heavy
def test_the_current_model_of_another_program_is_listed_once(ollama: Path, tmp_path: Path):
    file, _ = save_pair(tmp_path, "Q8_0")
    os.link(file, (ollama.mkdir(parents=True), blob(ollama, "1" * 64))[1].with_name(f"sha256-{HASH}"))
    manifest(ollama, "library/tiny/latest", (MODEL, f"sha256:{HASH}"))
    listed = [one.name for one in on_disk(Catalog.load(), "ollama:tiny:latest", loaded="int8")]
    assert listed == ["guide", "ollama:tiny:latest"]


def test_a_repository_of_gguf_files_is_not_offered_as_a_folder(tmp_path: Path):
    for name, file in (("tiny", "config.json"), ("tiny-GGUF", "tiny.gguf")):
        kept_as = tmp_path / "hub" / f"models--somebody--{name}"
        put(kept_as / "refs" / "main", COMMIT)
        put(kept_as / "snapshots" / COMMIT / file)
    assert names() == ("somebody/tiny", "hf:somebody/tiny-GGUF/tiny")


def test_a_shell_completes_them(localspec: Program, ollama: Path, monkeypatch: pytest.MonkeyPatch):
    blob(ollama)
    manifest(ollama, "library/qwen3/8b", (MODEL, f"sha256:{HASH}"))
    monkeypatch.setenv("_LOCALSPEC_COMPLETE", "zsh_complete")
    for command in ("chat", "run", "bench"):
        for typed, expected in (("oll", ["ollama:qwen3:8b"]), ("g", ["guide"]), ("./x", ["./x"]), ("zz", [])):
            monkeypatch.setenv("COMP_WORDS", f"localspec {command} {typed}")
            monkeypatch.setenv("COMP_CWORD", "2")
            _, out, _ = localspec()
            assert out.replace("\\:", ":").split("\n")[1:-1:3] == expected, (command, typed)
