"""How many rows the torch decoder takes at once, for the engine and for the memory plan. Knows no torch."""

from __future__ import annotations

from typing import Final

from localspec.core.requests import MAX_DRAFT

PREFILL_CHUNK: Final = 512  # rows of a prompt; a cancel waits for one chunk at most
GRAPH_WIDTH: Final = MAX_DRAFT + 1  # rows that are all read: the longest draft, and the pending token
GRAPH_ROWS: Final = 128  # rows of a prompt in a CUDA graph; beyond them starting the kernels costs nothing noticeable
MAX_GRAPHS: Final = 64  # then the oldest is dropped
