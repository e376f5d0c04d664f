"""`localspec chat` with a server: which one is meant, its settings, its engine. remote/ is imported once one is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any  # Any: what the screen takes beside

from localspec.config.tables import Config
from localspec.core.errors import UsageError
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.history import OpenChat
from localspec.models.catalog import Catalog

if TYPE_CHECKING:
    from localspec.remote.server import Remote
    from localspec.tui.control.tuning import Tuning

SCHEMES = ("http://", "https://")


def named_remote(model: str | None, server: str | None, key_env: str | None, kept: str) -> Remote | None:
    """The server that is meant: by --server, by MODEL, or by the kept chat that goes on; None for a model here."""
    name = server or model or kept
    catalog = Catalog.load()
    if server is None and name not in catalog.remotes and not name.startswith(SCHEMES):
        if key_env:
            raise UsageError("--key-env is for a server, and none is named.", hint="Name one: --server URL")
        return None
    from localspec.remote.names import remote_of

    return remote_of(name, catalog, model=(model or "") if server else "", key_env=key_env or "")


def refuse_local(given: Iterable[str]) -> None:
    """UsageError for an option that loads a model on this machine."""
    for name in given:
        raise UsageError(f"--{name.replace('_', '-')} is for models on this machine.", hint="The server chooses it.")


def remote_tuning(settings: Config, remote: Remote, sampling: SamplingOptions) -> Tuning:
    """The settings of a chat with a server; only what the user sets is asked of it."""
    from localspec.config import precedence
    from localspec.tui.control.tuning import Tuning

    for name, value in sampling.given.items():
        precedence.check_option(name, value, str(value))
    load, name = LoadRequest(remote.title), remote.title
    return Tuning(settings, Catalog.load(), load, name=name, flags=sampling, chosen=sampling, server=name)


def chat_with(remote: Remote, tuned: Tuning, system: str | None, past: OpenChat | None, **screen: Any) -> int:
    """The chat's screen on this server. Nothing is asked of it before the screen is there."""
    from localspec.remote.engine import RemoteEngine
    from localspec.tui import app

    _ = remote.access  # a key that is missing, or a wrong address, is an error before there is a screen
    return app.run(tuned, system, past, make_engine=lambda: RemoteEngine(remote), **screen)
