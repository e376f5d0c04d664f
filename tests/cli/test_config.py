"""`localspec config …`, and how settings reach `run` and `chat`: one sentence and exit 2 for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.config.tables import Config
from localspec.core import paths
from localspec.core.errors import UPDATE, UsageError
from localspec.core.requests import GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.tui.control.tuning import Tuning
from localspec.tui.themes import look
from tests.conftest import Program


def write(text: str) -> Path:
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    paths.config_file().write_text(text)
    return paths.config_file()


def test_set_show_unset_and_path(localspec: Program):
    file = paths.config_file()
    assert localspec("config", "path") == (0, f"{file}\n", "")
    assert localspec("config", "set", "sampling.temperature", "0.7") == (0, "", "")
    lines = [line.split() for line in localspec("config", "show")[1].splitlines()]
    assert ["sampling.temperature", "0.7"] in lines
    assert ["engine.ctx", "–"] in lines
    assert localspec("config", "unset", "sampling.temperature") == (0, "", "")
    assert ["sampling.temperature", "–"] in [line.split() for line in localspec("config", "show")[1].splitlines()]


def test_show_says_who_set_each_value(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    file = write("[sampling]\ntop_k = 5\n[presets.mine]\nseed = 1\n[keymap]\ntokens = 'f9'\n")
    monkeypatch.setenv("LOCALSPEC_TEMPERATURE", "0.3")
    code, out, _ = localspec("config", "show", "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["sampling.top_k"] == {"value": 5, "origin": str(file)}
    assert found["sampling.temperature"] == {"value": "0.3", "origin": "$LOCALSPEC_TEMPERATURE"}
    assert found["ui.theme"] == {"value": "tokyo-night", "origin": "built-in"}
    assert found["presets.mine.seed"] == {"value": 1, "origin": str(file)}
    assert found["presets.precise.temperature"] == {"value": 0.0, "origin": "built-in"}
    assert found["keymap.tokens"] == {"value": "f9", "origin": str(file)}
    told = [line.split() for line in localspec("config", "show", "--origin")[1].splitlines()]
    assert ["sampling.top_k", "5", str(file)] in told


def test_the_schema_knows_every_section(localspec: Program):
    code, out, _ = localspec("config", "schema")
    schema = json.loads(out)
    assert code == 0
    assert "temperature" in json.dumps(schema)
    assert {"chat", "ui", "engine", "spec", "sampling", "keymap", "presets"} <= set(
        schema["$defs"]["Config"]["properties"]
    )


def test_the_schema_of_models_toml_knows_every_key(localspec: Program):
    code, out, _ = localspec("config", "schema", "--models")
    tables = json.loads(out)["$defs"]
    assert code == 0
    assert {"repo", "path", "revision", "licence", "gated", "draft"} <= set(tables["ModelTable"]["properties"])
    assert {"kind", "model", "exit_layer", "k", "source"} == set(tables["DraftTable"]["properties"])


def test_a_theme_that_is_set_must_be_there_as_one_that_is_asked_for(localspec: Program):
    code, out, err = localspec("config", "set", "ui.theme", "nordd")
    assert (code, out) == (2, "")
    assert err.startswith("error: There is no theme 'nordd'; did you mean 'nord'? Available: textual-dark, ")
    with pytest.raises(UsageError) as asked:
        look(Config(), "nordd", paths.themes_dir())
    assert err == f"error: {asked.value}\n"
    assert not paths.config_file().exists()
    paths.themes_dir().mkdir(parents=True)
    (paths.themes_dir() / "mine.toml").write_text('name = "mine"\nprimary = "#00ff00"')
    assert localspec("config", "set", "ui.theme", "mine") == (0, "", "")
    assert localspec("config", "set", "ui.theme", '"nord"') == (0, "", "")


def test_a_default_model_must_be_there_or_be_one_that_can_be_pulled(
    localspec: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    code, out, err = localspec("config", "set", "default_model", "nosuch")
    assert (code, out) == (2, "")
    assert err == (
        "error: There is no model 'nosuch'. List the models on this machine: localspec ls. Nothing is written.\n"
    )
    assert not paths.config_file().exists()
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert localspec("config", "set", "default_model", "mine") == (0, "", "")
    assert f'default_model = "{tmp_path / "mine"}"' in paths.config_file().read_text()  # the chat opens in any folder
    code, _, err = localspec("config", "set", "default_model", "Nobody/Knows-It")
    assert (code, 'default_model = "Nobody/Knows-It"' in paths.config_file().read_text()) == (0, True)
    assert "localspec pull Nobody/Knows-It" in err


@pytest.mark.parametrize("name", ["nosuch", "Nobody/Knows-It", "./nowhere"])
def test_a_default_model_that_is_wrong_is_laid_to_the_file_that_names_it(name: str, localspec: Program):
    file = write(f'default_model = "{name}"')
    code, _, err = localspec("chat")
    assert code == 3
    assert f"It is the default_model of {file}." in err
    assert "default_model" not in localspec("chat", name)[2]


def test_edit_opens_the_editor_on_a_file_that_is_there_and_checks_it(
    localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VISUAL", "grep -q schema_version")
    assert localspec("config", "edit") == (0, "", "")
    monkeypatch.setenv("VISUAL", "false")
    code, _, err = localspec("config", "edit")
    assert (code, err.startswith("error: The editor failed")) == (2, True)
    write("x = 1")
    monkeypatch.setenv("VISUAL", "true")
    code, _, err = localspec("config", "edit")
    assert (code, "there is no setting 'x'" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("config", "set", "sampling.temprature", "1"), "did you mean 'sampling.temperature'"),
        (("config", "set", "sampling.temperature", "-1"), "sampling.temperature: expected a number >= 0"),
        (("config", "unset", "ui.theme"), "'ui.theme' is not set"),
        (("run", "guide", "hi", "--preset", "precice"), "did you mean 'precise'"),
        (("chat", "guide", "--preset", "precice"), "did you mean 'precise'"),
        (("chat", "guide", "--temperature", "-1"), "temperature is a number from 0 to 100, not '-1.0'"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], sentence: str, localspec: Program):
    code, out, err = localspec(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


@pytest.mark.parametrize("words", [("run", "guide", "hi"), ("chat",), ("config", "show")])
def test_a_broken_file_ends_every_command_that_needs_it_but_the_others_help(words: tuple[str, ...], localspec: Program):
    write("schema_version = 2")
    code, out, err = localspec(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert UPDATE in err
    assert localspec("config", "path")[0] == 0


# --- settings on their way to a model

SETTINGS = """
default_model = "guide"
[engine]
quant = "int4"
[sampling]
temperature = 0.9
top_k = 9
[presets.mine]
top_p = 0.5
system = "Be odd."
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LoadRequest, GenerateRequest]]:
    found: list[tuple[LoadRequest, GenerateRequest]] = []
    monkeypatch.setattr("localspec.cli.run.answer_once", lambda load, request, *_: found.append((load, request)))
    return found


def test_run_takes_flags_then_environment_then_models_toml_then_config_toml(
    localspec: Program, asked: list[tuple[LoadRequest, GenerateRequest]], monkeypatch: pytest.MonkeyPatch
):
    write(SETTINGS)
    assert localspec("run", "guide", "hi")[0] == 0  # models.toml says temperature 0 of the guide
    monkeypatch.setenv("LOCALSPEC_TEMPERATURE", "0.4")
    monkeypatch.setenv("LOCALSPEC_QUANT", "int8")
    assert localspec("run", "guide", "hi")[0] == 0
    assert localspec("run", "guide", "hi", "--temperature", "0.2", "--quant", "fp32", "--preset", "mine")[0] == 0
    assert [load.weights.weight_format for load, _ in asked] == ["int4", "int8", "fp32"]
    assert [request.sampling for _, request in asked] == [
        SamplingOptions(temperature=0, top_k=9),
        SamplingOptions(temperature=0.4, top_k=9),
        SamplingOptions(temperature=0.2, top_k=9, top_p=0.5),
    ]
    assert asked[-1][1].messages == (Message("system", "Be odd."), Message("user", "hi"))


def test_chat_takes_the_same(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    begun: list[tuple[Tuning, dict[str, Any]]] = []
    monkeypatch.setattr("localspec.tui.app.run", lambda tuning, *_, **said: begun.append((tuning, said)))
    write(SETTINGS + "[chat]\nhistory = false\n")
    monkeypatch.setenv("LOCALSPEC_K", "4")
    assert localspec("chat", "--preset", "mine", "--top-k", "3", "--theme", "nord")[0] == 0
    ((tuning, said),) = begun
    assert tuning.load == LoadRequest.of("guide", k=4, quant="int4")
    assert tuning.sampling == SamplingOptions(temperature=0, top_k=3, top_p=0.5)
    assert (tuning.preset, said["history"], said["theme"]) == ("mine", False, "nord")


def test_the_chat_opens_on_the_users_model(localspec: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    begun: list[Tuning] = []
    monkeypatch.setattr("localspec.tui.app.run", lambda tuning, *_, **__: begun.append(tuning))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").touch()
    write(f'default_model = "{tmp_path / "mine"}"')
    assert localspec("chat")[0] == 0
    assert localspec("chat", "guide")[0] == 0
    assert [tuning.load.model for tuning in begun] == [str(tmp_path / "mine"), "guide"]
