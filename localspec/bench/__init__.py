"""Measures speculation honestly: every way of decoding on the same prompts, in one process, taking turns."""

from __future__ import annotations

from localspec.bench.measure import measure

__all__ = ["measure"]
