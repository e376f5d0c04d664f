"""Every id that the user can give a key to, and where each is heard. Reads the widgets that have them."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import BindingType

from localspec.tui.branches import LETTERS
from localspec.tui.chat import ChatScreen
from localspec.tui.chat_list import ChatList
from localspec.tui.compare import CompareScreen
from localspec.tui.find import FindBar
from localspec.tui.help_screen import HelpScreen
from localspec.tui.keymap import Bound, bound
from localspec.tui.link import LinkScreen
from localspec.tui.overflow import Overflow
from localspec.tui.picker import Picker
from localspec.tui.prompt import Prompt
from localspec.tui.sampling_form import SamplingForm
from localspec.tui.sidebar import Sidebar
from localspec.tui.words import Words


def known_ids(everywhere: Iterable[BindingType]) -> dict[str, Bound]:
    """`everywhere`: the app's own."""
    return {
        **bound(everywhere),
        **bound(ChatScreen.BINDINGS, "chat"),
        **bound(Prompt.BINDINGS, "chat.prompt"),
        **bound(LETTERS, "chat.prompt", writes=False),
        **bound((*Words.BINDINGS, *FindBar.BINDINGS), "chat.find"),
        **bound(Sidebar.BINDINGS, "chat.list"),
        **bound(ChatList.BINDINGS, "chat.list", writes=False),
        **bound(CompareScreen.BINDINGS, "compare", writes=False),
        **bound(Picker.BINDINGS, "picker", writes=False),
        **bound(SamplingForm.BINDINGS, "form"),
        **bound(Overflow.BINDINGS, "overflow", writes=False),
        **bound(LinkScreen.BINDINGS, "link", writes=False),
        **bound(HelpScreen.BINDINGS, "help", writes=False),
    }
