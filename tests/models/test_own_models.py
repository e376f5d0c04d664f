"""The user's own models.toml comes before the one that ships; what is wrong in it is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import CatalogError, NotDownloaded
from localspec.core.requests import GenerateRequest, LoadRequest
from localspec.models.catalog import Catalog
from localspec.runtime.local_models import UNREADABLE, on_disk
from tests.conftest import Program
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

PACKAGED = list(Catalog.load(paths.packaged("models.toml")).models)
MINE = """
schema_version = 1
[models.mine]
path = "tiny"
name = "My Own"
aliases = ["m"]
[models.mine.draft]
kind = "model"
model = "small"
[models.mine.drafts.far]
kind = "model"
model = "Somebody/Far"
"""


@pytest.fixture
def own() -> Path:
    file = paths.models_file()
    file.parent.mkdir(parents=True)
    return file


def test_its_models_stand_behind_those_that_ship(own: Path):
    own.write_text(MINE)
    catalog = Catalog.load()
    assert list(catalog.models) == [*PACKAGED, "mine"]
    assert catalog.resolve("m").name == "My Own"
    assert catalog.lasting_name("m") == "mine"


def test_its_paths_are_from_its_own_folder(own: Path, tmp_path: Path):
    own.write_text(MINE)
    (own.parent / "small").mkdir()
    entry = Catalog.load().resolve("mine")
    assert entry.path == own.parent / "tiny"
    assert entry.draft is not None
    assert entry.draft.folder == own.parent / "small"
    far = entry.named_draft("far")
    assert far is not None
    assert (far.model, far.folder) == ("Somebody/Far", None)
    own.write_text(MINE.replace('"tiny"', f'"{tmp_path / "elsewhere"}"'))
    assert Catalog.load().resolve("mine").path == tmp_path / "elsewhere"


def test_a_template_beside_it_is_found_from_anywhere(own: Path):
    own.write_text(MINE.replace('name = "My Own"', 'template = "mine.jinja"'))
    assert Catalog.load().resolve("mine").template == "mine.jinja"
    (own.parent / "mine.jinja").write_text("{{ messages[0].content }}")
    assert Catalog.load().resolve("mine").template == str(own.parent / "mine.jinja")


@pytest.mark.parametrize(
    ("line", "fault"),
    [('quant = "auto"', "quant"), ("ctx = 1", "ctx"), ("system = 3", "system"), ("tags = []", "tags")],
)
def test_what_a_model_cannot_have_is_named(line: str, fault: str, own: Path):
    own.write_text(MINE.replace('name = "My Own"', line))
    with pytest.raises(CatalogError, match=fault):
        Catalog.load()


def test_of_a_model_that_ships_it_may_say_a_part(own: Path):
    shipped = Catalog.load().resolve("guide")
    own.write_text(
        "schema_version = 1\n[models.guide.sampling]\ntemperature = 0.5\n[models.guide.draft]\nkind = 'off'\n"
    )
    entry = Catalog.load().resolve("guide")
    assert (entry.path, entry.name, entry.drafts) == (shipped.path, shipped.name, shipped.drafts)
    assert entry.sampling.temperature == 0.5
    assert entry.draft is not None
    assert (entry.draft.kind, entry.draft.exit_layer) == ("off", None)


@pytest.mark.parametrize("place", ["path = 'here'", "repo = 'Some/Body'"])
def test_another_place_for_a_model_that_ships_is_instead_of_its_own(own: Path, place: str):
    own.write_text(f"schema_version = 1\n[models.guide]\n{place}\n")
    if place.startswith("path"):
        assert Catalog.load().resolve("guide").path == own.parent / "here"
    else:
        with pytest.raises(NotDownloaded, match="Some/Body"):
            Catalog.load().resolve("guide")


def test_the_words_of_a_model_that_ships_are_not_those_of_another_place(own: Path):
    assert Catalog.load().resolve("guide").folding
    own.write_text("schema_version = 1\n[models.guide]\npath = 'here'\n")
    assert Catalog.load().resolve("guide").folding is None


def test_what_is_typed_to_one_of_them_can_be_read_as_its_words(
    own: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("localspec.loading.kernels.verify_config", lambda _: None)
    own.write_text(
        MINE.replace("[models.mine.draft]", '[models.mine.folding]\nwords = "w.txt"\n[models.mine.drafts.near]')
    )
    save_snapshot(own.parent / "tiny", gpt2_like(), template=CHATML)
    ask = ("run", "mine", "HELO", "--quant", "fp32", "--max-tokens", "3", "--draft", "off")
    code, _, err = localspec(*ask)
    assert (code, err.count("\n")) == (2, 1)
    assert "w.txt cannot be read (No such file or directory). Edit the model's folding table in models.toml" in err
    (own.parent / "tiny" / "w.txt").write_text("hello\n")
    code, _, err = localspec(*ask)
    assert (code, "info: Read as: hello" in err) == (0, True)
    assert localspec(*ask, "--no-folding")[2].count("Read as") == 0


def test_words_are_a_file_that_a_system_can_know(own: Path):
    own.write_text('schema_version = 1\n[models.guide.folding]\nwords = "a\\u0000b"\n')
    with pytest.raises(CatalogError, match=r"folding\.words"):
        Catalog.load()


def test_without_one_there_is_what_ships(own: Path):
    assert list(Catalog.load().models) == PACKAGED
    own.write_text("schema_version = 1\n")
    assert list(Catalog.load().models) == PACKAGED


def test_the_picker_lists_them(own: Path):
    own.write_text(MINE)
    save_snapshot(own.parent / "tiny", gpt2_like(), template=CHATML)
    found = {model.name: model for model in on_disk(Catalog.load(), "guide")}
    assert list(found) == ["guide", "mine"]
    assert (found["mine"].quant, found["mine"].fit) == ("fp32", "fits")
    assert [name for name, _ in found["mine"].drafts] == ["auto", "far", "off"]


def test_one_of_them_answers(own: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "localspec.loading.kernels.verify_config", lambda _: None
    )  # transformers takes seconds to import
    own.write_text(MINE.replace("[models.mine.draft]", "[models.mine.drafts.near]"))
    save_snapshot(own.parent / "tiny", gpt2_like(), template=CHATML)
    words = ("--quant", "fp32", "--max-tokens", "3", "--temperature", "0", "--draft", "off")
    code, out, _ = localspec("run", "m", "hi", *words)
    assert (code, bool(out)) == (0, True)


def test_run_asks_it_as_the_file_says_unless_a_flag_does(
    own: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    says = 'ctx = 128\nquant = "fp32"\nsystem = "Be brief."\npreset = "precise"\ntemplate = "words"'
    own.write_text(MINE.replace('name = "My Own"', says))
    asked: list[tuple[LoadRequest, GenerateRequest]] = []
    monkeypatch.setattr("localspec.cli.run.answer_once", lambda load, request, *_: asked.append((load, request)) or 0)
    assert localspec("run", "mine", "hi")[0] == 0
    assert localspec("run", "mine", "hi", "--ctx", "64", "--preset", "creative", "-s", "Be long.", "--raw")[0] == 2
    assert localspec("run", "mine", "hi", "--ctx", "64", "--preset", "creative", "-s", "Be long.")[0] == 0
    assert [
        (load.weights.weight_format, load.weights.ctx, request.sampling.temperature) for load, request in asked
    ] == [
        ("fp32", 128, 0.0),
        ("fp32", 64, 1.0),
    ]
    told = [[message.content for message in request.messages or ()] for _, request in asked]
    assert told == [["Be brief.", "hi"], ["Be long.", "hi"]]
    assert {request.template.name for _, request in asked if request.template} == {"words"}


def test_a_base_model_with_a_template_of_the_files_is_asked_and_not_continued(
    own: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("localspec.loading.kernels.verify_config", lambda _: None)
    save_snapshot(own.parent / "tiny", gpt2_like(), template=None)
    words = ("run", "mine", "hi", "--quant", "fp32", "--max-tokens", "3", "--draft", "off")
    continued = "it completes the text"
    own.write_text(MINE)
    code, _, err = localspec(*words)
    assert (code, continued in err) == (0, True)
    own.write_text(MINE.replace('name = "My Own"', 'template = "words"'))
    code, _, err = localspec(*words)
    assert (code, continued in err) == (0, False)


HOSTILE: dict[str, bytes] = {
    "no TOML": b"[[[",
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
    "controls": b"schema_version = 1\n[models.'\\u001b]52;c;aGk=\\u0007']\npath = 'x'",
    "escapes in a name": b'schema_version = 1\n[models."a\\u001b[2J\\nb"]\npath = "x"',
    "brackets in a name": b'schema_version = 1\n[models."[/nope]"]\npath = "x"',
    "a path for a name": b'schema_version = 1\n[models."../../etc"]\npath = "x"',
    "a flag for a name": b'schema_version = 1\n[models."--yes"]\npath = "x"',
    "an alias with a line": b'schema_version = 1\n[models.a]\npath = "x"\naliases = ["b\\nc"]',
    "a draft with a line": b'schema_version = 1\n[models.a]\npath = "x"\n[models.a.drafts."b\\nc"]\nkind = "off"',
    "an endless name": b'schema_version = 1\n[models."' + b"a" * 100_000 + b'"]\npath = "x"',
    "an endless key": b"schema_version = 1\n" + b"b" * 100_000 + b" = 1",
    "an alias of what ships": b"schema_version = 1\n[models.a]\npath = 'x'\naliases = ['guide']",
    "models that are none": b"schema_version = 1\nmodels = 3",
    "a model that is none": b"schema_version = 1\n[models]\nguide = 3",
    "drafts that are none": b"schema_version = 1\n[models.guide]\ndrafts = [1]\ndraft = 'x'",
    "a time for a path": b"schema_version = 1\n[models.a]\npath = 2020-01-01",
    "two places": b"schema_version = 1\n[models.a]\npath = 'x'\nrepo = 'y/z'",
    "depth": b"schema_version = 1\nmodels = " + b"[" * 50_000 + b"]" * 50_000,
    "another version": b"schema_version = 99",
    "code": b"schema_version = 1\n[models.a]\npath = 'x'\ntrust_remote_code = true",
    "too much": b"#" * (1 << 20) + b"\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_wrong_in_it_is_one_sentence_that_names_the_file(own: Path, content: bytes):
    own.write_bytes(content)
    with pytest.raises(CatalogError) as caught:
        Catalog.load()
    message = caught.value.message
    assert message.startswith(str(own))
    assert message.endswith(".")
    assert len(message) < len(str(own)) + 400
    assert "\n" not in message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such thing there")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_read(own: Path, make: object):
    make(own)  # type: ignore[operator]
    with pytest.raises(CatalogError, match="is not a file"):
        Catalog.load()


def test_a_path_that_no_system_knows_is_a_model_that_cannot_be_loaded(own: Path):
    own.write_bytes(
        b'schema_version = 1\n[models.a]\npath = "x\\u0000y"\n[models.a.draft]\nkind = "model"\nmodel = "\\u0000"'
    )
    _, found = on_disk(Catalog.load(), "guide")
    assert (found.name, found.fit) == ("a", UNREADABLE)


def test_a_mistake_in_it_ends_the_command_with_that_sentence(own: Path, localspec: Program):
    own.write_bytes(HOSTILE["escapes in a name"])
    code, out, err = localspec("run", "guide", "hi")
    assert (code, out) == (2, "")
    assert str(own) in err
    assert err.count("\n") == 1
    assert "\x1b" not in err
