"""The keys of the models screen and of the lists in its tabs, with their ids for config.toml."""

from __future__ import annotations

from textual.binding import Binding, BindingType

SCREEN_KEYS: list[BindingType] = [
    Binding("escape", "close", "Close", key_display="Esc", priority=True, id="models.close"),
    Binding("1", "open('disk')", "On disk", show=False, id="models.disk"),
    Binding("2", "open('hub')", "Hub", show=False, id="models.hub"),
    Binding("3", "open('downloads')", "Downloads", show=False, id="models.downloads"),
    Binding("left_square_bracket,ctrl+pageup", "turn(-1)", "Previous tab", show=False, id="models.prev"),
    Binding("right_square_bracket,ctrl+pagedown", "turn(1)", "Next tab", show=False, id="models.next"),
]
DISK_KEYS: list[BindingType] = [
    Binding("x", "want('delete')", "Delete", show=False, id="disk.delete"),
    Binding("f", "want('formats')", "Weight formats", show=False, id="disk.formats"),
    Binding("v", "want('verify')", "Verify files", show=False, id="disk.verify"),
    Binding("c", "want('clean')", "Delete unfinished parts and older versions", show=False, id="disk.clean"),
]
HUB_KEYS: list[BindingType] = [
    Binding("d", "want('drafter')", "Find a drafter", show=False, id="hub.drafter"),
    Binding("i", "want('licence')", "Licence", show=False, id="hub.licence"),
    Binding("o", "want('page')", "Open its page", show=False, id="hub.page"),
    Binding("s", "want('sort')", "Sort", show=False, id="hub.sort"),
    Binding("f", "want('fits')", "Only what fits", show=False, id="hub.fits"),
    Binding("g", "want('gated')", "Without gated ones", show=False, id="hub.gated"),
    Binding("q", "want('gguf')", "GGUF files", show=False, id="hub.gguf"),
    Binding("slash", "want('search')", "Search", show=False, id="hub.search"),
]
DOWNLOAD_KEYS: list[BindingType] = [
    Binding("p", "want('pause')", "Pause or continue", show=False, id="downloads.pause"),
    Binding("r", "want('retry')", "Try again now", show=False, id="downloads.retry"),
    Binding("x", "want('drop')", "Drop", show=False, id="downloads.drop"),
    Binding("K", "want('up')", "Earlier", show=False, id="downloads.up"),
    Binding("J", "want('down')", "Later", show=False, id="downloads.down"),
]
