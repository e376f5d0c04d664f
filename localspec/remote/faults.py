"""What goes wrong with a server, as errors a user can meet: one sentence each, and what to do. Knows no sockets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any  # Any: JSON from a stranger

import msgspec

from localspec.core.errors import AccessDenied, ContextOverflow, LocalspecError, RemoteError
from localspec.core.sanitize import one_line

LONGEST = 300  # characters of a server's own words
OVERFLOWS = re.compile(
    r"exceed_context_size|context_length_exceeded|maximum context length|context (size|length|window)"
)
CHECK = "Is the address right? What answers on this machine: localspec remote find"
STOPPED = "engine_stopped"  # a localspec's code
WRONG_CERTIFICATE = "Trust its certificate on this machine, or use the right host name."


def unreachable(server: str, fault: OSError) -> LocalspecError:
    """The connection could not be made."""
    match type(fault).__name__:
        case "SSLCertVerificationError":
            why = one_line(str(getattr(fault, "verify_message", "")))[:LONGEST]
            return RemoteError(f"{server} has a certificate that cannot be trusted ({why}).", hint=WRONG_CERTIFICATE)
        case "SSLError" | "SSLEOFError" | "SSLZeroReturnError":
            return RemoteError(f"{server} does not speak TLS.", hint="Perhaps its address begins with http://")
        case "TimeoutError":
            return RemoteError(f"{server} does not answer.", hint="Is it running, and is the address right?")
        case "gaierror":
            return RemoteError(f"There is no host of that name: {server}", hint="Is the address right?")
    why = fault.strerror or type(fault).__name__
    return RemoteError(f"{server} cannot be reached ({why}).", hint="Is it running, and is the address right?")


def look(server: str) -> str:
    """The hint for a server that is chatted with."""
    return f"Look at it: localspec remote probe {server}"


def lost(server: str, fault: OSError | HTTPException | ValueError) -> LocalspecError:
    """The connection was there, and broke, or nothing came."""
    if isinstance(fault, TimeoutError):
        return RemoteError(f"{server} took too long to answer.", hint="Is it still running?")
    if isinstance(fault, HTTPException) and type(fault).__name__ not in ("IncompleteRead", "RemoteDisconnected"):
        return RemoteError(f"{server} does not answer in HTTP.", hint="Is the address right?")
    return RemoteError(f"The connection to {server} was lost.")


def cut(server: str) -> LocalspecError:
    """A stream that ended before the answer did."""
    return RemoteError(f"{server} ended the connection in the middle of the answer.")


def too_large(server: str, what: str) -> LocalspecError:
    return RemoteError(f"{server} sent {what} that is too long to be read.")


def of_another_kind(server: str, content_type: str) -> LocalspecError:
    """An answer that is not a stream."""
    found = one_line(content_type)[:60] or "no content type"
    return RemoteError(f"{server} answers with {found} instead of a stream.", hint=look(server))


def unreadable(server: str) -> LocalspecError:
    return RemoteError(f"{server} sent an answer that cannot be read.", hint=CHECK)


def moved(server: str, location: str) -> LocalspecError:
    """A redirect: never followed, since the key would go along."""
    elsewhere = one_line(location)[:LONGEST] or "an address that it does not name"
    return RemoteError(
        f"{server} redirects to {elsewhere}, which localspec does not follow.",
        hint="Use that address if it is the right one.",
    )


def refused(
    server: str, status: int, body: bytes, *, hint: str = CHECK, retry_after: str = "", key_env: str = ""
) -> LocalspecError:
    """An answer with an error's status, in the server's words as far as it has some; the hint where it is ours."""
    detail = words(body)
    why = f": {detail}" if detail else ""
    if status == 401 or (status == 403 and not detail):
        return denied(server, status, key_env)
    if status == 403:
        return AccessDenied(f"{server} refuses the question (403 Forbidden){why}.", hint=hint)
    if status in (400, 413, 422, 500) and OVERFLOWS.search(body.decode(errors="replace").lower()):
        return ContextOverflow(f"The chat is longer than {server} can read{why}.".replace("..", "."))
    if status == 429:
        wait = f"{retry_after} s" if re.fullmatch(r"\d{1,6}", retry_after) else "a while"
        return RemoteError(f"{server} is busy.", hint=f"Wait {wait}.")
    if status == 503:
        state = "is still loading its model" if is_loading(detail) else "cannot answer now"
        return RemoteError(f"{server} {state}.", hint="Wait a moment.")
    if status == 404:
        return RemoteError(f"{server} does not have that{why}.".replace("..", "."), hint=hint)
    return RemoteError(f"{server} refuses the question ({status} {reason(status)}){why}.".replace("..", "."), hint=hint)


def is_loading(detail: str) -> bool:
    """Whether these are the words of a server that still loads its model."""
    return "loading" in detail.lower()


def denied(server: str, status: int, key_env: str) -> LocalspecError:
    if key_env:
        return AccessDenied(f"{server} refuses the key in {key_env} ({status}).", hint="Is it the right one?")
    name_it = f"Put the key into the environment and name it: localspec remote probe {server} --key-env NAME"
    return AccessDenied(f"{server} wants a key ({status}).", hint=name_it)


def reported(server: str, found: Mapping[str, Any]) -> LocalspecError:
    """An error that came inside of a stream."""
    detail, error = detail_in(found), found.get("error")
    if OVERFLOWS.search(detail.lower()):
        return ContextOverflow(f"The chat is longer than {server} can read: {detail}.")
    if isinstance(error, dict) and error.get("code") == STOPPED:
        return RemoteError(f"{server} was stopped.")
    return RemoteError(f"{server} failed: {detail or 'it does not say why'}.")


def words(body: bytes) -> str:
    """A server's own words for its error, on one line."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return detail_in(found) if isinstance(found, dict) else ""


def detail_in(found: Mapping[str, Any]) -> str:
    """`{"error": {"message": …}}`, and the shorter forms there are."""
    error = found.get("error", found)
    detail = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return one_line(detail)[:LONGEST].rstrip(".") if isinstance(detail, str) else ""


def reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"
