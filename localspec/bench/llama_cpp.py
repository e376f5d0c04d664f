"""llama.cpp on the same weights in the same process, through its low-level interface (llama-cpp-python).

As its users have it: 16-bit keys and values, its own choice of attention, weights repacked for this processor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any  # Any: llama_cpp is untyped

from localspec.bench.forwards import Work
from localspec.bench.gguf_file import GgufFormat, write_gguf
from localspec.engine.arch import Arch
from localspec.errors import EngineError, UsageError
from localspec.sources import Source

if TYPE_CHECKING:
    import numpy as np

BATCH = 512  # its own default, and what a prompt is read by here
RIVALS: dict[str, GgufFormat] = {"int8": "Q8_0", "int4": "Q4_0"}


def name_of(kind: GgufFormat) -> str:
    return f"llama.cpp {kind}"


def require() -> str:
    """Versions of what is installed; UsageError says how to install it."""
    try:
        for module in ("llama_cpp", "gguf"):
            import_module(module)
    except (ImportError, OSError, RuntimeError) as fault:  # its library may be there and not load
        raise UsageError(
            f"llama.cpp cannot be measured here ({fault}).", hint="Try: pip install 'localspec[peers]'"
        ) from fault
    return f"{version('llama-cpp-python')}, gguf {version('gguf')}"


class LlamaCpp:
    """One of its models with a context of its own."""

    rivals: tuple[str, ...] = ()

    def __init__(self, arch: Arch, source: Source, kind: GgufFormat, *, context: int, threads: int) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        self.name = name_of(kind)
        self.vocab_size = arch.vocab_size
        self._quiet = silence(llama_cpp)
        llama_cpp.llama_backend_init()
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{kind}.gguf"
            self.bytes_read = write_gguf(file, arch, source, kind)
            self.model = self._load(file)
        self.context = self._open(context, threads)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch: Any = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.length = 0

    def _load(self, file: Path) -> Any:
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = self.api.LLAMA_LOAD_MODE_NONE  # read into memory: the file goes, and pages may be large
        model = self.api.llama_model_load_from_file(str(file).encode(), params)
        if not model:
            raise EngineError("llama.cpp cannot load the file that was written for it.")
        return model

    def _open(self, context: int, threads: int) -> Any:
        params = self.api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = context, BATCH, BATCH, 1
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        opened = self.api.llama_init_from_model(self.model, params)
        if not opened:
            raise EngineError("llama.cpp cannot make a context.")
        return opened

    def fill(self, depth: int) -> None:
        """Reads what is missing: its cache has no door for numbers."""
        self.crop(depth)
        while self.length < depth:
            count = min(BATCH, depth - self.length)
            self.decode([place * 7919 % self.vocab_size for place in range(self.length, self.length + count)])

    def can(self, work: Work) -> bool:
        return work.kind != "early exit"

    def run(self, work: Work) -> None:
        ids = [place * 7919 % self.vocab_size for place in range(work.rows)]
        for first in range(0, work.rows, BATCH):
            self.decode(ids[first : first + BATCH], every=work.kind == "forward")
        self.crop(work.depth)

    def num_bytes(self, work: Work) -> int:
        return self.bytes_read if self.can(work) else 0

    def decode(self, ids: Sequence[int], *, every: bool = False) -> None:
        """Rows appended to its cache; logits of the last one, or of every one."""
        batch, last = self.batch, len(ids) - 1
        batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            batch.token[row], batch.pos[row] = token, self.length + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            batch.logits[row] = every or row == last
        if self.api.llama_decode(self.context, batch) != 0:
            raise EngineError("llama.cpp failed to decode.")
        self.api.llama_synchronize(self.context)
        self.length += len(ids)

    def logits(self, row: int = -1) -> np.ndarray:
        """[vocab] of a row of the last decode."""
        import numpy as np

        found = self.api.llama_get_logits_ith(self.context, row)
        return np.ctypeslib.as_array(found, (self.vocab_size,))

    def crop(self, length: int) -> None:
        if length < self.length:
            self.api.llama_memory_seq_rm(self.memory, 0, length, -1)
            self.length = length

    def close(self) -> None:
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


def silence(api: Any) -> Any:
    """Its log goes nowhere; the callback must be kept."""
    callback = api.llama_log_callback(lambda _level, _text, _data: None)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    return callback
