"""What a loaded model says beside its answers, as Notices. Knows no sentence of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from localspec.core.events import Notice
from localspec.core.requests import GenerateRequest
from localspec.engine.cuda_graphs import Graphed
from localspec.engine.protocols import Resident


def drafter_failed(message: str) -> Notice:
    return Notice("warning", "drafter_failed", message, "The text is the same, only slower. Reload to try again.")


def flat(name: str) -> Notice:
    message = f"{name} finds every token equally likely: its weights are all zero, or so large that they overflow."
    return Notice("warning", "flat", message, "Download the model again, or choose another.")


def graph_notices(decoders: Iterable[Resident]) -> Iterator[Notice]:
    """Notices, once each, for decoders that cannot replay CUDA graphs."""
    for decoder in decoders:
        if isinstance(decoder, Graphed) and (fault := decoder.unreported_fault()):
            yield Notice("info", "graphs", f"CUDA graphs are off: {fault}.", "The text is the same, only slower.")


def read_otherwise(typed: GenerateRequest, read: GenerateRequest) -> str:
    """The last question as the model reads it; "" if that is as it was typed."""
    pairs = zip(reversed(typed.messages or ()), reversed(read.messages or ()), strict=False)
    was, now = next(((was, now) for was, now in pairs if was.role == "user"), (None, None))
    return now.content if now is not None and now != was else ""
