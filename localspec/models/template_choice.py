"""The chat template that a model is given: the one that models.toml names for it, else its own, else a fallback.

Reads the model's small files. Knows no tokenizer.
"""

from __future__ import annotations

from localspec.core.requests import Template
from localspec.models.catalog import Entry
from localspec.models.checkpoint import has_chat_template
from localspec.models.named_templates import OWN, find


def template_name(entry: Entry) -> str:
    """The name or the file of a template that stands in models.toml and is used; OWN for the model's own, or none."""
    fallback = entry.fallback_template or OWN
    return entry.template or (fallback if fallback == OWN or not has_chat_template(entry.path) else OWN)


def template_of(entry: Entry) -> Template | None:
    """The template that is used in place of the model's own, if any."""
    return find(template_name(entry))
