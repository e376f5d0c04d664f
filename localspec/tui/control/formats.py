"""The weight formats that a model can have on this machine: each with its size and whether it fits.

Reads headers; loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.requests import LoadRequest
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.loading.fit import FitReport, FormatFit
from localspec.tui.control.fit_report import report_of

LOADED = "●"
HOW = "Load one: /quant {name}"


@dataclass(frozen=True, slots=True)
class FormatList:
    """`loaded`: the format that the model is in now; "" for none."""

    report: FitReport
    loaded: str

    def lines(self) -> list[str]:
        """A line for each format, those of `report.formats`."""
        rows = [
            (mark, one.quant, f"{size_words(one.target_bytes)} weights", f"{size_words(one.total_bytes)} in all", words)
            for one, mark, words in ((one, self.mark(one), self.words(one)) for one in self.report.formats)
        ]
        return columns(rows, right={2, 3}).splitlines()

    def mark(self, one: FormatFit) -> str:
        return LOADED if one.quant == self.loaded else " "

    def words(self, one: FormatFit) -> str:
        """Whether it fits, and what it is now."""
        named = [
            *(["loaded"] if one.quant == self.loaded else []),
            *(["auto"] if one.quant == self.report.chosen else []),
        ]
        return " · ".join([one.word, *named])

    @property
    def head(self) -> str:
        free = size_words(self.report.free_bytes)
        where = " on the GPU" if self.report.device.startswith("cuda") else ""
        return f"{one_line(self.report.name)} at {self.report.context:,} tokens, {free} free{where}"


def formats_of(load: LoadRequest, loaded: str, *, held_bytes: int = 0, gpu_bytes: int | None = None) -> FormatList:
    """`loaded`: the format it is in now. `held_bytes` would be given back first; `gpu_bytes`: all memory of the GPU
    that it is on. Waits for the disk."""
    any_format = load.in_format("auto")
    return FormatList(report_of(any_format, held_bytes=held_bytes, gpu_bytes=gpu_bytes).report, loaded)


def as_text(found: FormatList) -> str:
    """The list for the transcript, with what to type."""
    other = next((one.quant for one in found.report.formats if one.word == "fits" and one.quant != found.loaded), "")
    return "\n".join([found.head, *found.lines(), *([HOW.format(name=other)] if other else [])])
