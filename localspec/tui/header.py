"""The line at the top: which model, how it is drafted for, where it runs. Knows nothing about chats."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.events import ModelCard, SpecCard
from localspec.sanitize import one_line


class Header(Static):
    """Before the model is ready it carries the program's name alone."""

    def __init__(self) -> None:
        super().__init__(NAME, markup=False)

    def clear(self) -> None:
        """Another model is on its way."""
        self.update(NAME)

    def show(self, model: ModelCard, spec: SpecCard) -> None:
        self.update(
            Content.assemble(
                NAME,
                (f" · {one_line(model.name)}", "bold"),
                f" · {one_line(model.quant)}",
                (f" ⇐ {drafting(spec)}", "$text-secondary" if spec.kind != "off" else "$text-warning"),
                (f" · {one_line(model.device)}", "$foreground-muted"),
            )
        )


NAME = Content.styled("localspec", "bold $text-accent")


def drafting(spec: SpecCard) -> str:
    """Who drafts and how far, or why nobody does."""
    if spec.kind == "off":
        return one_line(f"no draft: {spec.reason}" if spec.reason else "no draft")
    return one_line(f"{spec.name or spec.kind} k={spec.k}")
