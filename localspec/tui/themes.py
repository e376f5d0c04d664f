"""The available themes: Textual's own, and the user's files. A file that is wrong is reported and left out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from localspec.config.tables import Config, ProvenanceTable, UiTable
from localspec.core.errors import UsageError
from localspec.core.events import Notice
from localspec.core.plain_file import read_small
from localspec.core.strict_toml import shallow

STYLES = {"none", "bold", "dim", "italic", "underline", "strike", "reverse"}
DEFAULT = UiTable().theme
QUIET = "$foreground-muted"  # of what is read last


class ThemeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """themes/*.toml, in textual.theme.Theme's words."""

    name: str
    primary: str
    secondary: str | None = None
    warning: str | None = None
    error: str | None = None
    success: str | None = None
    accent: str | None = None
    foreground: str | None = None
    background: str | None = None
    surface: str | None = None
    panel: str | None = None
    boost: str | None = None
    dark: bool = True
    luminosity_spread: float = 0.15
    text_alpha: float = 0.95
    variables: dict[str, str] = {}


COLOURS = [name for name in ThemeFile.__struct_fields__ if name in Theme.__dataclass_fields__][1:12]


@dataclass(frozen=True, slots=True)
class ThemeChoice:
    """The theme to begin with, the user's own to choose from, and what was wrong with others."""

    theme: str = DEFAULT
    themes: tuple[Theme, ...] = ()
    notices: tuple[Notice, ...] = ()


def look(config: Config, asked: str | None, folder: Path) -> ThemeChoice:
    """`asked` must be there; a remembered one may have gone."""
    themes, notices = user_themes(folder)
    names = theme_names(themes)
    if asked:
        check_theme(asked, names)
    chosen = asked or config.ui.theme
    if chosen not in names:
        notices.append(Notice("warning", "theme", f"Theme '{chosen}' no longer exists.", "Choose another: /theme."))
        chosen = DEFAULT
    return ThemeChoice(chosen, tuple(themes), tuple(notices))


def check_theme(asked: str, names: Sequence[str]) -> None:
    if asked not in names:
        near = difflib.get_close_matches(asked, names, n=1)
        raise UsageError(
            f"There is no theme '{asked[:200]}'" + (f"; did you mean '{near[0]}'?" if near else "."),
            hint=f"Available: {', '.join(names)}.",
        )


def theme_names(themes: Sequence[Theme]) -> list[str]:
    """Textual's, then the user's own."""
    return [*BUILTIN_THEMES, *(theme.name for theme in themes)]


def user_themes(folder: Path) -> tuple[list[Theme], list[Notice]]:
    themes, notices = [], []
    for file in sorted(folder.glob("*.toml")):
        try:
            themes.append(read_theme(file))
        except (OSError, ValueError, RecursionError) as fault:
            reason = str((isinstance(fault, OSError) and fault.strerror) or fault).rstrip(".")
            notices.append(Notice("warning", "theme", f"The theme {file.name} is left out: {reason}."))
    return themes, notices


def read_theme(file: Path) -> Theme:
    """ValueError for an invalid colour: it would end the chat as soon as the theme is chosen."""
    written = msgspec.toml.decode(shallow(read_small(file).decode("utf-8")), type=ThemeFile)
    if not written.name.isprintable() or "," in written.name or not written.name.strip():
        raise ValueError("its name is empty or has a comma or a control character")
    for name in COLOURS:
        check_colour(name, getattr(written, name))
    for name, value in written.variables.items():
        check_variable(name, value)
    theme = Theme(**msgspec.structs.asdict(written))
    theme.to_color_system().generate()
    return theme


def check_colour(name: str, value: str | None) -> None:
    try:
        Color.parse(value or "black")
    except ColorParseError as fault:
        raise ValueError(f"{name} '{value}' is not a colour") from fault


def check_variable(name: str, value: str) -> None:
    """A text style, or a colour and how much of it."""
    if name.endswith("style"):
        if not set(value.split()) <= STYLES:
            raise ValueError(f"{name} '{value}' is not a text style")
        return
    colour, _, share = value.partition(" ")
    if share and not (share.endswith("%") and share[:-1].isdecimal()):
        raise ValueError(f"{name} '{value}' is not a colour")
    check_colour(name, colour)


BUILT_IN = ProvenanceTable()


def colours(table: ProvenanceTable, variables: Mapping[str, str]) -> dict[str, str]:
    """`token-draft` and its like; what the theme does not know is as built in."""
    built_in = msgspec.structs.asdict(BUILT_IN)
    asked = msgspec.structs.asdict(table)
    return {
        f"token-{source}": colour(asked[source], variables) or colour(built_in[source], variables) or "ansi_default"
        for source in built_in
    }


def unknown(table: ProvenanceTable, variables: Mapping[str, str]) -> list[str]:
    """The faults of the table's colours, in sentences."""
    asked = msgspec.structs.asdict(table).items()
    return [
        f"ui.provenance.{name}: {wanted} is not a colour of this theme."
        for name, wanted in asked
        if not colour(wanted, variables)
    ]


def colour(wanted: str, variables: Mapping[str, str]) -> str:
    """The colour without its opacity, which shows a token's position in the draft; "" if it is invalid."""
    value = (variables.get(wanted[1:], "") if wanted.startswith("$") else wanted).partition(" ")[0]
    try:
        Color.parse(value)
    except ColorParseError:
        return ""
    return value
