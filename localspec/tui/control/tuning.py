"""A chat's model and settings: which model answers, its drafter, how tokens are sampled.

Changed by commands, the form and the picker; read with every question. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any  # Any: what was said on the command line, by name

from localspec.config import precedence
from localspec.config.tables import Config, PresetTable
from localspec.core.errors import UsageError
from localspec.core.events import Notice
from localspec.core.requests import LoadRequest, SamplingOptions, Template
from localspec.models import named_templates
from localspec.models.catalog import Catalog, Entry
from localspec.runtime.draft_choice import check, check_files

HOW = "For example: /set temperature=0.7 top_p=0.9"


@dataclass(frozen=True, slots=True)
class Choice:
    """A model to load, as it was checked; `name` is what the history calls it. `preset` and `template` are its own."""

    load: LoadRequest
    entry: Entry | None
    name: str
    preset: str | None = None
    template: Template | None = None


@dataclass
class Tuning:
    """`said` comes before the preset, which comes before what models.toml and config.toml say of this model."""

    config: Config = field(default_factory=Config)
    catalog: Catalog = field(default_factory=lambda: Catalog({}))
    load: LoadRequest = field(default_factory=LoadRequest)
    entry: Entry | None = None
    name: str = "guide"
    load_said: Mapping[str, Any] = field(default_factory=dict)  # by flags, for whichever model
    said: SamplingOptions = field(default_factory=SamplingOptions)
    preset: str | None = None
    template: Template | None = None  # None: the model's own

    @property
    def sampling(self) -> SamplingOptions:
        """The sampling options of the next question."""
        return precedence.sampling(self.config, self.entry, self.said, self.preset_table)

    @property
    def preset_table(self) -> PresetTable:
        return self.config.preset(self.preset) if self.preset else precedence.NO_PRESET

    @property
    def params(self) -> dict[str, str | int | float | bool | None]:
        """The preset, template and sampling options that the history keeps with an answer."""
        named = {"preset": self.preset, "template": self.template.name if self.template else None}
        return {**{name: value for name, value in named.items() if value}, **self.sampling.given}

    @property
    def words(self) -> str:
        """The preset and the sampling options in a line."""
        given = [f"{name} {value:g}" for name, value in self.sampling.given.items()]
        return " · ".join([*([f"preset {self.preset}"] if self.preset else []), *given]) or "the model's defaults"

    def beneath(self, preset: str | None) -> SamplingOptions:
        """The sampling options with this preset, without those the user set."""
        table = self.config.preset(preset) if preset else precedence.NO_PRESET
        return precedence.sampling(self.config, self.entry, SamplingOptions(), table)

    def use_preset(self, name: str | None) -> None:
        """Uses a preset (None: none) from now on, and forgets options that were set before."""
        if name:
            self.config.preset(name)
        self.preset, self.said = name or None, SamplingOptions()

    def begin_preset(self, asked: str | None, past: str | None) -> tuple[Notice, ...]:
        """The preset that was asked for, else the one that a chat goes on with, if there still is one, else the
        model's own."""
        is_gone = bool(past and not asked and past not in self.config.all_presets)
        self.preset = precedence.preset_name(self.config, self.entry, asked or (None if is_gone else past))
        gone = Notice("warning", "preset", f"The preset of this chat, '{past}', no longer exists.")
        return (gone,) if is_gone else ()

    def set(self, typed: str) -> None:
        """`temperature=0.7 top_p=0.9`; an option with nothing behind `=` is no longer said."""
        said = self.said.given
        for word in typed.split():
            name, equals, value = word.partition("=")
            if not equals:
                raise UsageError(f"'{word[:40]}' needs a value.", hint=HOW)
            said[name] = precedence.option(name, value or "1")
            if not value:
                del said[name]
        self.said = SamplingOptions(**said)

    def choice(self, model: str, draft: str | None = None) -> Choice:
        """Checks another model as a choice; the draft is for it alone. Reads the disk."""
        said = {name: value for name, value in self.load_said.items() if name != "draft"}
        load = precedence.load_request(self.config, self.catalog, model, said | ({"draft": draft} if draft else {}))
        check(load)
        check_files(load)
        entry = precedence.entry_of(self.catalog, model)
        preset = precedence.preset_name(self.config, entry, None)
        return Choice(load, entry, self.catalog.lasting_name(model), preset, own_template(entry))

    def take(self, choice: Choice) -> None:
        """Takes a choice: another model comes with its own template, and with its own preset if it has one."""
        if choice.name != self.name:
            self.template = choice.template
            self.preset = choice.preset or self.preset
        self.load, self.entry, self.name = choice.load, choice.entry, choice.name


def begin(config: Config, model: str, *, load: Mapping[str, Any], sampling: SamplingOptions) -> Tuning:
    """Makes the tuning of a chat with this model; `load` and `sampling` are from flags or the environment."""
    for name, value in sampling.given.items():
        precedence.check_option(name, value, str(value))
    catalog = Catalog.load()
    request = precedence.load_request(config, catalog, model, load)
    entry = precedence.entry_of(catalog, model)
    name = catalog.lasting_name(model) if entry else model
    return Tuning(config, catalog, request, entry, name, load, sampling, template=own_template(entry))


def own_template(entry: Entry | None) -> Template | None:
    """The one that models.toml names for it. Reads the disk."""
    return named_templates.find(entry.template or named_templates.OWN) if entry is not None else None
