"""Starts the server that `localspec serve` asked for: settings and flags to a model, its defaults and its rules."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: click's parsed options

import msgspec

from localspec.cli.download.missing_model import pull_if_missing
from localspec.cli.io import print_note, print_text
from localspec.cli.options import given_load_options, given_sampling
from localspec.cli.progress import ProgressBar
from localspec.config import precedence
from localspec.config.reading import read
from localspec.config.tables import DURATION, SECONDS, Config, PresetTable
from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Loading, Notice, Ready
from localspec.core.requests import SamplingOptions
from localspec.core.weight_formats import AUTO
from localspec.loading.plan_request import USUAL_PARALLEL
from localspec.models.catalog import Catalog, Entry
from localspec.models.model_paths import local_path
from localspec.models.template_choice import template_of
from localspec.runtime.draft_choice import check
from localspec.runtime.worker import EngineProcess
from localspec.serve.app import Served
from localspec.serve.keys import VARIABLE, find_key
from localspec.serve.queue import WAITING
from localspec.serve.security import AccessRules, is_loopback, is_wildcard
from localspec.serve.server import BindAddress, Serving, rules_of, serve


def serve_model(model: str | None, given: dict[str, Any]) -> None:
    settings, address = read(), BindAddress(given["host"], given["port"])
    rules = rules_of(address, given["allow_host"], given["cors"], find_key(given["key_file"]))
    ttl = seconds_of(given["ttl"], settings)
    model = model or settings.default_model
    pull_if_missing(model, given["draft"])
    catalog = Catalog.load()
    entry = catalog.resolve(model)
    load = precedence.load_request(settings, catalog, model, {"parallel": "auto", **given_load_options(given)})
    sampling = given_sampling(given)
    for name, value in sampling.given.items():
        precedence.check_option(name, value, str(value))
    check(load, catalog)
    served = served_model(model, entry, settings, given["preset"], sampling)
    serving = Serving(lambda: EngineProcess(load), served, rules, ttl)
    with ProgressBar() as bar:
        lines = Announcement(served.name, load.weights.parallel, rules, address, given["key_file"])
        serve(serving, address, lines.show, shown_on(bar))


def served_model(model: str, entry: Entry, settings: Config, preset: str | None, sampling: SamplingOptions) -> Served:
    """The model under the name that clients are to use; the paths of files stay on this machine."""
    named = precedence.preset_name(settings, entry, preset)
    table = settings.preset(named) if named else precedence.NO_PRESET
    name = entry.name if local_path(model) else entry.key
    return Served(
        name,
        names=frozenset({model, entry.key, entry.name}),
        sampling=defaults_of(settings, entry, table, precedence.usual(settings, named), sampling),
        template=template_of(entry),
        max_tokens=settings.chat.max_tokens,
    )


def defaults_of(
    settings: Config, entry: Entry, preset: PresetTable, usual: SamplingOptions, flags: SamplingOptions
) -> Callable[[SamplingOptions, SamplingOptions], SamplingOptions]:
    """Completes a request's options: flags, preset, models.toml, config.toml, the model's own, balanced."""
    given = precedence.sampling(settings, entry, flags, preset)

    def complete(asked: SamplingOptions, own: SamplingOptions) -> SamplingOptions:
        return precedence.over_all(asked.over(given), precedence.defaults(own, usual))

    return complete


def seconds_of(typed: str | None, settings: Config) -> float | None:
    """Seconds without a request until the model is unloaded; None: never."""
    if typed is None:
        return settings.engine.idle_seconds
    if not re.fullmatch(DURATION, typed):
        raise UsageError(f"'{typed[:40]}' is not a duration.", hint="Use --ttl 30m, 2h, 90s, or off.")
    return None if typed == "off" else int(typed[:-1]) * SECONDS[typed[-1]]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The first lines: where it is, what it serves, who may ask, and a command that tries it."""

    name: str
    parallel: int | str
    rules: AccessRules
    listening: BindAddress
    key_file: Path | None

    def show(self, address: str) -> None:
        who = "only this machine" if is_loopback(self.listening.host) else "this machine and others"
        key = "clients need the key" if self.rules.key else "no key"
        waits = f"{at_once(self.parallel)}, {WAITING} may wait"
        print_text(f"{address}/v1   model {self.name}   {waits}   {who}; {key}")
        body = msgspec.json.encode({"model": self.name, "messages": [{"role": "user", "content": "Hello"}]}).decode()
        header = f' -H "Authorization: Bearer {key_in_shell(self.key_file)}"' if self.rules.key else ""
        kind = "-H 'Content-Type: application/json'"
        print_text(f"curl {address}/v1/chat/completions {kind}{header} -d {shlex.quote(body)}")
        sys.stdout.flush()
        if is_wildcard(self.listening.host) and not self.rules.hosts:
            print_note("Other machines need: --allow-host NAME, the name or address that they ask for.")


def at_once(parallel: int | str) -> str:
    """How many answers are written at once, in words; before the model is loaded, `auto` is a promise of no number."""
    if parallel == AUTO:
        return f"up to {USUAL_PARALLEL} answers at a time"
    return "one answer at a time" if parallel == 1 else f"{parallel} answers at a time"


def key_in_shell(file: Path | None) -> str:
    """The words by which a shell finds the key, inside double quotes."""
    return f"${VARIABLE}" if file is None else f"$(cat {shlex.quote(str(file.absolute()))})"


def shown_on(bar: ProgressBar) -> Callable[[AnyEvent], None]:
    def show(event: AnyEvent) -> None:
        match event:
            case Loading():
                bar.show(event)
            case Notice(level="warning") | Notice(code="unloaded" | "stopping"):
                bar.say(event)
            case Ready():
                bar.say(Notice("info", "loaded", loaded_words(event)))

    return show


def loaded_words(ready: Ready) -> str:
    card = ready.model
    each = f"{card.context_max:,} tokens of context" + (" each" if ready.parallel > 1 else "")
    return f"Loaded {card.name}: {card.quant} on {card.device}, {at_once(ready.parallel)}, {each}."
