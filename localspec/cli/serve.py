"""The commands around the server: serve, ps, stop. They parse, call serve/ and print."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any  # Any: click's parsed options

import click

from localspec.cli.completion import completions
from localspec.cli.names import MODEL_NAME
from localspec.cli.options import PARALLEL_HELP, Parallel, json_option, load_options, sampling_options
from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.sanitize import one_line

HOST_HELP = "Address to listen on; one that other machines reach needs a key.  [default: 127.0.0.1]"
CORS_HELP = "Accept requests from web pages of ORIGIN, e.g. http://localhost:3000.  [may be given more than once]"
ALLOW_HELP = "Also answer to this host name, e.g. box.local.  [may be given more than once]"
KEY_HELP = "Clients need the key in FILE, which only you may read.  [default: LOCALSPEC_API_KEY, if set]"
TTL_HELP = "Unload the model after this time without a request: 30m, 2h, off.  [default: config.toml's, or 30m]"


@click.command()
@click.argument("model", type=MODEL_NAME, required=False, shell_complete=completions)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=11535,
    show_default=True,
    metavar="N",
    help="Port; 0 for any that is free.",
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help=HOST_HELP)
@click.option("--cors", multiple=True, metavar="ORIGIN", help=CORS_HELP)
@click.option("--allow-host", multiple=True, metavar="NAME", help=ALLOW_HELP)
@click.option("--key-file", type=click.Path(path_type=Path), metavar="FILE", help=KEY_HELP)
@click.option("--ttl", metavar="TIME", help=TTL_HELP)
@click.option("--parallel", type=Parallel(), default="auto", metavar="N|auto", show_default=True, help=PARALLEL_HELP)
@load_options
@sampling_options
def serve(model: str | None, **given: Any) -> None:
    """Serve MODEL to other programs, with OpenAI's protocol.

    Without MODEL: the default_model of config.toml, or guide, built in. Up to 4 answers are written at once, as memory
    allows, and 4 requests may wait. Only programs on this machine can ask, unless --host says otherwise. Ends with
    Ctrl+C, or: localspec stop
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"The server needs {' and '.join(missing)}, which {'are' if missing[1:] else 'is'} not installed.",
            hint="Run: pip install 'localspec[serve]'",
        )
    from localspec.cli.server import serve_model

    serve_model(model, given)


@click.command()
@json_option
def ps(as_json: bool) -> None:
    """List the servers that run on this machine.

    Address, model, format, memory, context, speculation, requests answered and waiting are shown, and when the model is
    unloaded.
    """
    from localspec.cli import io
    from localspec.cli.output import print_records
    from localspec.cli.servers_text import servers_table
    from localspec.serve.registry import running

    found = running()
    if as_json:
        print_records(found)
    elif found:
        io.print_text(servers_table(found))
    else:
        io.print_note("No server is running. Start one: localspec serve")


@click.command()
@click.argument("server", required=False, metavar="[MODEL|PORT]")
@click.option("--all", "everything", is_flag=True, help="Stop every server.")
def stop(server: str | None, everything: bool) -> None:
    """Stop a server, by its model or port.

    The answers that it is writing end, too.
    """
    from localspec.cli import io
    from localspec.serve import registry

    if everything and server is not None:
        raise UsageError("Give a server or --all, not both.", hint="See what is running: localspec ps")
    found = registry.running()
    for one in found if everything else chosen(found, server):
        registry.stop(one)
        io.print_note(f"Stopped {one.address} ({one.model}).")


def chosen(found: list[Any], named: str | None) -> list[Any]:
    """The servers that were meant; UsageError where that is not clear."""
    if named is not None:
        found = [one for one in found if named in (one.model, one.address, one.address.rpartition(":")[2])]
    if not found and named is not None:
        raise NotDownloaded(f"No server '{one_line(named)}' is running.", hint="See what is running: localspec ps")
    if not found:
        raise NotDownloaded("No server is running.", hint="Start one: localspec serve")
    if len(found) > 1:
        raise UsageError("Several servers are running.", hint="Name a port as `localspec ps` lists it, or give --all.")
    return found
