"""Options of `localspec bench` that are programs under benchmarks/ now: an error names the program."""

from __future__ import annotations

import click

PROGRAMS = {
    "--shape": "benchmarks.shapes",
    "--agree": "benchmarks.shapes",
    "--exit-layer": "benchmarks.shapes",
    "--offload": "benchmarks.offload",
    "--ui": "benchmarks.ui",
    "--task": "benchmarks.exam",
    "--wrong": "benchmarks.exam",
    "--prompts": "benchmarks.exam.speed",
}
LLAMA_CPP = "llama-cpp"  # a value of --against


def where_it_went(fault: click.UsageError) -> str:
    """One sentence for an option that an earlier version had; "" for every other fault."""
    if fault.ctx is None or fault.ctx.info_name != "bench":
        return ""
    if isinstance(fault, click.NoSuchOption) and fault.option_name in PROGRAMS:
        return sentence(fault.option_name, PROGRAMS[fault.option_name])
    if isinstance(fault, click.BadParameter) and LLAMA_CPP in fault.message:
        return sentence(f"--against {LLAMA_CPP}", PROGRAMS["--shape"])
    return ""


def sentence(option: str, program: str) -> str:
    return f"{option} moved: run `python -m {program}` from a clone."
