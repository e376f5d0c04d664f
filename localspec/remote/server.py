"""A server as it was found: of which kind, with which models, how much context, and what drafts. Asks it, once each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any  # Any: JSON from a stranger

import msgspec

from localspec.core.errors import AccessDenied, LocalspecError, RemoteError, UsageError
from localspec.core.events import SpecCard
from localspec.core.sanitize import one_line
from localspec.remote import faults
from localspec.remote.address import parse
from localspec.remote.exchange import DEADLINES, HttpExchange, ServerAccess, ServerTimeouts
from localspec.remote.figures import part
from localspec.remote.kinds import KINDS, Kind
from localspec.remote.totals import MOST_TEXT, ServerTotals, read

Keep = Callable[[HttpExchange], object]
MOST_ANSWER = 8 << 20
MOST_MODELS = 2000
LONGEST_NAME = 200
MOST_CONTEXT = 1 << 30


@dataclass(frozen=True, slots=True)
class Remote:
    """A server as it is named: [remotes.NAME] of models.toml, or an address. `model` "": the server's first; `kind` "":
    to be found out; `key_env` names the environment variable with its key."""

    url: str
    name: str = ""
    model: str = ""
    key_env: str = ""
    kind: str = ""

    @property
    def title(self) -> str:
        return self.name or parse(self.url).url

    @property
    def access(self) -> ServerAccess:
        """Its address and key; UsageError where the key is not in the environment."""
        if self.kind and self.kind not in KINDS:
            raise UsageError(
                f"There is no kind of server '{one_line(self.kind)[:40]}'.", hint=f"Kinds: {', '.join(KINDS)}."
            )
        key = os.environ.get(self.key_env, "") if self.key_env else ""
        if self.key_env and not key:
            raise UsageError(
                f"The key of {self.title} is not in the environment: {self.key_env} is not set.",
                hint=f"Set it: export {self.key_env}=KEY",
            )
        if not all("!" <= letter <= "~" for letter in key):
            raise UsageError(
                f"The value of {self.key_env} cannot be a key.", hint="A key is one word, without line breaks."
            )
        return ServerAccess(parse(self.url), key, self.key_env)


@dataclass(frozen=True, slots=True)
class ServerModel:
    """A model of a server's; `context` in tokens, 0 where it does not say. `spec`: a localspec's drafter."""

    name: str
    context: int = 0
    owner: str = ""
    spec: SpecCard | None = None


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers. `speculation`: what it says of it, in words; "" for nothing."""

    access: ServerAccess
    kind: Kind
    models: tuple[ServerModel, ...]
    speculation: str = ""

    def model(self, name: str) -> ServerModel:
        """The model of this name, else the first; RemoteError where there is none."""
        if not self.models and not name:
            raise RemoteError(f"{self.access.name} has no model loaded.", hint="Load one there first.")
        found = next((one for one in self.models if one.name == name), None)
        if name and found is None and self.models:
            known = ", ".join(one.name for one in self.models[:6])
            raise RemoteError(
                f"{self.access.name} has no model '{one_line(name)[:80]}'.", hint=f"It has: {one_line(known)}."
            )
        return found or (self.models[0] if self.models else ServerModel(name))


def keep_none(_: HttpExchange) -> None:
    """Lets a short question end by its deadline alone."""


def find(remote: Remote, deadlines: ServerTimeouts = DEADLINES, keep: Keep = keep_none) -> FoundServer:
    """Asks the server what it is; a LocalspecError where it does not answer or is none."""
    access = remote.access
    asked = ServerProbe(access, deadlines, keep)
    models, fault = asked.models()
    kind = KINDS[remote.kind] if remote.kind else asked.kind(models)
    if fault is not None and not models and kind.name == "openai":
        raise fault
    return asked.found(kind, models)


class ServerProbe:
    """The short questions to one server. `keep` gets each before it is asked, and may stop it from another thread."""

    def __init__(self, access: ServerAccess, deadlines: ServerTimeouts, keep: Keep = keep_none) -> None:
        self.access, self.deadlines, self.keep = access, deadlines, keep

    def text(self, path: str, most: int = MOST_ANSWER) -> bytes:
        with HttpExchange(self.access, self.deadlines, within=self.deadlines.short) as exchange:
            self.keep(exchange)
            return exchange.whole(exchange.ask("GET", path), most)

    def json(self, path: str) -> Mapping[str, Any]:
        try:
            found = msgspec.json.decode(self.text(path))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise faults.unreadable(self.access.name) from None
        if not isinstance(found, dict):
            raise faults.unreadable(self.access.name)
        return found

    def models(self) -> tuple[tuple[ServerModel, ...], LocalspecError | None]:
        """Lists /v1/models, or says why it cannot. A key that is refused, or a server that is not there, ends all."""
        try:
            return read_models(self.json("/v1/models")), None
        except AccessDenied:
            raise
        except RemoteError as fault:
            if isinstance(fault.__cause__, OSError):
                raise
            return (), fault

    def kind(self, models: tuple[ServerModel, ...]) -> Kind:
        """What it is: by who owns its models, else by one question that only such a server answers."""
        owners = {one.owner for one in models}
        owned = next((kind for kind in KINDS.values() if owners & set(kind.owners)), None)
        if owned is not None:
            return owned
        for name, path, key in (
            ("llama-server", "/props", "default_generation_settings"),
            ("sglang", "/server_info", "model_path"),
            ("lmstudio", "/api/v0/models", "data"),
            ("ollama", "/api/version", "version"),
        ):
            with suppress(RemoteError):
                if key in self.json(path):
                    return KINDS[name]
        return KINDS["openai"]

    def found(self, kind: Kind, models: tuple[ServerModel, ...]) -> FoundServer:
        """Adds what such a server says beside the list; what it does not answer is not known."""
        speculation = ""
        with suppress(RemoteError):
            match kind.name:
                case "localspec":
                    parts = (drafter_words(models), accepted_words(self.totals()))
                    speculation = ", ".join(filter(None, parts))
                case "llama-server":
                    models = with_context(models, context_of_props(self.json("/props")))
                    speculation = counted_words(self.totals())
                case "sglang":
                    info = self.json("/server_info")
                    models, speculation = with_context(models, integer(info.get("context_length"))), sglang_words(info)
                case "lmstudio":
                    models = read_lmstudio(self.json("/api/v0/models")) or models
                case "vllm":
                    speculation = vllm_words(self.totals())
        return FoundServer(self.access, kind, models, speculation)

    def totals(self) -> ServerTotals:
        return read(self.text("/metrics", MOST_TEXT).decode("utf-8", errors="replace"))


def read_models(found: Mapping[str, Any]) -> tuple[ServerModel, ...]:
    """The list of /v1/models, as far as it is one."""
    listed = found.get("data")
    rows = [row for row in listed[:MOST_MODELS] if isinstance(row, dict)] if isinstance(listed, list) else []
    return tuple(served(row) for row in rows if isinstance(row.get("id"), str) and row["id"])


def served(row: Mapping[str, Any]) -> ServerModel:
    meta = row.get("meta")
    own = meta.get("n_ctx") if isinstance(meta, dict) else None
    context = row.get("max_model_len") or row.get("context_length") or own
    localspec = row.get("localspec")
    spec = part(localspec, "spec", SpecCard) if isinstance(localspec, dict) else None
    return ServerModel(str(row["id"])[:LONGEST_NAME], integer(context), str(row.get("owned_by"))[:40], spec)


def read_lmstudio(found: Mapping[str, Any]) -> tuple[ServerModel, ...]:
    """The models that answer chats, those that are loaded first."""
    listed = found.get("data")
    rows = [row for row in listed[:MOST_MODELS] if isinstance(row, dict)] if isinstance(listed, list) else []
    able = [row for row in rows if isinstance(row.get("id"), str) and row.get("type") in ("llm", "vlm")]
    able.sort(key=lambda row: row.get("state") != "loaded")
    return tuple(
        ServerModel(
            row["id"][:LONGEST_NAME], integer(row.get("loaded_context_length") or row.get("max_context_length"))
        )
        for row in able
    )


def integer(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    return value if type(value) is int and 0 < value <= MOST_CONTEXT else 0


def with_context(models: tuple[ServerModel, ...], context: int) -> tuple[ServerModel, ...]:
    return tuple(replace(one, context=one.context or context) for one in models)


def context_of_props(props: Mapping[str, Any]) -> int:
    settings = props.get("default_generation_settings")
    return integer(settings.get("n_ctx")) if isinstance(settings, dict) else 0


def sglang_words(info: Mapping[str, Any]) -> str:
    """What SGLang says of its own speculation."""
    algorithm, k = info.get("speculative_algorithm"), integer(info.get("speculative_num_draft_tokens"))
    if not isinstance(algorithm, str) or not algorithm:
        return "off" if "speculative_algorithm" in info else ""
    return f"on ({one_line(algorithm)[:40]}{f', k {k}' if k else ''})"


def counted_words(totals: ServerTotals) -> str:
    """What llama-server's metrics say of it: they count drafts, too, where nothing drafts."""
    accepted = accepted_words(totals)
    return f"on, {accepted}" if accepted else ""


def accepted_words(totals: ServerTotals) -> str:
    rate = totals.acceptance_rate
    return "" if rate is None else f"accepted {100 * rate:.0f} % of all since its start"


def drafter_words(models: tuple[ServerModel, ...]) -> str:
    """How a localspec drafts of itself, which it knows once it has loaded."""
    spec = next((one.spec for one in models if one.spec is not None), None)
    if spec is None:
        return "not known before its model is loaded"
    if spec.switch == "off":
        return "off"
    length = "" if spec.k == "auto" else f", k {spec.k}"
    return f"{one_line(spec.name or spec.kind)[:40]} ({spec.switch}{length})"


def vllm_words(totals: ServerTotals) -> str:
    """What vLLM's metrics say of it."""
    if not totals.has_drafts:
        return "off, or not reported"
    return f"on, {accepted_words(totals) or 'nothing drafted yet'}"
