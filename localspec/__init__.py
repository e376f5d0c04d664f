"""localspec: a local chat that answers faster without a worse model.

    with localspec.load("guide") as llm:
        print(llm.generate([{"role": "user", "content": "What is a drafter?"}]).text)

Importing this imports no torch; the names below arrive when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any  # Any: a module's attributes

from localspec.core.version import __version__ as __version__

if TYPE_CHECKING:
    from localspec.core.errors import (
        AccessDenied,
        Cancelled,
        CatalogError,
        CheckpointError,
        ContextOverflow,
        Divergence,
        DoesNotFit,
        EngineDied,
        EngineError,
        HistoryError,
        HubAway,
        IncompatiblePair,
        LocalspecError,
        NoChatTemplate,
        NoSuchChat,
        NotDownloaded,
        PullError,
        RemoteError,
        UsageError,
    )
    from localspec.core.requests import DraftModel, EarlyExit, Message, Reference, SpecOptions
    from localspec.hub.api import pull, pull_events
    from localspec.hub.compatibility import fit, pair
    from localspec.hub.inventory import list_models
    from localspec.runtime.api import LLM, load, load_events
    from localspec.runtime.chat import Chat
    from localspec.runtime.result import Result
    from localspec.runtime.stream import Stream

_WHERE = {
    **dict.fromkeys(("LLM", "load", "load_events"), "localspec.runtime.api"),
    "Chat": "localspec.runtime.chat",
    "Result": "localspec.runtime.result",
    "Stream": "localspec.runtime.stream",
    **dict.fromkeys(("pull", "pull_events"), "localspec.hub.api"),
    **dict.fromkeys(("fit", "pair"), "localspec.hub.compatibility"),
    "list_models": "localspec.hub.inventory",
    **dict.fromkeys(("DraftModel", "EarlyExit", "Message", "Reference", "SpecOptions"), "localspec.core.requests"),
    **dict.fromkeys(
        (
            "AccessDenied", "Cancelled", "CatalogError", "CheckpointError", "ContextOverflow", "Divergence",
            "DoesNotFit", "EngineDied", "EngineError", "HistoryError", "HubAway", "IncompatiblePair", "LocalspecError",
            "NoChatTemplate", "NoSuchChat", "NotDownloaded", "PullError", "RemoteError", "UsageError",
        ),
        "localspec.core.errors",
    ),
}  # fmt: skip
__all__ = [
    "LLM", "AccessDenied", "Cancelled", "CatalogError", "Chat", "CheckpointError", "ContextOverflow", "Divergence",
    "DoesNotFit", "DraftModel", "EarlyExit", "EngineDied", "EngineError", "HistoryError", "HubAway",
    "IncompatiblePair", "LocalspecError", "Message", "NoChatTemplate", "NoSuchChat", "NotDownloaded", "PullError",
    "Reference", "RemoteError", "Result", "SpecOptions", "Stream", "UsageError", "fit", "list_models", "load",
    "load_events", "pair", "pull", "pull_events",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """PEP 562: the module is imported with its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'localspec' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
