"""The commands `localspec remote …`: servers that other programs run. They parse, call remote/ and print.

Only `find` and `probe` ask the network.
"""

from __future__ import annotations

import re

import click

from localspec.cli.completion import remotes
from localspec.cli.options import json_option
from localspec.core.errors import UsageError

KINDS = ["localspec", "llama-server", "vllm", "sglang", "lmstudio", "ollama", "openai"]  # those of remote.kinds
KEY_HELP = "The environment variable that holds the server's key."


def check_names(name: str, key_env: str | None) -> None:
    """UsageError for what models.toml would not take. The variable is not repeated: it may be the key itself."""
    from localspec.models.catalog_file import NAME, VARIABLE

    if re.fullmatch(NAME, name) is None:
        words = "Take one of letters, digits and _ . : + -, such as: localspec remote add box URL"
        raise UsageError(f"'{name[:100]}' cannot be a server's name.", hint=words)
    if key_env is not None and re.fullmatch(VARIABLE, key_env) is None:
        words = "Name a variable of letters, digits and _, such as: --key-env BOX_KEY"
        raise UsageError("--key-env takes the name of an environment variable, not the key.", hint=words)


@click.group(invoke_without_command=True)
@click.pass_context
def remote(context: click.Context) -> None:
    """Find, name and probe servers that other programs run.

    vLLM, SGLang, llama-server, LM Studio, Ollama, localspec serve, and others with OpenAI's protocol.

    Chat with one:  localspec chat NAME, or localspec chat --server URL
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@remote.command()
@json_option
def find(as_json: bool) -> None:
    """Look for servers on this machine.

    The usual ports are asked: 11535 (localspec), 8080 (llama-server), 8000 (vLLM), 30000 (SGLang), 1234 (LM Studio) and
    11434 (Ollama).

    At another port: localspec remote probe http://127.0.0.1:PORT
    """
    from localspec.cli import io, remote_text
    from localspec.cli.output import print_records
    from localspec.remote.discovery import PORTS, look

    found = look()
    looked = f"Tried ports {', '.join(map(str, PORTS))}. For another: localspec remote probe http://127.0.0.1:PORT"
    if as_json:
        print_records([remote_text.record(url, server) for url, server in found])
    elif found:
        io.print_text("\n".join(remote_text.found_line(url, server) for url, server in found))
        io.print_note(looked)
    else:
        io.print_note(f"No server answers on this machine. {looked}")


@remote.command()
@click.argument("name")
@click.argument("url")
@click.option("--model", metavar="MODEL", help="The model's name there.  [default: the server's first]")
@click.option("--key-env", metavar="NAME", help=KEY_HELP)
@click.option("--kind", type=click.Choice(KINDS), help="Kind of server.  [default: detected]")
def add(name: str, url: str, model: str | None, key_env: str | None, kind: str | None) -> None:
    """Name a server in your models.toml.

    The server is sent no request.
    """
    from localspec.cli.io import print_note
    from localspec.config.models_file import store_remote
    from localspec.models.catalog import Catalog
    from localspec.remote.address import parse

    check_names(name, key_env)
    fields = {"url": parse(url).url, "model": model, "key_env": key_env, "kind": kind}
    before = Catalog.load().remotes.get(name)
    file = store_remote(name, {field: value for field, value in fields.items() if value})
    instead = f", in place of {before.url}" if before and before.url != fields["url"] else ""
    print_note(f"Written to {file}{instead}. Try it: localspec remote probe {name}. Chat: localspec chat {name}")


@remote.command()
@json_option
def ls(as_json: bool) -> None:
    """List the servers that you have named.

    They are sent no request.
    """
    import msgspec

    from localspec.cli import io, remote_text
    from localspec.cli.output import print_records
    from localspec.models.catalog import Catalog

    named = Catalog.load().remotes
    if as_json:
        print_records([{"name": name, **msgspec.to_builtins(table)} for name, table in named.items()])
    elif named:
        io.print_text(remote_text.named_table(named))
    else:
        io.print_note("There are no servers yet. Add one: localspec remote add NAME URL")


@remote.command()
@click.argument("name", shell_complete=remotes)
@click.option("--key-env", metavar="NAME", help=KEY_HELP)
@json_option
def probe(name: str, key_env: str | None, as_json: bool) -> None:
    """Ask a server what it is.

    Its kind, its models and what it says of speculation are shown. NAME may also be a URL. The exit code is 7 if it
    does not answer, and 4 if it refuses the key.
    """
    from localspec.cli import io, remote_text
    from localspec.cli.output import print_records
    from localspec.models.catalog import Catalog
    from localspec.remote.names import remote_of
    from localspec.remote.server import find as ask

    server = remote_of(name, Catalog.load(), key_env=key_env or "")
    found = ask(server)
    if as_json:
        print_records(remote_text.record(found.access.name, found))
    else:
        io.print_text(remote_text.probe_text(found, server.model))


@remote.command()
@click.argument("name", shell_complete=remotes)
def rm(name: str) -> None:
    """Remove a server's name from your models.toml."""
    from localspec.cli.io import print_note
    from localspec.config.models_file import remove_remote

    print_note(f"Removed from {remove_remote(name)}.")
