"""A chat's model and settings: which model answers, its drafter, how tokens are sampled.

Changed by commands, the form and the picker; read with every question. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal  # Any: what was given on the command line, by name

import msgspec

from localspec.config import precedence
from localspec.config.assignments import assigned, quoted, words
from localspec.config.precedence import SamplingSource
from localspec.config.tables import Config, PresetTable
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Notice
from localspec.core.requests import RANDOM_SEED, LoadRequest, SamplingOptions, Template
from localspec.history import OpenChat
from localspec.history.text.lists import short_name
from localspec.models.catalog import Catalog, Entry
from localspec.models.template_choice import template_of
from localspec.runtime.draft_choice import check
from localspec.tui.chat import chosen_formats

if TYPE_CHECKING:
    from localspec.runtime.precheck import CheckedLoad

HOW = "For example: /set temperature=0.7 top_p=0.9"
UNKNOWN = "the model's"  # until it is loaded
OFF = "off"
NO_SEED = "another each time"
NO_LIMIT, NO_STOP = "none: up to the end of the context", "none"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model to load, as it was `checked`; `name` is what the history calls it. `preset` and `template` are its own.
    `quant`: the weight format that the user chose for it; "" for none."""

    load: LoadRequest
    entry: Entry | None
    name: str
    preset: str | None = None
    template: Template | None = None
    quant: str = ""
    checked: CheckedLoad | None = None

    @property
    def title(self) -> str:
        """The model's name, for the user."""
        return self.entry.name if self.entry is not None else short_name(self.name)

    @property
    def context(self) -> int:
        """Tokens that it would hold; 0 where it was not checked."""
        return self.checked.plan.context if self.checked is not None else 0


@dataclass
class Tuning:
    """`chosen` comes before the preset, which comes before what models.toml and config.toml say of this model."""

    config: Config = field(default_factory=Config)
    catalog: Catalog = field(default_factory=lambda: Catalog({}))
    load: LoadRequest = field(default_factory=LoadRequest)
    entry: Entry | None = None
    name: str = "guide"
    load_flags: Mapping[str, Any] = field(default_factory=dict)  # by flags, for whichever model
    flags: SamplingOptions = field(default_factory=SamplingOptions)  # by flags, for whichever chat
    chosen: SamplingOptions = field(default_factory=SamplingOptions)
    chosen_limit: int | Literal["none"] | None = None
    stop: tuple[str, ...] = ()  # texts that end an answer
    preset: str | None = None
    template: Template | None = None  # None: the model's own
    own: SamplingOptions | None = None  # the model's, once it is loaded
    formats: dict[str, str] = field(default_factory=dict)  # weight formats that the user chose, by the model's name
    first: LoadRequest = field(default_factory=LoadRequest)  # as the program was started
    server: str = ""  # that answers, as the user calls it; "" for a model on this machine

    @property
    def sampling(self) -> SamplingOptions:
        """The sampling options of the next question."""
        return precedence.over_all(self.chosen, self.beneath(self.preset))

    @property
    def asked(self) -> SamplingOptions:
        """The options that were asked for somewhere, without defaults: a comparison is greedy where none was."""
        return precedence.sampling(self.config, self.entry, self.chosen, self.preset_table)

    @property
    def max_tokens(self) -> int | None:
        """How many tokens the next answer has at most."""
        return None if self.chosen_limit == "none" else self.chosen_limit or self.config.chat.max_tokens

    @property
    def preset_table(self) -> PresetTable:
        return self.config.preset(self.preset) if self.preset else precedence.NO_PRESET

    @property
    def params(self) -> dict[str, str | int | float | bool | None]:
        """The preset, template, drafter (where one was asked for), sampling options and limits that the history keeps
        with an answer, and which of them the user set, as they are typed."""
        named = {"preset": self.preset, "template": self.template.name if self.template else None, "set": self.typed}
        if self.load.draft != "auto":
            named["draft"] = str(self.load.draft)
        limits = {"max_tokens": self.max_tokens, "stop": self.spelled_stop}
        found = {name: value for name, value in (named | limits).items() if value}
        return {**found, **self.sampling.given}

    @property
    def words(self) -> str:
        """The preset, the sampling options and the limits in a line; a default temperature with its source."""
        named = [f"preset {self.preset}"] if self.preset else []
        given = [f"{name} {worded(name, value)}{self.source(name)}" for name, value in self.sampling.given.items()]
        limit = [f"max_tokens {self.max_tokens}"] if self.max_tokens else []
        stop = [f"stop {self.spelled_stop}"] if self.stop else []
        return " · ".join([*named, *given, *limit, *stop]) or "the model's defaults"

    @property
    def typed(self) -> str:
        """What the user set, as it is typed after /set."""
        pairs = [f"{name}={value}" for name, value in self.chosen.given.items()]
        limit = [f"max_tokens={self.chosen_limit}"] if self.chosen_limit else []
        return " ".join([*pairs, *limit, *(f"stop={quoted(text)}" for text in self.stop)])

    @property
    def spelled_stop(self) -> str:
        """The stop texts as they are typed."""
        return " ".join(map(quoted, self.stop))

    def source(self, name: str) -> str:
        """The source of the temperature in words, if the user did not choose it."""
        if name != "temperature" or name in self.chosen.given:
            return ""
        source = self.layer(name, self.preset).source
        return "" if source == precedence.PRESET else f" ({source})"

    def beneath(self, preset: str | None) -> tuple[SamplingSource, ...]:
        """The sources of options that the user did not set, with this preset; the first with a value holds."""
        table = self.config.preset(preset) if preset else precedence.NO_PRESET
        found = precedence.layers(self.config, self.entry, table)
        last = precedence.defaults(self.own, precedence.usual(self.config, preset)) if self.own is not None else ()
        return (*found, *last)

    def layer(self, name: str, preset: str | None) -> SamplingSource:
        """The layer that an option comes from; one without a source where it has no value."""
        having = (layer for layer in self.beneath(preset) if name in layer.options.given)
        return next(having, SamplingSource("", SamplingOptions()))

    def unset_words(self, name: str, preset: str | None) -> str:
        """The values that apply while the user sets nothing, and where they come from."""
        layer = self.layer(name, preset)
        if layer.source:
            value = layer.options.given[name]
            greedy = "greedy · " if name == "temperature" and not value else ""
            return f"{worded(name, value)} · {greedy}{layer.source}"
        match name:
            case "seed":
                return NO_SEED
            case "max_tokens":
                limit = self.config.chat.max_tokens
                return f"{limit} · config.toml" if limit else NO_LIMIT
            case "stop":
                return NO_STOP
        return UNKNOWN if self.own is None else OFF

    def is_server(self, name: str) -> bool:
        """Whether the history's name of a model is a server's."""
        return name in self.catalog.remotes or name.startswith(("http://", "https://"))

    def use_preset(self, name: str | None) -> None:
        """Uses a preset (None: none) from now on, and forgets options that were set before."""
        if name:
            self.config.preset(name)
        self.preset, self.chosen = name or None, SamplingOptions()

    def begin_preset(self, asked: str | None, past: str | None) -> tuple[Notice, ...]:
        """The preset that was asked for, else the one that a chat goes on with, if there still is one, else the
        model's own."""
        is_gone = bool(past and not asked and past not in self.config.all_presets)
        self.preset = precedence.preset_name(self.config, self.entry, asked or (None if is_gone else past))
        gone = Notice("warning", "preset", f"The preset of this chat, '{past}', no longer exists.")
        return (gone,) if is_gone else ()

    def begin_chat(self, asked: str | None, past: OpenChat | None) -> tuple[Notice, ...]:
        """The preset as above, and what was set for the chat's last answer, but where another preset was asked for."""
        if past is not None and not asked:
            self._begin_options(past)
        return self.begin_preset(asked, past.chat.preset if past else None)

    def _begin_options(self, past: OpenChat) -> None:
        """What was set in another chat does not hold in this one. Flags do."""
        self.chosen, self.chosen_limit, self.stop = SamplingOptions(), None, ()
        with suppress(UsageError):  # another version's
            self.set(str(last_params(past).get("set", "")))
        self.chosen = self.flags.over(self.chosen)

    def begin_draft(self, past: OpenChat) -> None:
        """The drafter that the chat's last answer was to have, unless a flag names another or it can no longer be."""
        draft = last_params(past).get("draft")
        if isinstance(draft, str) and "draft" not in self.load_flags:
            asked = msgspec.structs.replace(self.load, draft=draft)
            with suppress(LocalspecError):
                check(asked, self.catalog)
                self.load = self.first = asked

    def set(self, typed: str) -> None:
        """`temperature=0.7 stop="###"`; an option with `none` or nothing after `=` is no longer set, and `stop` may be
        given more than once. `seed=random` and `seed=none`: another each time."""
        pairs = []
        for word in words(typed):
            name, value = assigned(word)
            if value is None:
                raise UsageError(f"'{word[:40]}' needs a value.", hint=HOW)
            pairs.append((name, value))
        self.apply(pairs)

    def apply(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Sets all, or raises UsageError and sets nothing. The stop texts replace those there were."""
        chosen, limit, stops = self.chosen.given, self.chosen_limit, []
        for name, value in pairs:
            if name == "stop":
                stops.append("" if value == "none" else value)
            elif name == "max_tokens":
                limit = (precedence.token_limit(value) or "none") if value else None
            else:
                chosen[name] = precedence.chosen(name, value)
        self.chosen, self.chosen_limit = SamplingOptions(**chosen), limit
        if stops:
            self.stop = tuple(dict.fromkeys(filter(None, stops)))

    def choice(
        self,
        model: str,
        draft: str | None = None,
        quant: str = "",
        *,
        held_bytes: int = 0,
        gpu_bytes: int | None = None,
    ) -> ModelChoice:
        """Checks another model as a choice; the draft is for it alone, and so is the format, until another is chosen.
        `held_bytes` and `gpu_bytes` as in `precheck`. Reads the disk."""
        from localspec.runtime.precheck import precheck  # imports psutil

        model = self.catalog.plain_name(model)
        name = self.catalog.lasting_name(model)
        quant = quant or self.formats.get(name, "")
        load = self.request(model, draft, quant)
        checked = precheck(load, held_bytes=held_bytes, gpu_bytes=gpu_bytes)
        entry = precedence.entry_of(self.catalog, model)
        preset = precedence.preset_name(self.config, entry, None)
        return ModelChoice(load, entry, name, preset, own_template(entry), quant, checked)

    def request(self, model: str, draft: str | None = None, quant: str = "") -> LoadRequest:
        """How this model would be loaded: by the flags, but that a draft is for the model that it was named with, and a
        draft's format for that draft."""
        dropped = {"draft"} if self.is_first_draft(model, draft) else {"draft", "draft_quant"}
        flags = {name: value for name, value in self.load_flags.items() if name not in dropped}
        flags |= {key: value for key, value in (("draft", draft), ("quant", quant)) if value}
        return precedence.load_request(self.config, self.catalog, model, flags)

    def is_first_draft(self, model: str, draft: str | None) -> bool:
        """Whether this is the draft of the program's start; one that no flag named is the first model's."""
        return draft == str(self.first.draft) and ("draft" in self.load_flags or model == self.first.model)

    @property
    def now(self) -> ModelChoice:
        """What is loaded, as a choice that can be taken again."""
        return ModelChoice(
            self.load, self.entry, self.name, self.preset, self.template, self.formats.get(self.name, "")
        )

    def take(self, choice: ModelChoice) -> None:
        """Takes a choice: another model comes with its own template, and with its own preset if it has one."""
        self.own = None
        if choice.name != self.name:
            self.template = choice.template
            self.preset = choice.preset or self.preset
        self.load, self.entry, self.name = choice.load, choice.entry, choice.name
        self.formats[choice.name] = choice.quant


def begin(config: Config, model: str, *, load: Mapping[str, Any], sampling: SamplingOptions) -> Tuning:
    """Makes the tuning of a chat with this model; `load` and `sampling` are from flags or the environment. A weight
    format that was chosen in a chat before holds where no flag names one."""
    for name, value in sampling.given.items():
        precedence.check_option(name, value, str(value))
    catalog = Catalog.load()
    model = catalog.plain_name(model)
    formats, lasting = chosen_formats.read(), catalog.lasting_name(model)
    if "quant" in load:
        formats.pop(lasting, None)
    chosen = {"quant": formats[lasting]} if lasting in formats else {}
    request = precedence.load_request(config, catalog, model, {**load, **chosen})
    entry = precedence.entry_of(catalog, model)
    name = lasting if entry else model
    return Tuning(
        config,
        catalog,
        request,
        entry,
        name,
        load,
        sampling,
        sampling,
        template=own_template(entry),
        formats=formats,
        first=request,
    )


def last_params(past: OpenChat) -> Mapping[str, Any]:
    """What the history keeps with the chat's last answer; nothing where there is none."""
    made = next((utterance.generation for utterance in reversed(past.branch) if utterance.generation), None)
    return made.params if made else {}


def worded(name: str, value: float) -> str:
    """An option's value as the user reads it."""
    if name == "seed":
        return NO_SEED if value == RANDOM_SEED else str(value)
    return f"{value:g}"


def own_template(entry: Entry | None) -> Template | None:
    """The one that models.toml names for it. Reads the disk."""
    return template_of(entry) if entry is not None else None
