"""config.toml as records. Every field does something; what is not written is built in. Knows no file."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal

import msgspec

from localspec.catalog import DraftLength, SamplingTable
from localspec.errors import UsageError

SCHEMA_VERSION = 1
SendKey = Literal["enter", "ctrl+j"]
Overflow = Literal["ask", "drop-oldest", "stop"]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section as written."""


class ChatTable(Table, frozen=True):
    """[chat]: which key sends, whether chats are kept, and what they are called."""

    send_key: SendKey = "enter"
    context_overflow: Overflow = "ask"
    history: bool = True
    title: Literal["first-line", "none"] = "first-line"


class UiTable(Table, frozen=True):
    """[ui]: how a chat looks when it begins."""

    theme: str = "tokyo-night"
    token_view: Literal["markdown", "tokens"] = "markdown"
    speed_panel: Literal["auto", "on", "off"] = "auto"


class EngineTable(Table, frozen=True):
    """[engine]: --device, --quant, --ctx and --threads."""

    device: Literal["auto", "cpu", "cuda", "offload"] = "auto"
    quant: Literal["auto", "int8", "int4", "nf4", "fp4", "fp32", "bf16"] = "auto"
    ctx: Annotated[int, msgspec.Meta(ge=2)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None


class SpecTable(Table, frozen=True):
    """[spec]: --draft and --k, where models.toml says nothing."""

    draft: str = "auto"
    k: DraftLength | Literal["auto", "heuristic"] = "auto"


class PresetTable(SamplingTable, frozen=True, forbid_unknown_fields=True):
    """[presets.NAME]: a way of sampling that has a name, and perhaps a system prompt."""

    system: str | None = None


PRESETS = {
    "precise": PresetTable(temperature=0.0),
    "balanced": PresetTable(temperature=0.7, top_p=0.95),
    "creative": PresetTable(temperature=1.0, min_p=0.05),
}


class Config(Table, frozen=True):
    """The whole file."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)] = SCHEMA_VERSION
    default_model: str = "guide"
    chat: ChatTable = ChatTable()
    ui: UiTable = UiTable()
    engine: EngineTable = EngineTable()
    spec: SpecTable = SpecTable()
    sampling: SamplingTable = SamplingTable()
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
                hint=f"There are: {', '.join(self.all_presets)}.",
            )
        return found


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "chat": ChatTable,
    "ui": UiTable,
    "engine": EngineTable,
    "spec": SpecTable,
    "sampling": SamplingTable,
}
KEYS = (
    "schema_version",
    "default_model",
    *(f"{section}.{name}" for section, table in SECTIONS.items() for name in table.__struct_fields__),
)


def variable(key: str) -> str | None:
    """The environment variable that comes before a key of config.toml, if there is one: its flag's."""
    section, _, name = key.partition(".")
    return f"LOCALSPEC_{name.upper()}" if section in ("engine", "spec", "sampling") or key == "ui.theme" else None
