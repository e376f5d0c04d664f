"""The command line: parses, calls the Python interface, prints. Imports nothing heavy until a command needs it.

Data goes to stdout; progress, warnings and timings go to stderr.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any  # Any: click's parsed options

import click
from click.shell_completion import shell_complete
from msgspec.structs import replace

from localspec.cli.compatibility import fit, pair
from localspec.cli.completion import completions
from localspec.cli.config import config, laid_to_config
from localspec.cli.history import history
from localspec.cli.io import discard_output, mend_streams, print_error, print_os_error, read_prompt
from localspec.cli.models import ls, rm, show, verify_files
from localspec.cli.moved_options import where_it_went
from localspec.cli.names import MODEL_NAME, NAME_ANYWHERE
from localspec.cli.options import (
    BEAMS_HELP,
    PARALLEL_HELP,
    Parallel,
    given_load_options,
    given_sampling,
    json_option,
    load_options,
    sampling_options,
    setting,
)
from localspec.cli.pull import pull
from localspec.cli.remote import KEY_HELP, remote
from localspec.cli.serve import ps, serve, stop
from localspec.cli.synonyms import ours
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.requests import LOAD_OPTIONS, MOST_BEAMS, GenerateRequest, Message, SamplingOptions
from localspec.core.version import __version__
from localspec.core.weight_formats import LISTED

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells count

FILE = click.Path(path_type=Path)
BATCH_HELP = "Answer every line of a file of JSON lines, several at once; - reads piped lines."
RESULTS_HELP = "With --batch: write the results to FILE; what it has already is not answered again. - prints them."
SWEEP_HELP = "Find the best exit-layer, or k; exit-layer=2:8:2 tries 2, 4, 6 and 8.  [may be given twice]"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="localspec %(version)s")
def cli() -> None:
    """Chat with a local model, faster: a cheap drafter guesses ahead, and the model checks many guesses at once.

    Start with:  localspec chat
    """


@cli.command()
@click.argument("model", type=NAME_ANYWHERE, required=False, shell_complete=completions)
@load_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="System prompt.")
@click.option("-c", "--continue", "latest", is_flag=True, help="Continue the chat used last.")
@click.option("--chat", "chat_id", metavar="ID", help="Continue this chat; the beginning of its id is enough.")
@click.option("--server", metavar="URL", help="Chat with this server instead; MODEL is then a model's name there.")
@click.option("--key-env", metavar="NAME", help=KEY_HELP)
@click.option("--no-history", is_flag=True, help="Do not save this chat.")
@click.option("--inline", is_flag=True, help="Run below the shell's prompt instead of full screen.")
@setting("--theme", metavar="NAME", help="Colour theme: built in, or one of your themes/*.toml beside config.toml.")
def chat(
    model: str | None,
    system: str | None,
    latest: bool,
    chat_id: str | None,
    no_history: bool,
    inline: bool,
    theme: str | None,
    **given: Any,
) -> int:
    """Chat in the terminal with MODEL.

    MODEL is a key of the catalogue, a model that `localspec ls` lists, a folder, a GGUF file, a model of another
    program (ollama:qwen3:8b; Ctrl+O lists them), or a server that `localspec remote add` has named. Without MODEL: the
    default_model of config.toml, or guide, built in.

    Chats are saved on this computer. A continued chat uses its own model, unless MODEL names another.
    """
    start_without_collecting()
    from localspec import history as chats
    from localspec.cli.download.missing_model import own_model_named, pull_if_missing
    from localspec.cli.remote_chat import chat_with, named_remote, refuse_local, remote_tuning
    from localspec.cli.wrong_draft import checked_load
    from localspec.config.reading import read
    from localspec.models.catalog import Catalog
    from localspec.models.model_paths import require_model
    from localspec.tui import app
    from localspec.tui.control import tuning

    if latest + (chat_id is not None) + no_history > 1:
        raise UsageError("--continue, --chat and --no-history cannot be combined.", hint="Use one of them.")
    settings = read()
    past = chats.recall(chat_id) if latest or chat_id is not None else None
    kept_model = past.chat.model_key if past else ""
    if remote := named_remote(model, given["server"], given["key_env"], kept_model):
        refuse_local(name for name in LOAD_OPTIONS if is_given(name))
        tuned = remote_tuning(settings, remote, given_sampling(given))
        notice = tuned.begin_chat(given["preset"], past)
        kept = settings.chat.history and not no_history
        return chat_with(remote, tuned, system, past, history=kept, theme=theme, inline=inline, notices=notice)
    model = Catalog.load().plain_name(model) if model else None
    laid = laid_to_config() if model is None and past is None else nullcontext()
    with laid, own_model_named(past.chat if past and not model else None):
        model = model or (past.chat.model_key if past else settings.default_model)
        pull_if_missing(model, given["draft"])
        require_model(model)
    tuned = tuning.begin(settings, model, load=given_load_options(given), sampling=given_sampling(given))
    notice = tuned.begin_chat(given["preset"], past)
    tuned.load = checked_load(tuned.load, tuned.catalog, tuned.now.title)
    if past is not None and model == past.chat.model_key:
        tuned.begin_draft(past)
    kept = settings.chat.history and not no_history
    return app.run(tuned, system, past, history=kept, theme=theme, inline=inline, notices=notice)


@cli.command()
@click.argument("model", type=MODEL_NAME, shell_complete=completions)
@click.argument("prompt", required=False)
@load_options
@sampling_options
@click.option("--max-tokens", type=int, metavar="N", help="Stop after N tokens.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Stop before this text.  [may be given more than once]")
@click.option("--beams", type=click.IntRange(1, MOST_BEAMS), default=1, metavar="N", help=BEAMS_HELP)
@click.option("-s", "--system", metavar="TEXT", help="System prompt.")
@click.option("--raw", is_flag=True, help="Complete PROMPT as plain text, without the chat template.")
@click.option("--batch", type=FILE, metavar="FILE", help=BATCH_HELP)
@click.option("--output", "results", type=FILE, metavar="FILE", help=RESULTS_HELP)
@click.option(
    "--parallel",
    type=Parallel(),
    metavar="N|auto",
    help=f"{PARALLEL_HELP} Needs --batch.  [default: auto]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option("--jsonl", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--stats", is_flag=True, help="Print statistics as a line of JSON on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Print progress and notes even when stderr is not a terminal.")
@click.option(
    "--trace", type=FILE, metavar="FILE", help="Write every round to a new file; read it: localspec trace FILE"
)
def run(model: str, prompt: str | None, **given: Any) -> int:
    """Answer one PROMPT with MODEL and exit. Piped input is put before PROMPT.

    MODEL is a key of the catalogue, a model that `localspec ls` lists, a folder, a GGUF file, or a model of another
    program: ollama:qwen3:8b.

    With --batch FILE, answer every line of a file, several at once: {"prompt": "…"} or {"messages": […]}, optionally
    with "id", "max_tokens", "stop" and sampling options. Results are JSON lines.

    On a terminal, control characters are removed from the answer. A pipe or a file gets it unchanged.
    """
    leave_on_interrupt()
    from localspec.cli.batch import BatchFile, answer_batch
    from localspec.cli.batch_lines import BatchDefaults, read_batch
    from localspec.cli.download.missing_model import model_comes_first, pull_if_missing
    from localspec.cli.run import Output, answer_once, references, sampling
    from localspec.config import precedence
    from localspec.config.reading import read
    from localspec.models.catalog import Catalog
    from localspec.models.template_choice import template_of

    shown = {name: given[name] for name in ("jsonl", "stats", "verbose", "trace")}
    output = Output(json=given["as_json"], **shown)
    if output.json and output.jsonl:
        raise UsageError("--json and --jsonl cannot be combined.", hint="Use one of them.")
    if given["raw"] and given["system"]:
        raise UsageError(
            "--raw and --system cannot be combined.", hint="Put the system prompt into PROMPT, or drop --raw."
        )
    if given["trace"] and given["beams"] > 1:
        raise UsageError("--trace and --beams cannot be combined: nothing is drafted.", hint="Use one of them.")
    check_batch(prompt, given)
    lines = read_batch(given["batch"]) if given["batch"] is not None else None
    with model_comes_first(model):
        pull_if_missing(model, given["draft"])
    settings, catalog = read(), Catalog.load()
    entry = precedence.entry_of(catalog, model)
    named = precedence.preset_name(settings, entry, given["preset"])
    preset = settings.preset(named) if named else precedence.NO_PRESET
    asked = given_sampling(given).over(preset if given["preset"] else SamplingOptions())
    raw, system = given["raw"], precedence.instructions(entry, given["system"], preset)
    common = GenerateRequest(
        max_tokens=given["max_tokens"],
        stop=given["stop"],
        sampling=sampling(asked, precedence.layers(settings, entry, preset), beams=given["beams"]),
        template=None if raw or entry is None else template_of(entry),
        references=references(settings),
        beams=given["beams"],
    )
    usual, loading = precedence.usual(settings, named), given_load_options(given)
    if lines is not None:
        load = precedence.load_request(settings, catalog, model, {"parallel": "auto", **loading})
        return answer_batch(load, BatchFile(lines, BatchDefaults(common, system, raw), given["results"]), output, usual)
    text = read_prompt(prompt)
    turns = ((Message("system", system),) if system else ()) + (Message("user", text),)
    request = replace(common, prompt=text) if raw else replace(common, messages=turns)
    return answer_once(precedence.load_request(settings, catalog, model, loading), request, output, usual)


def check_batch(prompt: str | None, given: dict[str, Any]) -> None:
    """UsageError for what goes with --batch alone, or not with it."""
    if given["batch"] is None:
        alone = [
            flag for flag, name in (("--output", "results"), ("--parallel", "parallel")) if given[name] is not None
        ]
        if alone:
            raise UsageError(f"{alone[0]} needs --batch.", hint="Leave it out, or give --batch FILE.")
        return
    others = {
        "PROMPT": prompt,
        "--json": given["as_json"],
        "--beams": given["beams"] > 1,
        **{f"--{name}": given[name] for name in ("jsonl", "stats", "trace")},
    }
    for name, value in others.items():
        if value:
            raise UsageError(f"{name} and --batch cannot be combined.", hint="Leave one of them out.")


@cli.command()
@click.argument("file", type=FILE)
def trace(file: Path) -> None:
    """Print the rounds of a trace.

    Each round shows what was proposed, accepted and rejected, by which drafter, and how long it took. FILE is what
    `localspec run --trace FILE` wrote. After each token come its probabilities by the drafter and by the model, before
    temperature, top-k, top-p and min-p.
    """
    from localspec.cli.io import print_text
    from localspec.cli.trace import read_trace
    from localspec.cli.trace_text import trace_lines

    for line in trace_lines(read_trace(file)):
        print_text(line)


@cli.command()
@click.argument("model", default="guide", shell_complete=completions)
@load_options
@click.option(
    "-n", "--max-tokens", type=click.IntRange(8), default=64, show_default=True, metavar="N", help="Tokens per answer."
)
@click.option(
    "-r", "--repeats", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Runs of every prompt."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["md", "json", "jsonl", "csv"]),
    default="md",
    show_default=True,
    help="jsonl: progress events, then the figures, one per line. Without -o, a terminal gets a table that fits.",
)
@click.option("--format", "formats", metavar="FORMATS", help=f"Formats to compare, with commas: {', '.join(LISTED)}.")
@click.option("--against", type=click.Choice(["transformers"]), help="Also measure transformers' own generate.")
@click.option("--sweep", multiple=True, metavar="SETTING", help=SWEEP_HELP)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Write a plot (.svg or .png).")
def bench(output: str, **given: Any) -> None:
    """Measure the speed of MODEL with each of its drafters.

    Plain decoding and every drafter that MODEL can use take turns on fixed prompts of eight kinds.

    With --sweep, measure every exit layer or draft length, and remember the fastest for this model on this machine.
    """
    leave_on_interrupt()
    from localspec.bench import options
    from localspec.cli.io import as_json, columns_of_stdout, print_event, print_fitted
    from localspec.cli.progress import ProgressBar

    asked = {name for name in click.get_current_context().params if is_given(name)}
    with ProgressBar() as bar:
        tell, warn = (print_event, print_event) if output == "jsonl" else (bar.show, bar.say)
        report = options.run_bench(asked, given, tell, warn)
    if "output" not in asked and columns_of_stdout() is not None:
        print_fitted(report.to_text())
    elif output == "jsonl":
        click.echo(as_json(json.loads(report.to_json())))
    else:
        click.echo({"md": report.to_markdown, "json": report.to_json, "csv": report.to_csv}[output]())
    options.draw(report, given["plot"])


@cli.command()
@click.argument("model", default="guide", shell_complete=completions)
@load_options
@click.option("--prompts", type=click.IntRange(1), default=8, show_default=True, metavar="N", help="Number of prompts.")
@click.option(
    "--max-tokens", type=click.IntRange(1), default=64, show_default=True, metavar="N", help="Tokens per answer."
)
@json_option
def verify(prompts: int, max_tokens: int, as_json: bool, **given: Any) -> int:
    """Check on this machine that drafting changes no text.

    With every drafter that MODEL can use, each prompt is answered greedily and with a seed, with drafts of all lengths,
    and compared with the answer without drafts. Where rounding alone decides between two tokens, that is counted as a
    near tie. The exit code is 6 if an answer differs in any other way.
    """
    leave_on_interrupt()
    from localspec.bench.options import load_request
    from localspec.cli.proof import verify as prove

    return prove(load_request(given), prompts=prompts, max_tokens=max_tokens, as_json=as_json)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, for bug reports.")
def doctor(as_json: bool) -> int:
    """Check this computer, and list problems.

    Versions, GPU, processor, memory, login, folders and settings are shown. Nothing is downloaded or changed, and no
    token or chat is printed. The exit code is 1 if there is an error, 0 if there are only warnings.
    """
    leave_on_interrupt()
    import msgspec

    from localspec.cli import io
    from localspec.cli.doctor import examine
    from localspec.cli.doctor.text import as_text

    report = examine()
    io.print_text(io.as_json(msgspec.to_builtins(report)) if as_json else as_text(report))
    return int(report.is_broken)


for command in (pull, ls, show, rm, verify_files, fit, pair, serve, ps, stop, remote, history, config):
    cli.add_command(command)


def is_given(name: str) -> bool:
    """True for an option that was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def start_without_collecting() -> None:
    """Disables garbage collection during imports, of which it takes a tenth of the time. The screen enables it."""
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)


def leave_on_interrupt() -> None:
    """Makes Ctrl+C end the program from here on. Not by an exception: torch swallows one while it is imported."""

    def stop(*_: object) -> None:
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\n")  # so that the shell's prompt begins a line
        os._exit(Cancelled.exit_code)

    if threading.current_thread() is threading.main_thread():
        context = click.get_current_context()
        context.call_on_close(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, stop)))


def main() -> None:
    """Runs the program; errors become one sentence and an exit code."""
    mend_streams()
    try:
        exit_code = outcome()
        sys.stdout.flush()
    except BrokenPipeError:
        exit_code = EXIT_BROKEN_PIPE
        discard_output()
    except OSError as fault:
        exit_code = print_os_error(fault)
        discard_output()
    sys.exit(exit_code)


def outcome() -> int:
    """Runs the command, without click's own `main`, which would exit with 1 on a closed pipe."""
    if instruction := os.environ.get("_LOCALSPEC_COMPLETE"):
        return shell_complete(cli, {}, "localspec", "_LOCALSPEC_COMPLETE", instruction)
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # __main__ has taken it
        with cli.make_context("localspec", sys.argv[1:] or ["--help"]) as context:
            return cli.invoke(context) or 0
    except LocalspecError as fault:
        print_error(str(fault))
        return fault.exit_code
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as fault:
        command = fault.ctx.command_path if fault.ctx else "localspec"
        print_error(where_it_went(fault) or ours(fault) or f"{usage_message(fault)} Try: {command} --help")
        return UsageError.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return Cancelled.exit_code


def usage_message(fault: click.UsageError) -> str:
    """click's message; it names the environment variable instead of the flag where the value came from there."""
    if isinstance(fault, click.BadParameter) and fault.ctx is not None and fault.param is not None:
        source = fault.ctx.get_parameter_source(fault.param.name or "")
        if source is click.core.ParameterSource.ENVIRONMENT:
            return f"Invalid value for {fault.param.envvar} in the environment: {fault.message}"
    return fault.format_message()
