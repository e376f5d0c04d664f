"""Stands between a client and a server, and writes every request into a file: how tests/serve/recorded was made.

    python -m tests.serve.record --to http://127.0.0.1:11535 --port 11536 --into requests.json --from "aider 0.86 …"

Runs until Ctrl+C. Keys are not written.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

KEPT = ("accept", "content-type", "user-agent", "x-stainless-lang", "x-title", "http-referer")


class Between(BaseHTTPRequestHandler):
    def __init__(self, to: str, into: Path, source: str, *others: Any) -> None:
        self.to, self.into, self.source = to, into, source
        super().__init__(*others)

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        self.note(content)
        there = HTTPConnection(urlsplit(self.to).netloc)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        there.request(self.command, self.path, content or None, headers)
        with there.getresponse() as response:
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while part := response.read1():
                self.wfile.write(part)
        self.close_connection = True

    do_GET = do_POST = answer

    def note(self, content: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() in KEPT}
        request = {"method": self.command, "path": self.path, "headers": headers}
        kept = json.loads(self.into.read_text()) if self.into.exists() else {"from": self.source, "requests": []}
        kept["requests"].append({**request, "body": json.loads(content) if content else None})
        self.into.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--to", required=True)
    parser.add_argument("--port", type=int, default=11536)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--from", dest="source", required=True)
    given = parser.parse_args()
    handler = partial(Between, given.to, given.into, given.source)
    ThreadingHTTPServer(("127.0.0.1", given.port), handler).serve_forever()


if __name__ == "__main__":
    main()
