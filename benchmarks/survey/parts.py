"""The parts of a survey: each is a title, the device it runs on, and how its tables are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.shapes.agreement import PROMPT_TOKENS, time_writers
from benchmarks.shapes.forwards import Plan
from benchmarks.shapes.layer_offload import Rate
from benchmarks.shapes.measure import ShapeRequest, Watch, measure_shape, missing
from benchmarks.shapes.random_weights import SHAPES, USUAL
from benchmarks.shapes.report import ShapeReport, forward_table, ratio_text, text_table
from benchmarks.survey.early_exit import Race, contenders, table
from localspec.bench.tables import markdown
from localspec.core.weight_formats import ListedFormat
from localspec.loading.sources import StateDictSource

WIDTHS = (1, 2, 4, 5, 6, 8, 9, 16, 17)  # 5 and 6, 8 and 9, 16 and 17: where bitsandbytes' fused products may end
TURNS = 9  # of every figure at most, while there is time
TOKENS, OFFLOADED_TOKENS, EXIT_TOKENS = 64, 32, 32
AGREEMENT = (0.8, 0.9)
BUS = 2 * 10**9  # bytes a second
EXIT_K = 4


@dataclass(frozen=True, slots=True)
class Survey:
    """A survey's settings: the measurements, the device, the weights; and who follows the progress."""

    shape: str
    device: str
    threads: int
    source: StateDictSource
    watch: Watch

    @property
    def formats(self) -> tuple[ListedFormat, ...]:
        """The formats that this machine can run."""
        return tuple(kind for kind in USUAL[self.device] if not missing(kind, self.device))

    @property
    def lacking(self) -> list[str]:
        found = ((kind, missing(kind, self.device)) for kind in USUAL[self.device])
        return [f"Unmeasured: {kind}. {why}" for kind, why in found if why]

    def measured(self, **asked: object) -> ShapeReport:
        request = ShapeRequest(
            self.shape,
            **{"repeats": TURNS, "threads": self.threads, "device": self.device, **asked},  # type: ignore[arg-type]
        )
        return measure_shape(request, self.watch, self.source)


@dataclass(frozen=True, slots=True)
class Part:
    """`weight`: its share of the time beside those of the others."""

    title: str
    device: str
    weight: float
    run: Callable[[Survey], str]


def per_width(survey: Survey) -> str:
    """Every format, and transformers in floats and in nf4."""
    plan = Plan(widths=WIDTHS, depths=(PROMPT_TOKENS,), prefill=0)
    report = survey.measured(formats=survey.formats, against=("transformers",), plan=plan)
    words = (
        f"{turns(report)} turns. Memory reads {ratio_text(report.bandwidth)} GB/s, in turn with the forwards;"
        " × is transformers' time over ours."
    )
    return "\n\n".join([words, markdown(forward_table(report.forwards())), *survey.lacking, *report.notes])


def turns(report: ShapeReport) -> int:
    """The turns of the work that has fewest."""
    return min(len(found) for found in report.times[report.memory.name].values())


def speculation(survey: Survey) -> str:
    kinds: tuple[ListedFormat, ...] = ("bf16", "nf4", "int8") if survey.device == "cuda" else ("int8", "int4", "nf4")
    kinds = tuple(kind for kind in kinds if kind in survey.formats) or ("bf16",)
    return texts(survey, formats=kinds, lengths=("4", "auto"), max_tokens=TOKENS)


def offload(survey: Survey) -> str:
    kinds: tuple[ListedFormat, ...] = ("int8",) if survey.device == "cpu" else ("bf16", "nf4")
    kinds = tuple(kind for kind in kinds if kind in survey.formats) or ("bf16",)
    return texts(survey, formats=kinds, lengths=("8", "16"), max_tokens=OFFLOADED_TOKENS, offload=Rate(BUS))


def texts(survey: Survey, **asked: object) -> str:
    """Speculation with forced agreement."""
    plan = Plan(widths=(1,), depths=(PROMPT_TOKENS,), prefill=0)
    report = survey.measured(agree=AGREEMENT, plan=plan, **asked)
    layers = SHAPES[survey.shape].num_layers
    words = (
        f"{len(report.writers[0].texts)} turns. Every forward runs, a coin decides whether a proposal is right."
        f" Exit after {max(layers // 4, 1)} of {layers} layers."
    )
    return "\n\n".join([words, markdown(text_table(report.texts())), *report.notes])


def early_exit(survey: Survey) -> str:
    """Our early exit beside transformers', where every draft is right."""
    shape = SHAPES[survey.shape]
    dense: ListedFormat = "bf16"
    quantised: ListedFormat = "int8" if survey.device == "cpu" else "nf4"
    kinds = (dense, *(kind for kind in survey.formats if kind == quantised))
    survey.watch.say("transformers and ours")
    leave = max(shape.num_layers // 4, 1)
    ways = contenders(Race(shape, survey.source, leave, EXIT_K, EXIT_TOKENS, survey.threads, survey.device), kinds)
    found = time_writers(ways, TURNS, survey.watch.tell, survey.watch.late)
    words = (
        f"{len(found[0])} turns. The layers behind exit {leave} add nothing here (zeros where they end, which take the"
        " time of any others), so every draft is right, for both. Whole answers, prompt included."
    )
    return "\n\n".join([words, markdown(table(ways, found))])


PARTS = (
    Part("Forwards by width on a CPU", "cpu", 4, per_width),
    Part("Speculation on a CPU, forced agreement", "cpu", 3, speculation),
    Part("Offload on a CPU, layers at 2 GB/s", "cpu", 3, offload),
    Part("Early exit beside transformers' on a CPU", "cpu", 3, early_exit),
    Part("Forwards by width on a GPU", "cuda", 4, per_width),
    Part("Speculation on a GPU, forced agreement", "cuda", 3, speculation),
    Part("Offload on a GPU, layers from main memory", "cuda", 3, offload),
    Part("Early exit beside transformers' on a GPU", "cuda", 3, early_exit),
)
