"""What a chat with a server cannot do, since the model is not on this machine: a sentence for each command."""

from __future__ import annotations

from localspec.core.sanitize import one_line

LACKS = {
    "model": "This chat is with {server}. For a model on this machine: localspec chat MODEL",
    "draft": "{server} chooses its drafter: it is set where the server is started.",
    "why": "{server} chooses its drafter. What is known of it: /show",
    "quant": "{server} chooses its weight format: it is set where the server is started.",
    "template": "{server} formats the chat itself.",
    "bench": "/bench measures models on this machine. For a server's own answers: /stats",
    "fit": "/fit is about this machine's memory, and the model is at {server}.",
    "license": "The licence of a server's model is not known here: ask whoever runs {server}.",
    "unload": "Nothing is loaded here: the model is at {server}.",
    "log": "Nothing runs here that would have a log: the model is at {server}.",
}


def lack(command: str, server: str) -> str:
    """Why a command does nothing in a chat with this server; "" where it works, and without a server."""
    return LACKS[command].format(server=one_line(server)[:60]) if server and command in LACKS else ""
