"""What `localspec remote` prints. Whatever a server says of itself is made safe here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any  # Any: JSON

from localspec.core.errors import AccessDenied
from localspec.core.sanitize import one_line
from localspec.models.catalog_file import RemoteTable

if TYPE_CHECKING:
    from localspec.remote.server import FoundServer

MOST_MODELS = 6


def found_line(url: str, found: FoundServer | AccessDenied) -> str:
    """A server in one line; one that refuses says why."""
    if isinstance(found, AccessDenied):
        return one_line(f"{found.message} {found.hint}")
    return " · ".join(filter(None, (f"{found.kind.title} at {url}", model_names(found))))


def model_names(found: FoundServer) -> str:
    names = [one_line(one.name) for one in found.models]
    more = f" and {len(names) - MOST_MODELS} more" if len(names) > MOST_MODELS else ""
    return ", ".join(names[:MOST_MODELS]) + more if names else "no model loaded"


def probe_text(found: FoundServer, chosen: str) -> str:
    """A server, what it says of speculation, and when an answer's is reported."""
    model = found.model(chosen)
    context = f" · {model.context:,} tokens" if model.context else ""
    words = found.speculation or "not reported by the server itself"
    first = f"{found_line(found.access.name, found)}{context}\nspeculation: {one_line(words)}"
    switch = "\nF5 in a chat turns it off and on." if found.kind.switches else ""
    return f"{first}\nper answer: {found.kind.reports}.{switch}"


def named_table(named: Mapping[str, RemoteTable]) -> str:
    width = max(map(len, named))
    return "\n".join(named_line(name.ljust(width), table) for name, table in named.items())


def named_line(name: str, table: RemoteTable) -> str:
    key = f"key in {table.key_env}" if table.key_env else ""
    return "  ".join(filter(None, (name, table.url, one_line(table.model or ""), table.kind or "", key)))


def record(url: str, found: FoundServer | AccessDenied) -> dict[str, Any]:
    """The same as JSON."""
    if isinstance(found, AccessDenied):
        return {"url": url, "refuses": one_line(found.message)}
    models = [{"name": one.name, "context": one.context or None} for one in found.models]
    return {"url": url, "kind": found.kind.name, "models": models, "speculation": found.speculation or None}
