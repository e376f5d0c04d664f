"""The command line: parse, call the Python interface, print. Imports nothing heavy until a command needs it.

stdout is data; stderr is progress, warnings and timings.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar  # Any: click's parsed options

import click
from click.shell_completion import shell_complete

from localspec import __version__
from localspec.cli.config import config
from localspec.cli.history import history
from localspec.cli.models import completions
from localspec.cli.streams import complain, give_up_output, mend_streams, read_prompt, tell_of
from localspec.core.errors import Cancelled, LocalspecError, UsageError
from localspec.core.requests import GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.core.weight_formats import INT8_THRESHOLD

F = TypeVar("F", bound=Callable[..., Any])

SHAPES = ["llama2-7b", "llama-1b", "135m", "tiny"]  # of localspec.bench.shapes, which --help must not import
EXIT_NOBODY_READS = 141  # 128 + SIGPIPE, as shells count

AGAINST_HELP = "Also measure a peer; llama-cpp needs --shape.  [may be given twice]"
PROMPTS_HELP = "Eight fixed questions, or all that the exam's model must know.  [default: bench]"
OFFLOAD_HELP = "Of a shape: layers behind the exit come and go at a rate, 2GB/s say, or as a disk is: real."
SWEEP_HELP = "Find the best exit-layer, or k; exit-layer=2:8:2 tries 2, 4, 6 and 8.  [may be given twice]"
QUANT_HELP = "Weight format: auto, int8, int4, nf4, fp4, fp32 or bf16."
DEVICE_HELP = "auto, cpu, cuda, cuda:N, or offload: most layers on disk, or beside a GPU in main memory."
THRESHOLD_HELP = "On a GPU, int8 multiplies inputs beyond T in 16 bits; 0 for none.  [default: 6]"
SAVE_HELP = "Keep on disk what nf4, fp4, and int8 on a GPU make of the weights: the next start reads that."
DRAFT_QUANT_HELP = "A draft model's own weight format.  [default: the target's, where it can have it]"
FOLDING_HELP = "Have guide read what you type as it is: capitals, slips of a finger and sums."
DRAFT_HELP = "Who drafts: auto, off, early-exit[:E], or a smaller model, named as MODEL is."


def options(*added: Callable[[F], F]) -> Callable[[F], F]:
    """Several click options as one decorator, in reading order."""

    def decorate(command: F) -> F:
        for option in reversed(added):
            command = option(command)
        return command

    return decorate


def setting(flag: str, **attributes: Any) -> Callable[[F], F]:
    """An option that the environment may give too: --top-k as LOCALSPEC_TOP_K."""
    name = flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, envvar=f"LOCALSPEC_{name}", **attributes)


load_options = options(
    setting("--draft", default="auto", metavar="DRAFT", help=DRAFT_HELP, shell_complete=completions),
    click.option("--draft-quant", default="auto", metavar="FORMAT", help=DRAFT_QUANT_HELP),
    setting("--k", default="auto", metavar="N|auto", help="Draft length: auto, heuristic, or 0 to 16."),
    setting("--quant", default="auto", metavar="FORMAT", help=QUANT_HELP),
    click.option(
        "--keep-head", is_flag=True, help="Leave the output head in 16 bits: with nf4, fp4, and int8 on a GPU."
    ),
    click.option(
        "--int8-threshold", type=click.FloatRange(0), default=INT8_THRESHOLD, metavar="T", help=THRESHOLD_HELP
    ),
    setting("--save-quantized", is_flag=True, help=SAVE_HELP),
    setting("--device", default="auto", metavar="DEVICE", help=DEVICE_HELP),
    click.option("--max-memory", metavar="SIZE", help="Memory for the model, 8GB say; layers beyond it come and go."),
    click.option("--no-folding", "folding", flag_value=False, default=True, help=FOLDING_HELP),
    setting("--ctx", type=int, metavar="N", help="Context in tokens.  [default: the model's, up to 8192]"),
    setting("--threads", type=click.IntRange(1, 1024), metavar="N", help="CPU threads.  [default: measured]"),
)
sampling_options = options(
    setting("--preset", metavar="NAME", help="A way of sampling: precise, balanced, creative, or one of yours."),
    setting("--temperature", type=float, metavar="T", help="0 is greedy.  [default: the model's]"),
    setting("--top-k", type=int, metavar="N", help="Keep the N likeliest tokens."),
    setting("--top-p", type=float, metavar="P", help="Keep the likeliest tokens up to this mass."),
    setting("--min-p", type=float, metavar="P", help="Drop tokens below this share of the likeliest."),
    setting("--repetition-penalty", type=float, metavar="R", help="Above 1: repeat less."),
    setting("--seed", type=int, metavar="N", help="The same text every time, whatever drafts."),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="localspec %(version)s")
def cli() -> None:
    """Chat with a local model, faster: a cheap drafter guesses ahead, the model checks many guesses at once.

    Start with:  localspec chat
    """


@cli.command()
@click.argument("model", required=False, shell_complete=completions)
@load_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="A system prompt.")
@click.option("-c", "--continue", "latest", is_flag=True, help="Go on with the chat that was used last.")
@click.option("--chat", "chat_id", metavar="ID", help="Go on with this chat; the beginning of its id will do.")
@click.option("--no-history", is_flag=True, help="Keep nothing of what is said.")
@click.option("--inline", is_flag=True, help="Below the shell's last line, with the transcript and the prompt only.")
@setting("--theme", metavar="NAME", help="The colours: of Textual's themes, or of themes/*.toml beside config.toml.")
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
    """Chat in the terminal with MODEL, a key or a folder (default: guide, built in).

    MODEL may also be a GGUF file, or what another program keeps, as Ctrl+O lists it: ollama:qwen3:8b.

    Chats are kept on this computer. One that goes on does so with its own model, unless MODEL is another.
    """
    start_without_collecting()
    from localspec import history as chats
    from localspec.config.reading import read
    from localspec.runtime.draft_choice import check
    from localspec.tui import app
    from localspec.tui.control import tuning

    if latest + (chat_id is not None) + no_history > 1:
        raise UsageError("--continue, --chat and --no-history exclude each other.", hint="Give one of them.")
    settings = read()
    past = chats.recall(chat_id) if latest or chat_id is not None else None
    model = model or (past.chat.model_key if past else settings.default_model)
    tuned = tuning.begin(settings, model, load=said(given), sampling=sampling_of(given))
    notice = tuned.begin_preset(given["preset"], past.chat.preset if past else None)
    check(tuned.load)
    kept = settings.chat.history and not no_history
    return app.run(tuned, system, past, history=kept, theme=theme, inline=inline, notices=notice)


@cli.command()
@click.argument("model", shell_complete=completions)
@click.argument("prompt", required=False)
@load_options
@sampling_options
@click.option("--max-tokens", type=int, metavar="N", help="Stop after N tokens.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Stop before this text; may be given more than once.")
@click.option("-s", "--system", metavar="TEXT", help="A system prompt.")
@click.option("--raw", is_flag=True, help="Continue PROMPT as it is, without the chat template.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
@click.option("--jsonl", is_flag=True, help="Every event as a line of JSON.")
@click.option("--stats", is_flag=True, help="One JSON line of statistics on stderr.")
def run(model: str, prompt: str | None, **given: Any) -> int:
    """Answer one PROMPT with MODEL and exit; piped input is put before PROMPT.

    MODEL is a key, a folder, a GGUF file, or what another program keeps: ollama:qwen3:8b.

    A terminal gets the answer without control characters. A pipe or a file gets it raw, as the model wrote it.
    """
    leave_on_interrupt()
    from localspec.cli.run import Output, answer_once
    from localspec.config import precedence
    from localspec.config.reading import read
    from localspec.models import named_templates
    from localspec.models.catalog import Catalog

    output = Output(json=given["as_json"], jsonl=given["jsonl"], stats=given["stats"])
    if output.json and output.jsonl:
        raise UsageError("--json and --jsonl exclude each other.", hint="Give one of them.")
    if given["raw"] and given["system"]:
        raise UsageError("--raw has no place for --system.", hint="Put it into PROMPT, or leave --raw out.")
    settings, catalog = read(), Catalog.load()
    entry = precedence.entry_of(catalog, model)
    named = precedence.preset_name(settings, entry, given["preset"])
    preset = settings.preset(named) if named else precedence.NO_PRESET
    text, raw, system = read_prompt(prompt), given["raw"], precedence.instructions(entry, given["system"], preset)
    turns = ((Message("system", system),) if system else ()) + (Message("user", text),)
    request = GenerateRequest(
        messages=None if raw else turns,
        prompt=text if raw else None,
        max_tokens=given["max_tokens"],
        stop=given["stop"],
        sampling=precedence.sampling(settings, entry, sampling_of(given), preset),
        template=None if raw or entry is None else named_templates.find(entry.template or named_templates.OWN),
    )
    return answer_once(precedence.load_request(settings, catalog, model, said(given)), request, output)


@cli.command()
@click.argument("model", default="guide", shell_complete=completions)
@load_options
@click.option("-n", "--max-tokens", type=click.IntRange(8), default=64, show_default=True, help="Tokens per answer.")
@click.option("-r", "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of every prompt.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["md", "json", "jsonl", "csv"]),
    default="md",
    show_default=True,
    help="jsonl: how far it is as events, then the figures, a line each.",
)
@click.option("--against", type=click.Choice(["transformers", "llama-cpp"]), multiple=True, help=AGAINST_HELP)
@click.option("--shape", type=click.Choice(SHAPES), help="Instead of MODEL: random weights.")
@click.option("--ui", is_flag=True, help="Instead of a model's speed: what the chat's screen costs, on a shape.")
@click.option("--task", type=click.Choice(["guide"]), help="Instead of speed: what MODEL gets right in an exam.")
@click.option("--wrong", "list_wrong", is_flag=True, help="Of a task: show the wrong answers below the table.")
@click.option("--sweep", multiple=True, metavar="SETTING", help=SWEEP_HELP)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Of a sweep: a picture, .svg or .png.")
@click.option("--prompts", type=click.Choice(["bench", "exam"]), default="bench", help=PROMPTS_HELP)
@click.option("--format", "formats", metavar="FORMATS", help="Several: int8, int4, nf4, fp4, fp32, bf16.")
@click.option("--agree", metavar="SHARES", help="Speculate on a shape with forced agreement: 0.8, or 0.8,0.9.")
@click.option("--exit-layer", type=int, metavar="E", help="Early exit of a shape.  [default: a quarter of its layers]")
@click.option("--offload", metavar="RATE", help=OFFLOAD_HELP)
def bench(output: str, **given: Any) -> None:
    """Measure plain decoding, early exit and a draft model, taking turns on fixed prompts.

    With --shape, measure forwards of a model of that size with random weights, in every format. With --task, ask it
    the questions of an exam, with and without speculation, which must not change the scores. With --sweep, measure
    every exit layer or draft length, and remember the fastest for this model on this machine. With --ui, measure how
    much slower the chat is than `run`, and how soon it shows a key.
    """
    leave_on_interrupt()
    from localspec.bench import options
    from localspec.cli.output import as_json, print_event
    from localspec.cli.progress import Progress

    asked = {name for name in click.get_current_context().params if is_given(name)}
    with Progress() as bar:
        report = options.measured(asked, given, print_event if output == "jsonl" else bar.show)
    if output == "jsonl":
        click.echo(as_json(json.loads(report.to_json())))
    else:
        click.echo({"md": report.to_markdown, "json": report.to_json, "csv": report.to_csv}[output]())
    options.conclude(report, given)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One line of JSON, for a report of a fault.")
def doctor(as_json: bool) -> int:
    """Look at this computer: versions, GPU, processor, memory, folders, and what is wrong.

    Nothing is fetched or changed, and no token or chat is shown. The exit code is 1 where there is an error, and 0
    where there are warnings at most.
    """
    leave_on_interrupt()
    import msgspec

    from localspec.cli import output
    from localspec.cli.doctor import examine
    from localspec.cli.doctor.text import as_text

    report = examine()
    output.say(output.as_json(msgspec.to_builtins(report)) if as_json else as_text(report))
    return int(report.is_broken)


cli.add_command(history)
cli.add_command(config)


def is_given(name: str) -> bool:
    """On the command line, rather than a default."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def said(given: dict[str, Any]) -> dict[str, Any]:
    """Those fields of a LoadRequest that a flag or the environment gave."""
    context = click.get_current_context()
    sources = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
    names = [name for name in LoadRequest.__struct_fields__ if name in given]
    return {name: given[name] for name in names if context.get_parameter_source(name) in sources}


def sampling_of(given: dict[str, Any]) -> SamplingOptions:
    """None is what nobody said: these options have no default of their own."""
    return SamplingOptions(**{name: given[name] for name in SamplingOptions.__struct_fields__})


def start_without_collecting() -> None:
    """Of what is imported nothing is garbage, and to look for some takes a tenth of the start. The screen ends this."""
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)


def leave_on_interrupt() -> None:
    """From here on Ctrl+C ends the program. Not by an exception: torch, while it is imported, swallows that."""

    def stop(*_: object) -> None:
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\n")  # a line of its own for what the shell says next
        os._exit(Cancelled.exit_code)

    if threading.current_thread() is threading.main_thread():
        context = click.get_current_context()
        context.call_on_close(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, stop)))


def main() -> None:
    """The program: errors become one sentence and an exit code."""
    mend_streams()
    try:
        exit_code = outcome()
        sys.stdout.flush()
    except BrokenPipeError:
        exit_code = EXIT_NOBODY_READS
        give_up_output()
    except OSError as fault:
        exit_code = tell_of(fault)
        give_up_output()
    sys.exit(exit_code)


def outcome() -> int:
    """Runs the command. Not through click's own `main`, which would make a closed pipe exit code 1."""
    if instruction := os.environ.get("_LOCALSPEC_COMPLETE"):
        return shell_complete(cli, {}, "localspec", "_LOCALSPEC_COMPLETE", instruction)
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # __main__ has taken it
        with cli.make_context("localspec", sys.argv[1:] or ["--help"]) as context:
            return cli.invoke(context) or 0
    except LocalspecError as fault:
        complain(str(fault))
        return fault.exit_code
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as fault:
        command = fault.ctx.command_path if fault.ctx else "localspec"
        complain(f"{in_words(fault)} Try: {command} --help")
        return UsageError.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return Cancelled.exit_code


def in_words(fault: click.UsageError) -> str:
    """click names the flag, also where nobody typed it."""
    if isinstance(fault, click.BadParameter) and fault.ctx is not None and fault.param is not None:
        source = fault.ctx.get_parameter_source(fault.param.name or "")
        if source is click.core.ParameterSource.ENVIRONMENT:
            return f"Invalid value for {fault.param.envvar} in the environment: {fault.message}"
    return fault.format_message()
