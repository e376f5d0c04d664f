"""What a request is refused with: a status and an error in OpenAI's shape. Knows no HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: JSON

from localspec.core.events import Failure, Loading

INVALID, SERVER, UNAVAILABLE = "invalid_request_error", "server_error", "unavailable_error"
STATUS_OF = {  # by a Failure's code; every other is 500
    "usage": 400,
    "context_overflow": 400,
    "no_chat_template": 400,
}
CODE_OF = {"context_overflow": "context_length_exceeded"}  # OpenAI's word for it


class RequestRefused(Exception):
    """Answered with this status; `parameter` is the field of the body that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        parameter: str | None = None,
        code: str | int | None = None,
        kind: str = INVALID,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.parameter, self.code, self.kind = status, message, parameter, code, kind
        self.headers, self.more = dict(headers or {}), dict(more or {})

    @property
    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.kind, "param": self.parameter, "code": self.code}
        return {"error": {**error, **self.more}}


NOT_LOADED = RequestRefused(503, "The model is not loaded.", code="not_loaded", kind=UNAVAILABLE)  # for anyone to read
FAILED = RequestRefused(500, "The server failed.", code="failed", kind=SERVER)  # an error of ours


def unsupported(parameter: str, reason: str) -> RequestRefused:
    return RequestRefused(400, f"'{parameter}' is not supported: {reason}", parameter=parameter, code="unsupported")


def of_failure(failure: Failure) -> RequestRefused:
    """An engine's Failure as a client reads it."""
    status = STATUS_OF.get(failure.code, 500)
    kind = INVALID if status < 500 else SERVER
    message = f"{failure.message} {failure.hint}".rstrip()
    return RequestRefused(status, message, code=CODE_OF.get(failure.code, failure.code), kind=kind)


def loading(progress: Loading | None) -> RequestRefused:
    """llama-server's answer while it loads, with the progress beside it."""
    more: dict[str, Any] = {}
    if progress is not None:
        names = ("stage", "done", "total", "unit", "eta_s")
        more["progress"] = {name: getattr(progress, name) for name in names}
    headers = {"retry-after": "1"}
    return RequestRefused(503, "Loading model", code=503, kind=UNAVAILABLE, headers=headers, more=more)


def not_loaded(failure: Failure) -> RequestRefused:
    """The model could not be loaded; the next request tries again."""
    sentence = f"{failure.message} {failure.hint}".rstrip()
    message = sentence if failure.code == "engine_stopped" else f"The model is not loaded. {sentence}"
    return RequestRefused(503, message, code=failure.code, kind=UNAVAILABLE)


def full(answered: int, waiting: int, position: int) -> RequestRefused:
    """`position`: where it would have waited."""
    written = "One answer is" if answered == 1 else f"{answered} answers are"
    message = f"{written} being written and {waiting} wait: the queue is full. Try again later."
    headers = {"retry-after": "5"}
    more = {"position": position}
    return RequestRefused(429, message, code="queue_full", kind="rate_limit_error", headers=headers, more=more)


def too_many(bodies: int) -> RequestRefused:
    message = f"{bodies} requests are being read, the most that this server reads at once. Try again."
    return RequestRefused(429, message, code="too_many_bodies", kind="rate_limit_error", headers={"retry-after": "1"})
