"""The line at the top: which model, how it is drafted for, where it runs, whether it is. Knows nothing about chats."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from localspec.events import ModelCard, SpecCard
from localspec.sanitize import one_line


class Header(Widget):
    """Before the model is ready it carries the program's name alone. However long names are, the switch is in sight."""

    def __init__(self) -> None:
        super().__init__()
        self._names, self._switch = NAME, Content()

    def clear(self) -> None:
        """Another model is on its way."""
        self._names, self._switch = NAME, Content()
        self.refresh()

    def show(self, model: ModelCard, spec: SpecCard) -> None:
        self._names = Content.assemble(
            NAME,
            (f" · {one_line(model.name)}", "bold"),
            f" · {one_line(model.quant)}",
            (f" ⇐ {drafting(spec)}", "$text-secondary" if spec.kind != "off" else "$text-warning"),
            (f" · {one_line(model.device)}", "$foreground-muted"),
        )
        self._switch = Content.styled(f"  {switch(spec)}", "$foreground-muted")
        self.refresh()

    def render(self) -> Content:
        room = max(0, self.content_size.width - self._switch.cell_length)
        return self._names.truncate(room, ellipsis=True, pad=True) + self._switch


NAME = Content.styled("localspec", "bold $text-accent")


def drafting(spec: SpecCard) -> str:
    """Who drafts and how far, or why nobody does."""
    if spec.kind == "off":
        return one_line(f"no draft: {spec.reason}" if spec.reason else "no draft")
    length = {"on": f" k={spec.k}", "auto": " k=auto", "off": ""}[spec.mode]
    return one_line(f"{spec.name or spec.kind}{length}")


def switch(spec: SpecCard) -> str:
    return f"spec: {spec.switch}"
