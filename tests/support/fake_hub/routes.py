"""What a fake hub answers to a request where nothing is wrong: protocol only, no sockets."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tests.support.fake_hub import search
from tests.support.fake_hub.repository import FakeFile, FakeRepository, Json
from tests.support.fake_hub.switches import LOG_IN, Account, Answer, Kind, Switches, refused

NOT_FOUND = refused(404, "Repository not found", "RepoNotFound")
ANONYMOUS = refused(401, "Invalid username or password.", "RepoNotFound")  # the hub does not tell private from missing
NO_REVISION = refused(404, "Invalid rev id", "RevisionNotFound")
INVALID_TOKEN = refused(401, "Invalid credentials in Authorization header")
DISABLED = refused(403, "Access to this resource is disabled.")
EXPIRED = refused(403, "Request has expired")
XET_TOKEN = "xet_tokenOfAna"
INFO = (*search.FULL, "cardData", "config", "safetensors", "gguf", "usedStorage")


@dataclass(frozen=True)
class Asked:
    """A request: of which server, and how."""

    server: str  # hub | cdn
    method: str
    target: str
    headers: Mapping[str, str]  # names in lower case

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @cached_property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def parts(self) -> list[str]:
        """The path's steps, each unquoted: a revision may hold a slash."""
        return [unquote(part) for part in self.path.split("/")[1:]]

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def kind(self) -> Kind:
        if self.method not in ("GET", "HEAD"):
            return "other"
        if self.server == "cdn":
            return "cdn"
        match self.parts:
            case ["api", "models"]:
                return "search"
            case ["api", "models", _, _] | ["api", "models", _, _, "revision", _]:
                return "info"
            case ["api", "models", _, _, "tree", *_]:
                return "tree"
            case ["api", "models", _, _, "auth-check"]:
                return "auth-check"
            case ["api", "models", _, _, "xet-read-token", _]:
                return "xet-read-token"
            case ["api", "whoami-v2"]:
                return "whoami"
            case ["api", "agent-harnesses"]:
                return "agent-harnesses"
            case [_, _, "resolve", *_]:
                return "resolve"
        return "other"


def as_json(content: object, **headers: str) -> Answer:
    return Answer(200, {"Content-Type": "application/json; charset=utf-8", **headers}, json.dumps(content).encode())


class Routes:
    """The commits that were pushed, and who may see them."""

    def __init__(self, switches: Callable[[], Switches], account: Callable[[], Account | None]) -> None:
        self.switches, self.account = switches, account
        self.hub = self.cdn = ""  # addresses, once there are servers
        self.commits: dict[str, dict[str, FakeRepository]] = {}
        self.refs: dict[str, dict[str, str]] = {}
        self.blobs: dict[str, FakeFile] = {}
        self.signatures = count(1)
        self.used: Counter[str] = Counter()

    def push(self, repository: FakeRepository, refs: tuple[str, ...]) -> None:
        """Serves a commit, and moves these branches and tags to it."""
        self.commits.setdefault(repository.name, {})[repository.commit] = repository
        self.refs.setdefault(repository.name, {}).update(dict.fromkeys(refs, repository.commit))
        self.blobs |= {file.sha256: file for file in repository.tree.values() if file.is_lfs}

    def answer(self, asked: Asked) -> Answer:
        """What a hub answers on which nothing is wrong."""
        if asked.kind == "cdn":
            return self._blob(asked)
        account = self.account()
        if asked.token and (account is None or asked.token != account.token):
            return INVALID_TOKEN
        user = account if asked.token else None
        match asked.kind:
            case "search":
                return self._search(asked)
            case "whoami":
                return as_json(user.whoami) if user else ANONYMOUS
            case "agent-harnesses":
                return as_json({"standardEnvVars": [], "harnesses": {}})
            case "info" | "tree" | "auth-check" | "resolve" | "xet-read-token":
                return self._of_repository(asked, user)
        return Answer(404, body=b"no such endpoint")

    def at(self, name: str, revision: str = "main") -> FakeRepository | None:
        """The commit that a branch, a tag or all of its 40 digits name. As at the hub, a name is found in any case."""
        name = next((known for known in self.commits if known.lower() == name.lower()), name)
        commits, refs = self.commits.get(name, {}), self.refs.get(name, {})
        return commits.get(refs.get(revision, revision))

    def _of_repository(self, asked: Asked, user: Account | None) -> Answer:
        parts = asked.parts[2:] if asked.kind != "resolve" else asked.parts
        newest = self.at("/".join(parts[:2]))
        if newest is None or (newest.private and not (user and newest.name in user.may_read)):
            return NOT_FOUND if user else ANONYMOUS
        if newest.disabled:
            return DISABLED
        repository = self.at(newest.name, parts[3]) if len(parts) > 3 else newest
        if repository is None:
            return NO_REVISION
        if asked.kind == "info":
            return as_json(self._info(repository, asked))
        if asked.kind == "tree":
            return self._tree(repository, asked, "/".join(parts[4:]))
        if repository.gated and (refusal := self._gate(repository, user)):
            return refusal
        if asked.kind == "xet-read-token":
            return as_json({}, **self._xet_token())
        return Answer() if asked.kind == "auth-check" else self._resolve(repository, "/".join(parts[4:]))

    def _gate(self, repository: FakeRepository, user: Account | None) -> Answer | None:
        return user.gate(repository) if user else refused(401, LOG_IN.format(repository.name), "GatedRepo")

    def _info(self, repository: FakeRepository, asked: Asked) -> object:
        status = {"securityRepoStatus": {"scansDone": True, "filesWithIssues": []}}
        return search.row(repository, asked.query, INFO) | (status if "securityStatus" in asked.query else {})

    def _tree(self, repository: FakeRepository, asked: Asked, below: str) -> Answer:
        recursive = asked.query.get("recursive", [""])[0].lower() == "true"
        return self._page(repository.listing(below, recursive=recursive), asked, self.switches().tree_page)

    def _search(self, asked: Asked) -> Answer:
        if unknown := asked.query.keys() - search.UNDERSTOOD:
            return refused(400, f"The fake hub does not know {', '.join(sorted(unknown))}")
        newest = [commit for name in self.commits if (commit := self.at(name))]
        rows = [search.row(one, asked.query) for one in search.found(newest, asked.query)]
        limit = int(asked.query.get("limit", ["1000"])[0])
        return self._page(rows, asked, min(limit, self.switches().search_page))

    def _page(self, rows: list[Json], asked: Asked, size: int) -> Answer:
        """A page of a list, and in a header where the next one is."""
        start = int(asked.query.get("cursor", ["0"])[0])
        headers = {}
        if start + size < len(rows):
            query = urlencode({**asked.query, "cursor": [str(start + size)]}, doseq=True)
            headers = {"Link": f'<{self.hub}{asked.path}?{query}>; rel="next"'}
        return as_json(rows[start : start + size], **headers)

    def _resolve(self, repository: FakeRepository, path: str) -> Answer:
        file = repository.tree.get(path)
        if file is None:
            return refused(404, "Entry not found", "EntryNotFound", X_Repo_Commit=repository.commit)
        common = {"X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        if not file.is_lfs:
            return Answer(200, common | {"ETag": f'"{file.oid}"'}, file=file)
        address = f"{self.cdn}/{file.sha256}?sig={next(self.signatures)}&name={quote(path)}"
        linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size), "ETag": f'"{file.oid}"'}
        if file.xet:
            token = f"{self.hub}/api/models/{repository.name}/xet-read-token/{repository.commit}"
            common |= {"X-Xet-Hash": file.xet, "Link": f'<{token}>; rel="xet-auth"'}
        location = self.switches().location
        return Answer(302, common | linked | {"Location": location(address) if location else address})

    def _xet_token(self) -> dict[str, str]:
        """Where Xet's storage is, and a token that is good there alone."""
        ends = str(int(time.time()) + 3600)
        return {
            "X-Xet-Cas-Url": self.switches().cas,
            "X-Xet-Access-Token": XET_TOKEN,
            "X-Xet-Token-Expiration": ends,
        }

    def _blob(self, asked: Asked) -> Answer:
        signature = asked.query.get("sig", [""])[0]
        file = self.blobs.get(asked.path.removeprefix("/"))
        if file is None or not signature:
            return Answer(404)
        self.used[signature] += asked.method == "GET"
        if self.used[signature] > self.switches().signature_uses:
            return EXPIRED
        (path,) = asked.query["name"]
        return Answer(200, {"Accept-Ranges": "bytes", "ETag": f'"{file.sha256}"'}, file=replace(file, path=path))


def ranged(asked: Asked, answer: Answer) -> tuple[Answer, range]:
    """The answer to a Range, and which of the file's bytes it is."""
    assert answer.file is not None
    size = answer.file.size
    first, _, last = asked.headers.get("range", "").removeprefix("bytes=").partition("-")
    if not (first or last):
        return answer, range(size)
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= stop:
        return Answer(416, {"Content-Range": f"bytes */{size}"}), range(0)
    return replace(
        answer, status=206, headers={**answer.headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}
    ), range(start, stop)


def changed(pieces: Iterator[bytes], start: int, at: int) -> Iterator[bytes]:
    """The pieces from `start` on, with one bit of the byte at `at` flipped."""
    for piece in pieces:
        inside = at - start
        start += len(piece)
        hit = 0 <= inside < len(piece)
        yield piece[:inside] + bytes([piece[inside] ^ 1]) + piece[inside + 1 :] if hit else piece
