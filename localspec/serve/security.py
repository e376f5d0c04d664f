"""Who may ask: names of hosts compared whole, origins of web pages, the key, kinds and sizes of bodies.

A page in a browser must reach this server neither by its own name (DNS rebinding) nor by a form. X-Forwarded-* is never
read. Knows no model.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from localspec.serve.faults import RequestRefused

Headers = Iterable[tuple[bytes, bytes]]  # names in lower case
LOCAL_NAMES = frozenset({"127.0.0.1", "[::1]", "localhost"})
HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
JSON = "application/json"
PUBLIC = ("/health", "/v1/health")  # answered without a key, as llama-server does
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # what a header may be called
USUAL_HEADERS = "authorization, content-type"
PREFLIGHT_SECONDS = "600"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """`hosts`: names beside those of this machine; `origins`: of web pages that may ask; `key`: that clients need."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    key: str | None = None


def check(rules: AccessRules, method: str, path: str, headers: Headers) -> None:
    """RequestRefused for what must not reach the server, in the order of what gives away least."""
    found = list(headers)
    check_framing(found)
    host = check_host(rules, values(found, b"host"))
    check_origin(rules, values(found, b"origin"), host)
    if method == "OPTIONS":
        return
    if path not in PUBLIC:
        check_key(rules, found)
    if method == "POST":
        check_content_type(values(found, b"content-type"))


def check_framing(headers: Headers) -> None:
    """Refuses a body with two lengths: a proxy might take the other one, and let a second request through in it."""
    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise RequestRefused(400, "A body must have one length: Content-Length, or chunks.", code="not_http")


def values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def check_host(rules: AccessRules, hosts: list[str]) -> str:
    """The Host as it was sent, if its name is one of ours. The port is not compared: it stops no attack, and would
    break a tunnel."""
    if len(hosts) != 1:
        raise RequestRefused(400, "A request must have one Host header.", code="host")
    name = host_name(hosts[0])
    if not name or name not in LOCAL_NAMES | rules.hosts:
        raise RequestRefused(403, "This host name is not served. Start the server with: --allow-host NAME", code="host")
    return hosts[0]


def host_name(host: str) -> str:
    """The name of a Host header, in lower case and without one dot at its end; "" if it is invalid."""
    found = HOST.fullmatch(host)
    return found["name"].lower().removesuffix(".") if found else ""


def check_origin(rules: AccessRules, origins: list[str], host: str) -> None:
    """Refuses other web pages, and those that hide where they are from; a page of this server's own may ask."""
    own = {f"http://{host}".lower(), f"https://{host}".lower()}
    for origin in origins:
        if origin.lower() not in own | rules.origins:
            message = "Requests from web pages of this origin are refused. Start the server with: --cors ORIGIN"
            raise RequestRefused(403, message, code="origin")


def has_key(rules: AccessRules, headers: Headers) -> bool:
    """Whether a request has the key, or needs none."""
    given = values(headers, b"authorization")
    scheme, _, sent = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return rules.key is None or (
        scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), rules.key.encode())
    )


def check_key(rules: AccessRules, headers: Headers) -> None:
    if not has_key(rules, headers):
        message = "The key is missing or wrong. Send it as: Authorization: Bearer KEY"
        scheme = {"www-authenticate": "Bearer"}
        raise RequestRefused(401, message, code="invalid_api_key", kind="authentication_error", headers=scheme)


def check_content_type(given: list[str]) -> None:
    if [value.partition(";")[0].strip().lower() for value in given] != [JSON]:
        raise RequestRefused(415, f"The body must be {JSON}.", code="content_type")


def allowed_origin(rules: AccessRules, headers: Headers) -> str | None:
    """The origin that --cors lets ask, if the request has one; only then are there CORS headers."""
    origins = values(headers, b"origin")
    return origins[0] if len(origins) == 1 and origins[0].lower() in rules.origins else None


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]


def preflight_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """What a page may send: the headers that it asked for, since clients add their own (x-stainless-lang)."""
    asked = ",".join(values(headers, b"access-control-request-headers"))
    names = [name.strip() for name in asked.split(",")]
    sendable = ", ".join(names) if all(map(TOKEN.fullmatch, names)) else USUAL_HEADERS
    return [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", sendable.encode()),
        (b"access-control-max-age", PREFLIGHT_SECONDS.encode()),
    ]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_host(host: str) -> bool:
    """Whether this can be an address to listen on: one in numbers, or a name, which is not looked for."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return not re.fullmatch(r"[0-9.]*|.*:.*", host)


def is_wildcard(host: str) -> bool:
    """Whether a server on this address listens on every address of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
