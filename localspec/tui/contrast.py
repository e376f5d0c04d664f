"""Colours of a theme that can be read: those of its texts, borders and code blocks, moved as little as it takes.

Knows CSS variables and contrasts as WCAG 2 defines them; no widget and no theme by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from textual.color import Color, ColorParseError

TEXT, MUTED, BORDER, BLOCK = 5.0, 3.5, 1.6, 1.12  # contrasts with every ground
TEXTS = (
    *(f"text-{tone}" for tone in ("primary", "secondary", "accent", "warning", "error", "success")),
    *(f"markdown-h{level}-color" for level in range(1, 6)),
    "foreground",
    "footer-key-foreground",
    "footer-description-foreground",
)
QUIET = ("foreground-muted", "markdown-h6-color")
BORDERS = ("primary", "accent", "warning")
STEPS = 20  # from a colour to black or white


def legible(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are not as they should be, and two of our own: `frame`, of borders, and `code`, the ground of
    code blocks. A terminal's own colours are left to it."""
    ground = parsed(variables["background"], None)
    if ground is None:
        return {"frame": "ansi_bright_black", "code": "transparent"}
    block = towards_pole(ground, [ground], BLOCK)
    grounds = [ground, parsed(variables["surface"], ground) or ground, block]
    wanted = [
        *product(TEXTS, [TEXT]),
        *product(QUIET, [MUTED]),
        *product(BORDERS, [BORDER]),
    ]
    colours = {name: (parsed(variables[name], ground), ratio) for name, ratio in wanted if name in variables}
    found = {name: towards_pole(one, grounds, ratio).hex for name, (one, ratio) in colours.items() if one is not None}
    frame = towards_pole(parsed(variables["panel-lighten-2"], ground) or ground, grounds, BORDER)
    return {**found, "frame": frame.hex, "code": block.hex}


def parsed(value: str, ground: Color | None) -> Color | None:
    """The colour as it is seen on its ground; None for one of the terminal's own, or none."""
    name, _, share = value.partition(" ")
    try:
        colour = Color.parse(name)
    except ColorParseError:
        return None
    if colour.ansi is not None:
        return None
    if share.rstrip("%").isdecimal():
        colour = colour.multiply_alpha(int(share.rstrip("%")) / 100)
    return colour if ground is None else ground.blend(colour.with_alpha(1), colour.a, 1)


def towards_pole(colour: Color, grounds: Iterable[Color], ratio: float) -> Color:
    """The nearest colour on the way to black or white, whichever is farther from the grounds, with such a contrast."""
    grounds = list(grounds)
    pole = max((Color(0, 0, 0), Color(255, 255, 255)), key=lambda pole: least(pole, grounds))
    ways = (colour.blend(pole, step / STEPS, 1) for step in range(STEPS + 1))
    return next((one for one in ways if least(one, grounds) >= ratio), pole)


def least(colour: Color, grounds: Iterable[Color]) -> float:
    return min(contrast(colour, ground) for ground in grounds)


def contrast(one: Color, other: Color) -> float:
    """The contrast of two colours, from 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
