"""A screen as text: what every cell says and in which style, kept beside the tests. Anew: `make snapshots`."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from string import ascii_letters, digits

from textual.app import App

FOLDER = Path(__file__).parents[1] / "snapshots"
NAMES = ascii_letters + digits + "".join(map(chr, range(0xC0, 0x180)))


def picture(app: App[None]) -> str:
    """The lines, then for each the styles of its cells (a12b3: twelve in style a, three in b), then the styles."""
    names: dict[str, str] = {}
    texts, styles = [], []
    for strip in app.screen._compositor.render_strips():
        texts.append(strip.text.rstrip())
        cells = [str(segment.style).partition(" link ")[0] for segment in strip for _ in range(segment.cell_length)]
        runs = [(names.setdefault(style, NAMES[len(names)]), len([*run])) for style, run in groupby(cells)]
        styles.append("".join(f"{name}{length}" for name, length in runs))
    legend = [f"{name} = {style}" for style, name in names.items()]
    return "\n".join([*texts, "", *styles, "", *legend]) + "\n"


def check(app: App[None], name: str) -> None:
    """The screen is the one that is kept under this name."""
    file, now = FOLDER / f"{name}.txt", picture(app)
    if os.environ.get("SNAPSHOTS") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(now, encoding="utf-8")
    assert file.exists(), f"there is no picture of {name}: make snapshots"
    kept = file.read_text(encoding="utf-8")
    assert now == kept, f"{name} looks different; if that is meant: make snapshots"
