"""Maps every error of the hub's library and of what it calls to one of ours, by the names of their classes.

httpx is called httpx2 in newer versions of the library, so nothing is imported here. Knows nothing about gates, which
are states and not errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localspec.core.errors import (
    FULL,
    AccessDenied,
    CheckpointError,
    DoesNotFit,
    LocalspecError,
    NotDownloaded,
    PullError,
    UsageError,
    first_line,
)
from localspec.core.sanitize import one_line

AGAIN = "Repeat the command: what came is kept."
LOG_IN = "Log in: hf auth login"
LONGEST = 200  # characters of the hub's own words in a message
Maker = Callable[[str, BaseException], LocalspecError]


@contextmanager
def hub_faults(what: str) -> Iterator[None]:
    """Raises any foreign error as one of ours. `what`: the repository, or what else was asked for."""
    try:
        yield
    except LocalspecError:
        raise
    except Exception as fault:
        raise error_for(fault, what) from without_request(fault)


def error_for(fault: BaseException, what: str) -> LocalspecError:
    """Our error for a foreign one, by the most specific class that is known."""
    subject = one_line(what)[:LONGEST]
    if isinstance(fault, OSError) and fault.errno in FULL:
        return DoesNotFit("The disk is full.", hint="Free some space, then repeat the command.")
    for kind in type(fault).__mro__:
        if make := BY_NAME.get(kind.__name__):
            return make(subject, fault)
    return PullError(f"The hub's answer about {subject} cannot be used ({type(fault).__name__}).", hint=AGAIN)


def without_request(fault: BaseException) -> BaseException | None:
    """The cause to keep: none of an error that holds a request, whose headers have the token."""
    return None if hasattr(fault, "request") or hasattr(fault, "response") else fault


def status_of(fault: BaseException) -> int:
    """The status of the hub's answer; 0 if there was none."""
    status = getattr(getattr(fault, "response", None), "status_code", 0)
    return status if isinstance(status, int) else 0


def server_words(fault: BaseException) -> str:
    """The hub's own words, safe to show: its headers are a stranger's."""
    return one_line(str(getattr(fault, "server_message", "") or ""))[:LONGEST]


def denied(subject: str, fault: BaseException) -> LocalspecError:
    return AccessDenied(f"The hub does not let this account read {subject}.", hint=f"See its page, or {lower(LOG_IN)}")


def disabled(subject: str, fault: BaseException) -> LocalspecError:
    return AccessDenied(f"The hub has disabled {subject}.", hint="Choose another model.")


def no_repository(subject: str, fault: BaseException) -> LocalspecError:
    hint = f"Check the name: OWNER/MODEL. If it is private, {lower(LOG_IN)}"
    return NotDownloaded(f"The hub has no model '{subject}' that this account may see.", hint=hint)


def no_revision(subject: str, fault: BaseException) -> LocalspecError:
    return NotDownloaded(f"The hub has no such revision of {subject}.", hint="Use a branch, a tag or a commit of it.")


def no_file(subject: str, fault: BaseException) -> LocalspecError:
    return PullError(f"The hub has no such file of {subject}.", hint="Repeat the command: the repository has changed.")


def not_here(subject: str, fault: BaseException) -> LocalspecError:
    return NotDownloaded(f"{subject} is not complete on this machine.", hint=f"Run: localspec pull {subject}")


def offline(subject: str, fault: BaseException) -> LocalspecError:
    message = "The network is switched off: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set."
    return PullError(message, hint="Unset it to reach the hub. What is on this machine works.")


def bad_name(subject: str, fault: BaseException) -> LocalspecError:
    return UsageError(f"'{subject}' is not the name of a repository.", hint="Write OWNER/MODEL.")


def no_route(subject: str, fault: BaseException) -> LocalspecError:
    return PullError("There is no route to the hub.", hint=f"Check the connection. {AGAIN}")


def silent(subject: str, fault: BaseException) -> LocalspecError:
    return PullError("The hub stopped answering.", hint=AGAIN)


def cut(subject: str, fault: BaseException) -> LocalspecError:
    return PullError("The line to the hub was cut.", hint=AGAIN)


def no_login(subject: str, fault: BaseException) -> LocalspecError:
    return AccessDenied("The login to the hub does not work.", hint=LOG_IN)


def not_safetensors(subject: str, fault: BaseException) -> LocalspecError:
    return CheckpointError(f"{subject} has no safetensors that can be read.", hint="Choose another model.")


def by_status(subject: str, fault: BaseException) -> LocalspecError:
    """Our error for an answer of the hub without a code of its own."""
    status = status_of(fault)
    if status == 401:
        return AccessDenied("The hub does not accept the token.", hint=LOG_IN)
    if status == 403:
        said = server_words(fault)
        return AccessDenied(f"The hub refuses {subject}{f' ({said})' if said else ''}.", hint="Check the token's rights.")
    if status == 404:
        return no_repository(subject, fault)
    if status == 429:
        return PullError("The hub asks this machine to wait: too many requests.", hint=f"Wait a minute. {AGAIN}")
    if status >= 500:
        return PullError(f"The hub has a fault of its own (status {status}).", hint=f"Wait a minute. {AGAIN}")
    return PullError(f"The hub refused the request about {subject} (status {status}).", hint=AGAIN)


def of_the_library(subject: str, fault: BaseException) -> LocalspecError:
    said = one_line(first_line(fault))[:LONGEST]
    return PullError(f"The hub's library failed with {subject} ({said}).", hint=AGAIN)


def lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


BY_NAME: dict[str, Maker] = {
    "GatedRepoError": denied,  # a subclass of the next but one, so looked up first
    "DisabledRepoError": disabled,
    "RepositoryNotFoundError": no_repository,
    "RevisionNotFoundError": no_revision,
    "RevisionResolutionError": no_revision,
    "RemoteEntryNotFoundError": no_file,
    "LocalEntryNotFoundError": not_here,
    "IncompleteSnapshotError": not_here,
    "CacheNotFound": not_here,
    "CachedRepoTreeNotFoundError": not_here,
    "EntryNotFoundError": no_file,
    "OfflineModeIsEnabled": offline,
    "HFValidationError": bad_name,
    "HfUriError": bad_name,
    "LocalTokenNotFoundError": no_login,
    "OIDCError": no_login,
    "DeviceCodeError": no_login,
    "SafetensorsParsingError": not_safetensors,
    "NotASafetensorsRepoError": not_safetensors,
    "HfHubHTTPError": by_status,
    "HTTPStatusError": by_status,
    "ConnectTimeout": no_route,
    "ConnectError": no_route,
    "ProxyError": no_route,
    "UnsupportedProtocol": no_route,
    "InvalidURL": no_route,
    "PoolTimeout": silent,
    "TimeoutException": silent,
    "NetworkError": cut,
    "ProtocolError": cut,
    "TransportError": cut,
    "StreamError": cut,
    "RequestError": cut,
    "XetDownloadError": of_the_library,
    "FileMetadataError": of_the_library,
    "DryRunError": of_the_library,
    "CorruptedCacheException": of_the_library,
    "TimeoutError": silent,
    "gaierror": no_route,
    "ConnectionRefusedError": no_route,
    "SSLError": no_route,
    "ConnectionError": cut,
}
