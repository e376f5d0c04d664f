"""In which colours tokens are shown, as variables of the theme: the settings name them, the token view uses them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from textual.color import Color, ColorParseError

from localspec.config.tables import ProvenanceTable

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
    """What is wrong with them, in sentences."""
    asked = msgspec.structs.asdict(table).items()
    return [
        f"ui.provenance.{name}: {said} is no colour of this theme."
        for name, said in asked
        if not colour(said, variables)
    ]


def colour(said: str, variables: Mapping[str, str]) -> str:
    """Without its opacity, which shows a token's place in the draft; nothing, if it is none."""
    value = (variables.get(said[1:], "") if said.startswith("$") else said).partition(" ")[0]
    try:
        Color.parse(value)
    except ColorParseError:
        return ""
    return value
