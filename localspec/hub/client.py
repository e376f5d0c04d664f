"""What the hub says about repositories: metadata, small files, byte ranges, pages of a search, the account.

All of it is a stranger's, so types are checked and sizes bounded here; every wait has an end. Downloads no weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, TypeVar  # Any: the library's client is httpx's or httpx2's; a card's fields
from urllib.parse import quote, urlsplit

import msgspec

from localspec.core.errors import CHOOSE_ANOTHER, AccessDenied, CheckpointError, PullError
from localspec.core.sanitize import one_line
from localspec.core.version import __version__
from localspec.hub.disconnects import PASSING
from localspec.hub.environment import ENDPOINT
from localspec.hub.faults import AGAIN, hub_faults
from localspec.hub.gates import GATED
from localspec.hub.login import Login

SECONDS = 10.0  # without a byte
ANSWER_SECONDS = 20.0  # for a whole answer of JSON
WAITS = (0.5, 1.0, 2.0)  # before a hub is asked again that had a fault which passes
HEARD_SECONDS = 1.0  # between two signs that bytes arrive
MAX_JSON_BYTES = 64 << 20
T = TypeVar("T")


class Lfs(msgspec.Struct, frozen=True):
    sha256: str
    size: int


class Sibling(msgspec.Struct, frozen=True, rename="camel"):
    rfilename: str
    size: int | None = None
    blob_id: str | None = None
    lfs: Lfs | None = None


class ParameterCounts(msgspec.Struct, frozen=True):
    parameters: dict[str, int] = {}
    total: int = 0


class RepoInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A repository as the hub's API describes it, as far as it was asked for."""

    id: str
    sha: str | None = None
    gated: Literal["auto", "manual"] | bool | None = None
    disabled: bool | None = None
    tags: tuple[str, ...] | None = None
    card_data: dict[str, Any] | None = None
    safetensors: ParameterCounts | None = None
    gguf: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    siblings: tuple[Sibling, ...] | None = None
    library: str | None = msgspec.field(name="library_name", default=None)
    downloads: int | None = None
    security: dict[str, Any] | None = msgspec.field(name="securityRepoStatus", default=None)

    @property
    def flagged(self) -> set[str]:
        """The files that the hub's scanners report."""
        issues = (self.security or {}).get("filesWithIssues")
        found = [one.get("path") for one in issues if isinstance(one, dict)] if isinstance(issues, list) else []
        return {path for path in found if isinstance(path, str)}

    @property
    def dtype(self) -> str:
        """The dtype of most parameters."""
        counts = self.safetensors.parameters if self.safetensors else {}
        return max(counts, key=counts.__getitem__, default="")

    @property
    def parameters(self) -> int:
        if self.safetensors:
            return self.safetensors.total or sum(self.safetensors.parameters.values())
        total = (self.gguf or {}).get("total")
        return total if type(total) is int else 0


class SearchResults(msgspec.Struct, frozen=True):
    """A page of a search, and the query of the next one."""

    rows: tuple[RepoInfo, ...]
    cursor: str


class Permission(msgspec.Struct, frozen=True):
    """The hub's answer to "may I read this?": 200, or a refusal with its code and text."""

    status: int
    code: str = ""
    message: str = ""

    @property
    def says_no(self) -> bool:
        return self.status == 403 or (self.status == 401 and self.code in (GATED, ""))


class Who(msgspec.Struct, frozen=True):
    name: str


class Client:
    """Asks one hub, with one login; several threads may. `seconds`: how long it waits for a byte; `answer_seconds`: for
    a whole answer of JSON; `waits`: before each new try. `heard` is called now and then while bytes arrive, and before
    a wait."""

    def __init__(
        self,
        endpoint: str = ENDPOINT,
        login: Login | None = None,
        *,
        seconds: float = SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        waits: Sequence[float] = WAITS,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        from huggingface_hub.utils import build_hf_headers

        self.endpoint, self.login = endpoint.rstrip("/"), login or Login()
        self._seconds, self._answer_seconds, self._waits = seconds, answer_seconds, waits
        self._headers = build_hf_headers(
            token=self.login.token or False, library_name="localspec", library_version=__version__
        )
        self._heard, self._heard_at = heard, time.monotonic()
        self._counting, self.bytes_read = Lock(), 0

    def info(self, repo: str, revision: str = "") -> RepoInfo:
        """A repository at a revision, with its files' sizes and hashes."""
        at = f"/revision/{quote(revision, safe='')}" if revision else ""
        return self._json(f"/api/models/{quote(repo)}{at}?blobs=true&securityStatus=true", RepoInfo, repo)

    def may_read(self, repo: str) -> Permission:
        """Whether this login may read a gated repository's files."""
        with self._open(f"/api/models/{quote(repo)}/auth-check", repo) as response:
            status, headers = response.status_code, response.headers
            found = Permission(status, headers.get("X-Error-Code", ""), headers.get("X-Error-Message", ""))
            if not found.says_no or (status == 401 and not found.code and self.login.token):
                raise_for_status(response)
            return found

    def account(self) -> str:
        """The name of the account; "" where there is no login, or none that the hub accepts."""
        if not self.login.token:
            return ""
        try:
            return one_line(self._json("/api/whoami-v2", Who, "the account").name)
        except AccessDenied:
            return ""

    def search(self, query: str) -> SearchResults:
        """A page of a search; `query` as the API has it, or the cursor of the page before."""
        with self._open(f"/api/models?{query}", "the search") as response:
            raise_for_status(response)
            rows = decode(self._body(response, "the search"), tuple[RepoInfo, ...], "the search")
            following = response.links.get("next", {}).get("url", "")
        return SearchResults(
            rows, urlsplit(following).query
        )  # the query alone: no other host is asked, or sees the token

    def read(self, repo: str, commit: str, path: str, limit: int) -> bytes:
        """A small file, whole; CheckpointError beyond `limit`."""
        found = bytearray()
        with self._open(file_path(repo, commit, path), repo) as response:
            raise_for_status(response)
            for piece in self._pieces(response):
                found += piece
                if len(found) > limit:
                    message = f"{one_line(f'{repo}/{path}')} is too large: at most {limit:,} bytes of it are read."
                    raise CheckpointError(message, hint=CHOOSE_ANOTHER)
        return bytes(found)

    def read_range(self, repo: str, commit: str, path: str, begin: int, end: int) -> bytes:
        """Bytes begin..end of a file; asked for twice where the line is cut."""
        try:
            return self._range(repo, commit, path, begin, end)
        except PullError:
            return self._range(repo, commit, path, begin, end)

    def _range(self, repo: str, commit: str, path: str, begin: int, end: int) -> bytes:
        found, asked = bytearray(), {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        with self._open(file_path(repo, commit, path), repo, asked) as response:
            raise_for_status(response)
            skipped = begin if response.status_code == 200 else 0  # the whole file is sent: only its beginning is read
            for piece in self._pieces(response):
                found += piece[skipped:]
                skipped = max(0, skipped - len(piece))
                if len(found) >= end - begin:
                    return bytes(found[: end - begin])
        where = one_line(f"{repo}/{path}")
        raise PullError(f"The hub sent {len(found):,} of {end - begin:,} bytes of {where}.", hint=AGAIN)

    def _json(self, path: str, kind: type[T], what: str) -> T:
        with self._open(path, what) as response:
            raise_for_status(response)
            return decode(self._body(response, what), kind, what)

    def _body(self, response: Any, what: str) -> bytes:
        """The whole body of an answer about a repository, within its time and size."""
        found, ends = bytearray(), time.monotonic() + self._answer_seconds
        for piece in self._pieces(response):
            found += piece
            if time.monotonic() > ends or len(found) > MAX_JSON_BYTES:
                raise PullError(f"The hub's answer about {one_line(what)} does not end.", hint=AGAIN)
        return bytes(found)

    def _pieces(self, response: Any) -> Iterator[bytes]:
        for piece in response.iter_bytes():
            with self._counting:
                self.bytes_read += len(piece)
                if time.monotonic() - self._heard_at >= HEARD_SECONDS:
                    self._heard_at = time.monotonic()
                    self._heard()
            yield piece

    @contextmanager
    def _open(self, path: str, what: str, headers: Mapping[str, str] | None = None) -> Iterator[Any]:
        """An answer whose body is not read yet; a hub with a fault that passes is asked again, within the time for a
        whole answer. Redirects are followed; the library's client sends the token to no other host."""
        from huggingface_hub.utils import get_session

        asked, ends = {**self._headers, **(headers or {})}, time.monotonic() + self._answer_seconds
        with hub_faults(what):
            for wait in (*self._waits, None):
                with get_session().stream(
                    "GET", f"{self.endpoint}{path}", headers=asked, timeout=self._seconds
                ) as response:
                    pause = pause_after(response, wait)
                    if pause is None or time.monotonic() + pause > ends:
                        yield response
                        return
                self._heard()
                time.sleep(pause)


def pause_after(response: Any, wait: float | None) -> float | None:
    """Seconds until it is asked again, at least those that the hub names; None where this is its answer."""
    if wait is None or response.status_code not in PASSING:
        return None
    return max(wait, named_seconds(response.headers))


def named_seconds(headers: Mapping[str, str]) -> float:
    """The wait that the hub asks for, by its own header `ratelimit` or by Retry-After; 0 where it names none."""
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds + 1.0  # against rounding, as the library
    named = headers.get("Retry-After", "")
    return float(named) if named.isdecimal() else 0.0


def raise_for_status(response: Any) -> None:
    """The library's error for a refusal: `hub_faults` makes it one of ours."""
    from huggingface_hub.utils import hf_raise_for_status

    hf_raise_for_status(response)


def decode(raw: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        message = f"The hub's answer about {one_line(what)} cannot be read ({one_line(str(fault))[:200]})."
        raise PullError(message, hint=AGAIN) from fault


def file_path(repo: str, commit: str, path: str) -> str:
    return f"/{quote(repo)}/resolve/{commit}/{quote(path)}"
