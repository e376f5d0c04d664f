"""Every theme that is offered can be read: text, muted text, borders and code blocks have the contrasts of WCAG 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from localspec.tui import contrast as module
from localspec.tui.app import ChatApp
from localspec.tui.contrast import contrast, legible, parsed
from localspec.tui.transcript.sources import ODDS, REJECTED, SOURCES
from localspec.tui.transcript.token_view import FAINTEST
from tests.support.scripted_engine import ScriptedEngine

COLOURED = [name for name in BUILTIN_THEMES if not name.startswith("ansi-")]
TUI = Path(module.__file__).parent
OF_CODE = ("text-success 80%", "text-success 90%", "text-accent", "text-warning", "text-error", "text-primary")
UNUSED = {"$text-muted", "$text-disabled", "$panel-lighten-1", "$panel-lighten-2"}


@pytest.fixture(scope="module")
def app() -> ChatApp:
    return ChatApp(ScriptedEngine)


def colours(app: ChatApp, theme: str) -> dict[str, str]:
    app.theme = theme
    return app.get_css_variables()


def worst(variables: dict[str, str], said: str, *grounds: str) -> float:
    """The contrast of a colour with that of these grounds which is nearest to it."""
    name, _, share = said.removeprefix("$").partition(" ")
    found = []
    for ground in (parsed(variables[each], None) for each in grounds):
        assert ground is not None
        colour = parsed(f"{variables[name]} {share}".strip(), ground)
        assert colour is not None, said
        found.append(contrast(colour, ground))
    return min(found)


def used(pattern: str) -> set[str]:
    """The text colours that our styles and widgets name."""
    return {
        name
        for file in (*TUI.rglob("*.tcss"), *TUI.rglob("*.py"))
        for name in re.findall(pattern, file.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("theme", COLOURED)
def test_text_is_read_on_every_ground(app: ChatApp, theme: str):
    variables = colours(app, theme)
    texts = used(r"\$text-(?:primary|secondary|accent|warning|error|success)\b") | {"$foreground"}
    assert len(texts) == 7
    tokens = {look.style.split()[-1] for look in SOURCES.values()} | {REJECTED.split()[-1], ODDS}
    for said in (*texts, *tokens, "$footer-key-foreground", "$markdown-h1-color", "$markdown-h4-color"):
        assert worst(variables, said, "background", "surface", "code") >= 4.5, said


@pytest.mark.parametrize("theme", COLOURED)
def test_what_is_quiet_is_read_too(app: ChatApp, theme: str):
    variables = colours(app, theme)
    assert worst(variables, "$foreground-muted", "background", "surface") >= 3
    assert worst(variables, f"$token-draft {FAINTEST}%", "background") >= 3
    for said in OF_CODE:
        assert worst(variables, said, "code") >= 3, said


@pytest.mark.parametrize("theme", COLOURED)
def test_borders_and_code_blocks_are_seen(app: ChatApp, theme: str):
    variables = colours(app, theme)
    for said in ("$frame", "$primary", "$accent", "$warning"):
        assert worst(variables, said, "background", "surface") >= 1.5, said
    assert worst(variables, "$code", "background") >= 1.1


def test_no_style_of_ours_uses_a_colour_that_themes_make_too_pale():
    assert not UNUSED & used(r"\$[a-z]+(?:-[a-z0-9]+)*")


def test_a_colour_that_is_read_already_stays():
    kept = {"background": "#000000", "surface": "#111111", "panel-lighten-2": "#888888", "text-error": "#FF8888"}
    found = legible(kept)
    assert (found["text-error"], found["frame"]) == ("#FF8888", "#888888")
    pale = legible({**kept, "background": "#FFFFFF", "surface": "#EEEEEE"})
    assert contrast(Color.parse(pale["text-error"]), Color.parse("#EEEEEE")) >= 4.5


def test_the_colours_of_the_terminal_are_left_to_it(app: ChatApp):
    variables = colours(app, "ansi-light")
    assert variables["text-error"].startswith("ansi_")
    assert (variables["frame"], variables["code"]) == ("ansi_bright_black", "transparent")


def test_contrasts_are_those_of_wcag():
    assert contrast(Color.parse("#000"), Color.parse("#fff")) == pytest.approx(21)
    assert contrast(Color.parse("#767676"), Color.parse("#fff")) == pytest.approx(4.54, abs=0.01)
