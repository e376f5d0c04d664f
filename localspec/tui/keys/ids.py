"""Every id that the user can give a key to, and where each is heard. Reads the widgets that have them."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import BindingType

from localspec.tui.control.letters import LETTERS
from localspec.tui.keys.keymap import Bound, bound
from localspec.tui.keys.models_keys import DISK_KEYS, DOWNLOAD_KEYS, HUB_KEYS, SCREEN_KEYS
from localspec.tui.panels.chat_list import ChatList
from localspec.tui.panels.find import Count, FindBar, Words
from localspec.tui.panels.pills import Pills
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.screens.attachment import AttachedScreen
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.compare import CompareScreen
from localspec.tui.screens.dialog import Dialog
from localspec.tui.screens.drafters import DraftersScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.screens.link import LinkScreen
from localspec.tui.screens.overflow import Overflow
from localspec.tui.screens.sampling_form import SamplingForm
from localspec.tui.screens.theme_picker import ThemePicker
from localspec.tui.screens.tree import TREE_KEYS


def known_ids(everywhere: Iterable[BindingType]) -> dict[str, Bound]:
    """`everywhere`: the app's own."""
    return {
        **bound(everywhere),
        **bound(ChatScreen.BINDINGS, "chat"),
        **bound(Prompt.BINDINGS, "chat.prompt"),
        **bound(LETTERS, "chat.prompt", writes=False),
        **bound(Pills.BINDINGS, "chat.files", writes=False),
        **bound((*Words.BINDINGS, *FindBar.BINDINGS), "chat.find"),
        **bound(Count.BINDINGS, "chat.find.count", writes=False),
        **bound(Sidebar.BINDINGS, "chat.list"),
        **bound(ChatList.BINDINGS, "chat.list", writes=False),
        **bound(CompareScreen.BINDINGS, "compare", writes=False),
        **bound(SCREEN_KEYS, "models", writes=False),
        **bound(DISK_KEYS, "models.disk", writes=False),
        **bound(HUB_KEYS, "models.hub", writes=False),
        **bound(DOWNLOAD_KEYS, "models.downloads", writes=False),
        **bound(Dialog.BINDINGS, "asking", writes=False),
        **bound(SamplingForm.BINDINGS, "form"),
        **bound(Overflow.BINDINGS, "overflow", writes=False),
        **bound(DraftersScreen.BINDINGS, "drafters", writes=False),
        **bound(ThemePicker.BINDINGS, "themes", writes=False),
        **bound(LinkScreen.BINDINGS, "link", writes=False),
        **bound(TREE_KEYS, "tree", writes=False),
        **bound(HelpScreen.BINDINGS, "help", writes=False),
        **bound(AttachedScreen.BINDINGS, "attached", writes=False),
    }
