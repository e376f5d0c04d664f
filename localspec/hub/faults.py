"""Maps every error of the hub's library and of what it calls to one of ours, by the names of their classes.

httpx is called httpx2 in newer versions of the library, so nothing is imported here. Knows nothing about gates, which
are states and not errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from localspec.core.errors import (
    CHOOSE_ANOTHER,
    FULL,
    AccessDenied,
    CheckpointError,
    DoesNotFit,
    HubAway,
    LocalspecError,
    NotDownloaded,
    PullError,
    UsageError,
    first_line,
)
from localspec.core.sanitize import one_line
from localspec.hub.environment import ENDPOINT, endpoint
from localspec.hub.login import given_by, given_token, saved_token

AGAIN = "Repeat the command."
KEPT = "Repeat the command: progress is kept."  # of a download that was begun
HERE = "Check the connection; what is on this machine works: localspec ls"
LATER = f"Wait a minute. {AGAIN}"
LOG_IN = "Log in: hf auth login"
LONGEST = 200  # characters of a name, or of the hub's own words, in a message


class Meaning(NamedTuple):
    """What a foreign error means: {} is the repository, or what else was asked for."""

    kind: type[LocalspecError]
    message: str
    hint: str


DENIED = Meaning(AccessDenied, "The hub does not let this account read {}.", "Ask for access on its page, or log in.")
DISABLED = Meaning(AccessDenied, "The hub has disabled {}.", CHOOSE_ANOTHER)
NO_REPOSITORY = Meaning(
    NotDownloaded,
    "The hub has no model '{}' that this account may see.",
    "Check the name: OWNER/MODEL. If it is private, log in: hf auth login",
)
NO_REVISION = Meaning(
    NotDownloaded, "The hub has no such revision of {}.", "Use a branch, a tag or a commit of it: OWNER/MODEL@REVISION"
)
NO_FILE = Meaning(PullError, "The hub has no such file of {} any more.", "Repeat the command: the repository changed.")
NOT_HERE = Meaning(NotDownloaded, "{} is not complete on this machine.", "Fetch the rest: localspec pull {}")
OFFLINE = Meaning(
    PullError,
    "The network is switched off: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.",
    "Unset it to reach the hub. What is on this machine works.",
)
BAD_NAME = Meaning(UsageError, "'{}' is not the name of a repository.", "Write OWNER/MODEL.")
BAD_LOGIN = Meaning(AccessDenied, "The hub does not accept the login.", LOG_IN)
NO_SAFETENSORS = Meaning(CheckpointError, "{} has no safetensors that can be read.", CHOOSE_ANOTHER)
NO_ROUTE = Meaning(HubAway, "{hub} cannot be reached.", HERE)
SILENT = Meaning(HubAway, "The hub stopped answering.", AGAIN)
CUT = Meaning(HubAway, "The connection to the hub was lost.", AGAIN)
TOO_MANY = Meaning(HubAway, "The hub asks this machine to wait: too many requests.", LATER)
FULL_DISK = Meaning(DoesNotFit, "The disk is full.", "Free some space, then repeat the command.")

BY_NAME = {
    "GatedRepoError": DENIED,  # a subclass of RepositoryNotFoundError
    "DisabledRepoError": DISABLED,
    "RepositoryNotFoundError": NO_REPOSITORY,
    "RevisionNotFoundError": NO_REVISION,
    "RevisionResolutionError": NO_REVISION,
    "LocalEntryNotFoundError": NOT_HERE,
    "CacheNotFound": NOT_HERE,
    "CachedRepoTreeNotFoundError": NOT_HERE,
    "EntryNotFoundError": NO_FILE,
    "RemoteEntryNotFoundError": NO_FILE,
    "OfflineModeIsEnabled": OFFLINE,
    "HFValidationError": BAD_NAME,
    "HfUriError": BAD_NAME,
    "LocalTokenNotFoundError": BAD_LOGIN,
    "OIDCError": BAD_LOGIN,
    "DeviceCodeError": BAD_LOGIN,
    "SafetensorsParsingError": NO_SAFETENSORS,
    "NotASafetensorsRepoError": NO_SAFETENSORS,
    # httpx's, httpx2's and Python's own
    "ConnectTimeout": NO_ROUTE,
    "ConnectError": NO_ROUTE,
    "ProxyError": NO_ROUTE,
    "UnsupportedProtocol": NO_ROUTE,
    "InvalidURL": NO_ROUTE,
    "gaierror": NO_ROUTE,
    "ConnectionRefusedError": NO_ROUTE,
    "SSLError": NO_ROUTE,
    "TimeoutException": SILENT,
    "TimeoutError": SILENT,
    "TransportError": CUT,
    "StreamError": CUT,
    "RequestError": CUT,
    "ConnectionError": CUT,
}
BY_STATUS = {401: BAD_LOGIN, 404: NO_REPOSITORY, 429: TOO_MANY}
ANSWERS = ("HfHubHTTPError", "HTTPStatusError")  # without a class of their own: the status decides


@contextmanager
def hub_faults(what: str, *, keeps: bool = False) -> Iterator[None]:
    """Raises any foreign error as one of ours. `what`: the repository, or what else was asked for; `keeps`: a download
    was begun, and goes on from there."""
    try:
        yield
    except LocalspecError:
        raise
    except Exception as fault:
        found = error_for(fault, what)
        if keeps:
            found.hint = found.hint.replace(HERE, f"Check the connection. {AGAIN}").replace(AGAIN, KEPT)
        raise found from None  # its request has the token in a header


@contextmanager
def skipping_unusable() -> Iterator[None]:
    """Ends the block at what one repository lacks: it may be behind a gate, of another make, or gone. Raises PullError
    where the hub itself fails, since the next repository would fare no better."""
    try:
        yield
    except PullError:
        raise
    except LocalspecError:
        pass


def error_for(fault: BaseException, what: str) -> LocalspecError:
    """Our error for a foreign one, by the most specific class that is known."""
    subject = one_line(what)[:LONGEST]
    if isinstance(fault, OSError) and fault.errno in FULL:
        return meant(FULL_DISK, subject)
    for kind in type(fault).__mro__:
        if found := BY_NAME.get(kind.__name__):
            return meant(found, subject)
        if kind.__name__ in ANSWERS:
            return by_status(fault, subject)
    return PullError(f"The hub's library failed with {subject} ({in_short(fault)}).", hint=AGAIN)


def meant(found: Meaning, subject: str) -> LocalspecError:
    hint = login_hint() if found is BAD_LOGIN else found.hint.format(subject)
    return found.kind(found.message.format(subject, hub=hub()), hint=hint)


def hub() -> str:
    """The hub by its name, or that of HF_ENDPOINT."""
    host = one_line(urlsplit(endpoint()).netloc.rpartition("@")[2] or endpoint())[:LONGEST]
    return f"Hugging Face ({host})" if endpoint() == ENDPOINT else host


def login_hint() -> str:
    """What to do about a login that is refused: another one may be saved, and a variable comes first."""
    if not (name := given_by()):
        return LOG_IN
    if saved_token() not in ("", given_token()):
        return f"{name} overrides the saved login. To use that one: unset {name}"
    return f"{name} is used. Set another token there, or unset {name} and log in: hf auth login"


def by_status(fault: BaseException, subject: str) -> LocalspecError:
    """Our error for an answer of the hub that has no code."""
    status = getattr(getattr(fault, "response", None), "status_code", 0)
    if found := BY_STATUS.get(status):
        return meant(found, subject)
    if status == 403:
        words = f" ({answered})" if (answered := server_words(fault)) else ""
        return AccessDenied(f"The hub refuses {subject}{words}.", hint="Check what the token may do.")
    if status >= 500:
        return HubAway(f"The hub has a problem of its own (status {status}).", hint=LATER)
    return PullError(f"The hub refused the request about {subject} (status {status}).", hint=AGAIN)


def server_words(fault: BaseException) -> str:
    """The hub's own words, safe to show: its headers are a stranger's."""
    return one_line(str(getattr(fault, "server_message", "") or "")).rstrip(".")[:LONGEST]


def in_short(fault: BaseException) -> str:
    """The error's class, and its text where that cannot hold an address or a header."""
    text, plain = first_line(fault), type(fault).__module__ in ("builtins", "json.decoder")
    return one_line(text)[:LONGEST] if plain and str(fault) and "://" not in text else type(fault).__name__
