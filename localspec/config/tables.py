"""config.toml as records. A field that the file does not set has its built-in value. Knows no file."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal

import msgspec

from localspec.core.errors import UsageError
from localspec.core.events import Mode
from localspec.core.requests import MOST_TOKENS, PROBE_EVERY, ProbeEvery, SamplingOptions, WrittenLength
from localspec.core.weight_formats import ListedOrAuto
from localspec.models.catalog_file import Context

SCHEMA_VERSION = 1
SendKey = Literal["enter", "ctrl+j"]
OverflowPolicy = Literal["ask", "drop-oldest", "stop"]
DEVICE = r"^(auto|cpu|cuda(:[0-9]{1,2})?|offload)$"
COLOUR, DURATION = r"^(\$[a-z][a-z0-9-]*|#[0-9a-fA-F]{6})$", r"^(off|[1-9][0-9]{0,5}[smh])$"
PATTERNS = {
    COLOUR: "#rrggbb or a variable of the theme, such as $accent",
    DURATION: "a time such as 30m, or off",
    DEVICE: "auto, cpu, cuda, cuda:N or offload",
}
SECONDS = {"s": 1, "m": 60, "h": 3600}

Colour = Annotated[str, msgspec.Meta(pattern=COLOUR)]
Duration = Annotated[str, msgspec.Meta(pattern=DURATION)]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section as written."""


class ChatTable(Table, frozen=True):
    """[chat]: which key sends, whether chats are kept and what they are called, and how many tokens an answer has at
    most."""

    send_key: SendKey = "enter"
    context_overflow: OverflowPolicy = "ask"
    history: bool = True
    title: Literal["first-line", "none"] = "first-line"
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] | None = None


class ProvenanceTable(Table, frozen=True):
    """[ui.provenance]: in which colour a token is shown, by who wrote it. Its other marks stay."""

    draft: Colour = "$text-success"
    bonus: Colour = "$text-accent"
    fix: Colour = "$text-warning"
    rejected: Colour = "$text-error"
    edited: Colour = "$text-primary"


class UiTable(Table, frozen=True):
    """[ui]: how a chat looks when it begins. An answer is drawn `max_fps` times a second at most; the last
    `window_messages` of a chat are mounted when it is opened."""

    theme: str = "tokyo-night"
    token_view: Literal["markdown", "tokens"] = "markdown"
    speed_panel: Literal["auto", "on", "off"] = "auto"
    max_fps: Annotated[int, msgspec.Meta(ge=1, le=20)] = 20
    window_messages: Annotated[int, msgspec.Meta(ge=10, le=500)] = 20
    animations: Literal["none", "basic", "full"] = "basic"
    provenance: ProvenanceTable = ProvenanceTable()


class EngineTable(Table, frozen=True):
    """[engine]: --device, --quant, --save-quantized, --ctx and --threads. A chat in which nothing happens for
    `idle_unload` frees the memory."""

    device: Annotated[str, msgspec.Meta(pattern=DEVICE)] = "auto"
    quant: ListedOrAuto = "auto"
    save_quantized: bool = False
    ctx: Context | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    idle_unload: Duration = "30m"

    @property
    def idle_seconds(self) -> int | None:
        """Seconds without a request until the model is unloaded; None: never."""
        return None if self.idle_unload == "off" else int(self.idle_unload[:-1]) * SECONDS[self.idle_unload[-1]]


class SpecTable(Table, frozen=True):
    """[spec]: --draft and --k, where models.toml says nothing. `mode` is what F5 changes: on, auto or off.
    `probe_every`: after so many rounds one without a draft, from which the speed-up is measured; then ever fewer."""

    draft: str = "auto"
    k: WrittenLength = "auto"
    mode: Mode = "auto"
    probe_every: ProbeEvery = PROBE_EVERY


class LookupTable(Table, frozen=True):
    """[lookup]: what a look-up may copy from beside this chat. `kept_chats`: answers in other saved chats."""

    kept_chats: bool = False


class PresetTable(SamplingOptions, frozen=True, forbid_unknown_fields=True):
    """[presets.NAME]: a sampling preset, and perhaps its system prompt."""

    system: str | None = None


PRESETS = {
    "precise": PresetTable(temperature=0.0),
    "balanced": PresetTable(temperature=0.7, top_p=0.95),
    "creative": PresetTable(temperature=1.0, min_p=0.05),
}
USUAL = "balanced"  # the preset of a model that names no temperature


class Config(Table, frozen=True):
    """The whole file."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)] = SCHEMA_VERSION
    default_model: str = "guide"
    chat: ChatTable = ChatTable()
    ui: UiTable = UiTable()
    engine: EngineTable = EngineTable()
    spec: SpecTable = SpecTable()
    lookup: LookupTable = LookupTable()
    sampling: SamplingOptions = SamplingOptions()
    keymap: dict[str, str] = {}
    presets: dict[str, PresetTable] = {}

    @property
    def all_presets(self) -> dict[str, PresetTable]:
        """The built-in ones and the user's own, which may replace them."""
        return PRESETS | self.presets

    def preset(self, name: str) -> PresetTable:
        found = self.all_presets.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.all_presets, n=1)
            raise UsageError(
                f"There is no preset '{name[:200]}'" + (f"; did you mean '{near[0]}'?" if near else "."),
                hint=f"Available: {', '.join(self.all_presets)}.",
            )
        return found


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "chat": ChatTable,
    "ui": UiTable,
    "ui.provenance": ProvenanceTable,
    "engine": EngineTable,
    "spec": SpecTable,
    "lookup": LookupTable,
    "sampling": SamplingOptions,
}
KEYS = (
    "schema_version",
    "default_model",
    *(
        key
        for section, table in SECTIONS.items()
        for name in table.__struct_fields__
        if (key := f"{section}.{name}") not in SECTIONS
    ),
)
WITHOUT_FLAG = {"engine.idle_unload", "spec.mode", "spec.probe_every"}


def variable(key: str) -> str | None:
    """The environment variable that comes before a key of config.toml, if there is one: its flag's."""
    section, _, name = key.partition(".")
    if key in WITHOUT_FLAG:
        return None
    return f"LOCALSPEC_{name.upper()}" if section in ("engine", "spec", "sampling") or key == "ui.theme" else None
