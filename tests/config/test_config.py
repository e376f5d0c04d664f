"""config.toml: what may stand in it, how a mistake is told, who is heard first, and that a change leaves the rest."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from localspec.config import assignments, precedence
from localspec.config.reading import read
from localspec.config.tables import (
    KEYS,
    PRESETS,
    Config,
    EngineTable,
    PresetTable,
    ProvenanceTable,
    SpecTable,
    variable,
)
from localspec.config.writing import store, store_typed, unset
from localspec.core import paths
from localspec.core.errors import UPDATE, UsageError
from localspec.core.requests import SAMPLING_FIELDS, LoadRequest, SamplingOptions, SpecOptions
from localspec.models.catalog import Catalog

EVERYTHING = """
schema_version = 1
default_model = "small"
[chat]
send_key = "ctrl+j"
history = false
title = "none"
[ui]
theme = "nord"
token_view = "tokens"
speed_panel = "on"
max_fps = 10
window_messages = 40
animations = "none"
[ui.provenance]
draft = "#00ff00"
fix = "$primary"
[engine]
device = "cpu"
quant = "int4"
ctx = 1024
threads = 2
idle_unload = "90s"
[spec]
draft = "off"
k = 3
mode = "on"
probe_every = 8
[sampling]
temperature = 0.5
top_k = 40
top_p = 0.9
min_p = 0.1
repetition_penalty = 1.1
seed = 7
[keymap]
"page.up" = "f9"
[presets.mine]
temperature = 2
system = "Be odd."
"""
COMMENTED = """# mine
schema_version = 1 # of the file
[sampling]  # how
# cold
temperature = 0.2  # very
"""


@pytest.fixture
def file() -> Path:
    paths.config_dir().mkdir(parents=True)
    return paths.config_file()


def told(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read()
    assert caught.value.message.startswith(str(file))
    return str(caught.value).removeprefix(f"{file}")


# --- reading


def test_without_a_file_everything_is_built_in_and_no_folder_is_made():
    assert read() == Config()
    assert not paths.config_dir().exists()


def test_every_setting_is_read(file: Path):
    file.write_text(EVERYTHING)
    config = read()
    assert (config.default_model, config.chat.send_key, config.chat.history, config.chat.title) == (
        "small",
        "ctrl+j",
        False,
        "none",
    )
    assert (config.ui.theme, config.ui.token_view, config.ui.speed_panel) == ("nord", "tokens", "on")
    assert (config.engine.device, config.engine.quant, config.engine.ctx, config.engine.threads) == (
        "cpu",
        "int4",
        1024,
        2,
    )
    assert (config.spec.draft, config.spec.k, config.spec.mode, config.spec.probe_every) == ("off", 3, "on", 8)
    assert (config.ui.max_fps, config.ui.window_messages, config.ui.animations) == (10, 40, "none")
    assert config.ui.provenance == ProvenanceTable(draft="#00ff00", fix="$primary")
    assert ProvenanceTable() == ProvenanceTable("$text-success", "$text-accent", "$text-warning", "$text-error")
    assert (config.engine.idle_seconds, EngineTable().idle_seconds, EngineTable(idle_unload="off").idle_seconds) == (
        90,
        1800,
        None,
    )
    assert config.sampling == SamplingOptions(0.5, 40, 0.9, 0.1, 1.1, 7)
    assert config.keymap == {"page.up": "f9"}
    mine = config.preset("mine")
    assert (SamplingOptions().over(mine), mine.system) == (SamplingOptions(temperature=2), "Be odd.")


EDIT = " Edit it: localspec config edit"
MISTAKES = {
    "[sampling]\ntemprature = 1": "there is no setting 'sampling.temprature'; did you mean 'sampling.temperature'?",
    "temperature = 1": "there is no setting 'temperature'; did you mean 'sampling.temperature'?",
    "[engin]\nctx = 5": "there is no setting 'engin'; did you mean 'engine'?",
    "[xyzzy]": "there is no setting 'xyzzy'.",
    "[presets.mine]\ntop_q = 1": "there is no setting 'presets.mine.top_q'; did you mean 'presets.mine.top_p'?",
    '[sampling]\ntemperature = "hot"': "sampling.temperature: expected a number, got text.",
    "[presets.mine]\nseed = 1.5": "presets.mine.seed: expected a whole number, got a number.",
    "presets = 3": "presets: expected a table, got a whole number.",
    "[keymap]\ntokens = 3": "keymap.tokens: expected text, got a whole number.",
    "[sampling]\ntop_p = 1.5": "sampling.top_p: expected a number <= 1.0.",
    "[sampling]\nseed = -2": "sampling.seed: expected a whole number >= -1.",
    '[ui]\ntoken_view = "html"': "ui.token_view: there is no 'html'.",
    "[spec]\nk = 17": "spec.k: expected a whole number <= 16.",
    '[spec]\nk = "fast"': "spec.k: there is no 'fast'.",
    "[chat]\nhistory = 0": "chat.history: expected true or false, got a whole number.",
    "schema_version = 0": "schema_version: expected a whole number >= 1.",
    "[ui]\nmax_fps = 21": "ui.max_fps: expected a whole number <= 20.",
    "[ui]\nmax_fps = 0": "ui.max_fps: expected a whole number >= 1.",
    "[ui]\nwindow_messages = 3": "ui.window_messages: expected a whole number >= 10.",
    '[ui]\nanimations = "some"': "ui.animations: there is no 'some'.",
    '[ui.provenance]\nfix = "red"': "ui.provenance.fix: expected #rrggbb or a variable of the theme, such as $accent.",
    '[ui.provenance]\nfixd = "$accent"': "there is no setting 'ui.provenance.fixd'; did you mean 'ui.provenance.fix'?",
    '[engine]\nidle_unload = "1 day"': "engine.idle_unload: expected a time such as 30m, or off.",
    '[spec]\nmode = "never"': "spec.mode: there is no 'never'.",
    "[spec]\nprobe_every = 1": "spec.probe_every: expected a whole number >= 2.",
    '[engine]\ndevice = "cuda:x"': "engine.device: expected auto, cpu, cuda, cuda:N or offload.",
    "chat = []": "chat: expected a table, got a list.",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_what_was_meant(text: str, file: Path):
    assert told(file, text) == f": {MISTAKES[text]}{EDIT}"


def test_a_file_that_is_no_toml_is_told_with_the_line(file: Path):
    assert "line 2" in told(file, "a = 1\nb = = 2")
    file.write_bytes(b"a = 1\n\n# \xff")
    with pytest.raises(UsageError, match=r"not UTF-8 text \(line 3\)"):
        read()


def test_a_newer_file_asks_for_an_upgrade_whatever_else_it_says(file: Path):
    sentence = told(file, "schema_version = 9\nnew_thing = 1")
    assert sentence == f" has schema_version 9; this localspec knows 1. {UPDATE}"


def test_a_file_that_cannot_be_read_is_named(file: Path):
    file.mkdir()
    with pytest.raises(UsageError, match=r"config\.toml cannot be read \(it is not a file\)"):
        read()


def test_a_preset_that_is_not_there_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="no preset 'precice'; did you mean 'precise'") as caught:
        Config().preset("precice")
    assert caught.value.hint == "Available: precise, balanced, creative."
    assert PRESETS["precise"].temperature == 0


def test_settings_files_take_what_the_engine_takes_and_nothing_else():
    for name, field in SAMPLING_FIELDS.items():
        low, high = field.low, field.high
        for value in (low, high):
            assert precedence.option(name, str(value)) == value
            assert getattr(msgspec.convert({name: value}, SamplingOptions), name) == value
        for value in (low - 1, 2 * high):
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({name: value}, SamplingOptions)
    with pytest.raises(UsageError, match=r"top_p is a number from 1e-09 to 1, not '0'"):
        precedence.option("top_p", "0")
    with pytest.raises(UsageError, match=r"top_k is a whole number from 0 to 4194304, not '1\.5'"):
        precedence.option("top_k", "1.5")
    for typed in ("nan", "inf", "", "-1"):
        with pytest.raises(UsageError, match="temperature is a number from 0 to 100"):
            precedence.option("temperature", typed)


# --- who is heard first

MODELS = """
schema_version = 1
[models.small]
path = "assets"
[models.small.sampling]
temperature = 0.3
[models.small.draft]
kind = "early-exit"
exit_layer = 1
k = 5
[models.bare]
path = "assets"
[models.own]
path = "assets"
quant = "fp32"
ctx = 512
system = "Be brief."
preset = "precise"
template = "words"
"""
SETTINGS = """
[engine]
quant = "int4"
threads = 2
[spec]
draft = "off"
k = 3
[sampling]
temperature = 0.9
top_k = 9
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    models = tmp_path / "models.toml"
    models.write_text(MODELS)
    return Catalog.load(models)


@pytest.mark.parametrize(
    ("model", "said", "request_"),
    [
        (
            "small",
            {},
            LoadRequest.of("small", draft="auto", k="auto", quant="int4", threads=2),
        ),  # models.toml has draft and k
        ("bare", {}, LoadRequest.of("bare", draft="off", k=3, quant="int4", threads=2)),
        (
            "bare",
            {"draft": "early-exit:2"},
            LoadRequest.of("bare", draft="early-exit:2", k=3, quant="int4", threads=2),
        ),
        ("small", {"k": 7, "quant": "fp32"}, LoadRequest.of("small", draft="auto", k=7, quant="fp32", threads=2)),
        ("own", {}, LoadRequest.of("own", draft="off", k=3, quant="fp32", ctx=512, threads=2)),
        (
            "own",
            {"quant": "auto", "ctx": 64},
            LoadRequest.of("own", draft="off", k=3, quant="auto", ctx=64, threads=2),
        ),
        ("nobody", {"ctx": 64}, LoadRequest.of("nobody", draft="off", k=3, quant="int4", ctx=64, threads=2)),
    ],
)
def test_flags_before_models_toml_before_config_toml(
    model: str, said: dict[str, object], request_: LoadRequest, file: Path, catalog: Catalog
):
    file.write_text(SETTINGS)
    assert precedence.load_request(read(), catalog, model, said) == request_


@pytest.mark.parametrize(
    ("model", "said", "preset", "temperature"),
    [
        ("bare", None, None, 0.9),  # config.toml
        ("small", None, None, 0.3),  # models.toml
        ("small", None, "balanced", 0.7),
        ("small", 1.5, "balanced", 1.5),
    ],
)
def test_of_sampling_what_is_said_comes_before_the_preset_before_models_toml_before_config_toml(
    model: str, said: float | None, preset: str | None, temperature: float, file: Path, catalog: Catalog
):
    file.write_text(SETTINGS)
    config = read()
    table = config.preset(preset) if preset else precedence.NO_PRESET
    found = precedence.sampling(config, catalog.resolve(model), SamplingOptions(temperature=said), table)
    assert (found.temperature, found.top_k) == (temperature, 9)


def test_a_model_has_a_preset_and_a_system_prompt_of_its_own_until_somebody_says_otherwise(
    file: Path, catalog: Catalog, tmp_path: Path
):
    file.write_text('[presets.mine]\nsystem = "Be odd."\n')
    config, own, bare = read(), catalog.resolve("own"), catalog.resolve("bare")
    named = [precedence.preset_name(config, entry, said) for entry in (own, bare, None) for said in (None, "mine")]
    assert named == ["precise", "mine", None, "mine", None, "mine"]
    mine, none = config.preset("mine"), precedence.NO_PRESET
    told = [precedence.instructions(own, *each) for each in (("Said.", mine), (None, mine), (None, none))]
    assert told == ["Said.", "Be odd.", "Be brief."]
    assert precedence.instructions(bare, None, none) == ""
    (tmp_path / "models.toml").write_text(MODELS.replace("precise", "precice"))
    with pytest.raises(UsageError, match="There is no preset 'precice'; did you mean 'precise'"):
        precedence.preset_name(config, Catalog.load(tmp_path / "models.toml").resolve("own"), None)


def test_a_seed_of_minus_one_is_none_whatever_is_said_below_it(file: Path, catalog: Catalog):
    file.write_text("[sampling]\nseed = 5\n[presets.mine]\nseed = -1\n")
    config, entry = read(), catalog.resolve("bare")
    assert precedence.sampling(config, entry, SamplingOptions()).fixed_seed == 5
    assert precedence.sampling(config, entry, SamplingOptions(seed=-1)).fixed_seed is None
    assert precedence.sampling(config, entry, SamplingOptions(), config.preset("mine")).fixed_seed is None
    file.write_text("[sampling]\nseed = -1\n")
    assert precedence.sampling(read(), entry, SamplingOptions()).fixed_seed is None
    assert precedence.option("seed", "-1") == -1
    with pytest.raises(UsageError, match="from -1 to"):
        precedence.option("seed", "random")


def test_how_to_speculate_is_a_setting_that_a_draft_length_said_on_the_command_line_sets_aside(catalog: Catalog):
    config = Config(spec=SpecTable(mode="off", probe_every=8))
    request = precedence.load_request(config, catalog, "small", {})
    assert (request.mode, request.probe_every) == ("off", 8)
    assert precedence.load_request(config, catalog, "small", {"k": 4}).mode == "auto"
    options = {(k, mode): SpecOptions.of(k, mode) for k in ("auto", 4, 0) for mode in ("auto", "on", "off")}
    assert [options["auto", mode].mode for mode in ("auto", "on", "off")] == ["auto", "on", "off"]
    assert [options[4, mode].mode for mode in ("auto", "on", "off")] == ["on", "on", "off"]
    assert {options[0, mode].mode for mode in ("auto", "on", "off")} == {"off"}
    assert options[4, "off"].k == 4, "it is there when it is switched on"


def test_with_nothing_said_anywhere_the_model_decides(catalog: Catalog):
    assert precedence.sampling(Config(), catalog.resolve("bare"), SamplingOptions()) == SamplingOptions()
    assert precedence.load_request(Config(), catalog, "bare", {}) == LoadRequest("bare")


def test_the_variables_are_those_of_the_flags():
    from localspec.cli.main import chat

    flags = {option.envvar for option in chat.params if getattr(option, "envvar", None)}
    assert {variable(key) for key in KEYS} - {None} == flags - {"LOCALSPEC_PRESET"}


# --- writing


def test_a_change_keeps_comments_and_order(file: Path):
    file.write_text(COMMENTED)
    store("sampling.temperature", 0.7)
    store("sampling.top_k", 5)
    store("ui.theme", "nord")
    store("default_model", "small")
    written = file.read_text()
    for comment in ("# mine", "# of the file", "# how", "# cold", "# very"):
        assert comment in written
    config = read()
    assert (config.sampling.temperature, config.sampling.top_k) == (0.7, 5)
    assert (config.ui.theme, config.default_model) == ("nord", "small")
    unset("sampling.temperature")
    assert read().sampling.temperature is None
    assert "# mine" in file.read_text()


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("sampling.temperature", "0.7", 0.7),
        ("sampling.temperature", "1", 1),
        ("chat.history", "false", False),
        ("ui.theme", "nord", "nord"),
        ("default_model", "7", "7"),
        ("spec.k", "4", 4),
        ("spec.k", "auto", "auto"),
        ("ui.theme", '"quoted"', "quoted"),
        ("ui.provenance.draft", "#00ff00", "#00ff00"),
        ("engine.idle_unload", "off", "off"),
        ("ui.theme", "x\ny = 1", "x\ny = 1"),
    ],
)
def test_a_typed_value_becomes_what_its_key_takes(key: str, typed: str, value: object):
    store_typed(key, typed)
    found: object = read()
    for part in key.split("."):
        found = getattr(found, part)
    assert (found, type(found)) in ((value, type(value)), (float(value) if value == 1 else None, float))


def test_names_with_dots_of_their_own_are_one_name():
    store_typed("keymap.page.up", "f9")
    store_typed("presets.gpt.4.temperature", "1.5")
    config = read()
    assert config.keymap == {"page.up": "f9"}
    assert config.preset("gpt.4").temperature == 1.5
    unset("presets.gpt.4")
    assert read().presets == {}


@pytest.mark.parametrize(
    ("key", "typed", "sentence"),
    [
        ("sampling.temprature", "1", "There is no setting 'sampling.temprature'; did you mean 'sampling.temperature'"),
        ("sampling.temperature", "hot", "sampling.temperature: expected a number, got text"),
        ("sampling.temperature.x", "1", "cannot be set: temperature is not a table"),
        ("sampling", "1", "sampling: expected a table, got a whole number"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(key: str, typed: str, sentence: str, file: Path):
    file.write_text(COMMENTED)
    with pytest.raises(UsageError, match=sentence) as caught:
        store_typed(key, typed)
    assert "config edit" not in str(caught.value) or "not a table" in sentence
    assert file.read_text() == COMMENTED


def test_a_broken_file_is_not_written_over_but_a_wrong_key_can_be_taken_out(file: Path):
    file.write_text("[[[")
    with pytest.raises(UsageError, match="is not TOML"):
        store("ui.theme", "nord")
    assert file.read_text() == "[[["
    file.write_text("[ui]\nthemes = 1\n")
    with pytest.raises(UsageError, match=r"config\.toml: there is no setting 'ui\.themes'"):
        store("ui.token_view", "tokens")
    unset("ui.themes")
    file.write_text("[ui]\ntheme = 1\n")
    store("ui.theme", "nord")
    unset("ui.theme")
    assert read() == Config()
    with pytest.raises(UsageError, match=r"'ui\.theme' is not set"):
        unset("ui.theme")


def test_a_link_to_a_file_elsewhere_stays_a_link(file: Path, tmp_path: Path):
    real = tmp_path / "dotfiles.toml"
    real.write_text(COMMENTED)
    file.symlink_to(real)
    store("ui.theme", "nord")
    assert file.is_symlink()
    assert "nord" in real.read_text()


def test_a_folder_that_cannot_be_written_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", "/dev/null/x")
    with pytest.raises(UsageError, match=r"cannot be written.*LOCALSPEC_CONFIG_DIR"):
        store("ui.theme", "nord")
    assert read() == Config()


@pytest.mark.parametrize(
    ("own", "given", "preset", "found"),
    [
        ({}, {}, None, {"temperature": 0.7, "top_p": 0.95}),
        ({"repetition_penalty": 1.1}, {}, None, {"temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.1}),
        ({"temperature": 0.0}, {}, None, {"temperature": 0.0}),
        ({"temperature": 0.6, "top_k": 20}, {}, None, {"temperature": 0.6, "top_k": 20}),
        ({}, {"temperature": 0.0}, None, {"temperature": 0.0, "top_p": 0.95}),
        ({}, {}, "precise", {"temperature": 0.0}),
        ({}, {}, "creative", {"temperature": 1.0, "min_p": 0.05}),
    ],
)
def test_a_model_that_names_no_temperature_gets_balanced_unless_a_preset_is_chosen(
    own: dict[str, float], given: dict[str, float], preset: str | None, found: dict[str, float]
):
    """Temperature 0 wins whoever says it: the model by do_sample false, a flag, or a preset."""
    config = Config()
    table = config.preset(preset) if preset else precedence.NO_PRESET
    asked = precedence.sampling(config, None, SamplingOptions(**given), table)
    last = precedence.defaults(SamplingOptions(**own), precedence.usual(config, preset))
    assert precedence.over_all(asked, last) == SamplingOptions(**found)


def test_balanced_may_be_the_users_own_and_its_system_prompt_comes_with_no_default():
    config = Config(presets={"balanced": PresetTable(temperature=0.5, system="Be odd.")})
    assert precedence.usual(config, None) == SamplingOptions(temperature=0.5)


@pytest.mark.parametrize(
    ("typed", "pairs"),
    [
        ("temperature=0.7  top_p=0.9", [("temperature", "0.7"), ("top_p", "0.9")]),
        ('stop="###" stop=a="b c"', [("stop", "###"), ("stop", "a=b c")]),
        (r'stop="\n\n" stop="say \"x\"\\n"', [("stop", "\n\n"), ("stop", 'say "x"\\n')]),
        (r"stop=\n don't=", [("stop", r"\n"), ("don't", "")]),
        ("hot", [("hot", None)]),
        ("", []),
    ],
)
def test_a_value_in_quotation_marks_may_have_blanks(typed: str, pairs: list[tuple[str, str | None]]):
    assert [assignments.assigned(word) for word in assignments.words(typed)] == pairs
    for _, value in pairs:
        assert assignments.plain(assignments.quoted(value or "")) == (value or "")


def test_a_quotation_mark_that_is_not_closed_is_a_usage_error():
    with pytest.raises(UsageError, match="not closed: stop="):
        assignments.words('stop="##')


@pytest.mark.parametrize("typed", ["0", "-1", "1.5", "many", "9" * 400, str((1 << 20) + 1)])
def test_a_limit_of_tokens_is_a_whole_number_or_none(typed: str):
    assert (precedence.token_limit("none"), precedence.token_limit("500")) == (None, 500)
    with pytest.raises(UsageError, match="max_tokens is a whole number from 1 to 1048576, or none"):
        precedence.token_limit(typed)
