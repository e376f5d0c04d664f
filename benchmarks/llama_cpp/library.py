"""llama.cpp on the same weights in the same process, through its low-level interface (llama-cpp-python).

As its users have it: 16-bit keys and values, weights repacked for this processor. It has two kinds of attention, and
neither is always the faster: what is timed is the one that won a trial of the same work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any  # Any: llama_cpp is untyped

from benchmarks.llama_cpp.gguf_file import GgufFormat, write_gguf
from benchmarks.llama_cpp.state import deepened
from benchmarks.shapes.forwards import Work
from localspec.core.errors import EngineError, UsageError
from localspec.engine.arch import Arch
from localspec.loading.sources import TensorSource

if TYPE_CHECKING:
    import numpy as np

BATCH = 512  # its own default, and what a prompt is read by here
RIVALS: dict[str, GgufFormat] = {"int8": "Q8_0", "int4": "Q4_0"}
NOTES = (
    "llama.cpp's forwards are timed with flash attention or without, whichever won a trial of the same rows and depth.",
    "Caches hold random numbers: what they hold does not change the time.",
)
LONG_SECONDS = 0.5  # of a trial: said enough in one run


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


class Context:
    """A cache and a way to compute attention, over a model that several share."""

    def __init__(self, api: Any, model: Any, *, context: int, threads: int, flash: bool) -> None:
        self.api, self.length = api, 0
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = context, BATCH, BATCH, 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash)
        params.no_perf = True
        self.handle = api.llama_init_from_model(model, params)
        if not self.handle:
            raise EngineError("llama.cpp cannot make a context.")
        self.memory = api.llama_get_memory(self.handle)
        self.batch: Any = api.llama_batch_init(BATCH, 0, 1)

    def fill(self, depth: int) -> None:
        """Numbers for what is missing; read as a prompt where its state is not as we know it."""
        self.crop(depth)
        if self.length < depth and not self._pretend(depth):
            self.read(numbered(self.length, depth, self.vocab_size))

    def read(self, ids: Sequence[int], *, every: bool = False) -> None:
        """Appended to its cache, in batches; logits of a batch's last row, or of every one."""
        for first in range(0, len(ids), BATCH):
            self._decode(ids[first : first + BATCH], every)

    def logits(self, row: int = -1) -> np.ndarray:
        """[vocab] of a row of the last batch."""
        import numpy as np

        found = self.api.llama_get_logits_ith(self.handle, row)
        return np.ctypeslib.as_array(found, (self.vocab_size,))

    def crop(self, length: int) -> None:
        if length < self.length:
            self.api.llama_memory_seq_rm(self.memory, 0, length, -1)
            self.length = length

    def close(self) -> None:
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.handle)

    def _decode(self, ids: Sequence[int], every: bool) -> None:
        batch, last = self.batch, len(ids) - 1
        batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            batch.token[row], batch.pos[row] = token, self.length + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            batch.logits[row] = every or row == last
        if self.api.llama_decode(self.handle, batch) != 0:
            raise EngineError("llama.cpp failed to decode.")
        self.api.llama_synchronize(self.handle)
        self.length += len(ids)

    def _pretend(self, depth: int) -> bool:
        """A saved state of one position, made as deep as wanted, is restored."""
        self.crop(0)
        self.read([0])
        saved = (ctypes.c_uint8 * self.api.llama_state_seq_get_size(self.handle, 0))()
        self.api.llama_state_seq_get_data(self.handle, saved, len(saved), 0)
        state = deepened(bytes(saved), depth)
        self.crop(0)
        if state is None:
            return False
        given = (ctypes.c_uint8 * len(state)).from_buffer(state)
        if self.api.llama_state_seq_set_data(self.handle, given, len(state), 0) != len(state):
            return False
        self.length = depth
        return True


class LlamaCpp:
    """A model in one of its formats, with a context for each kind of attention."""

    rivals: tuple[str, ...] = ()

    def __init__(self, arch: Arch, source: TensorSource, kind: GgufFormat, *, context: int, threads: int) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        self.name = name_of(kind)
        self._quiet = silence(llama_cpp)
        llama_cpp.llama_backend_init()
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"{kind}.gguf"
            self.bytes_read = write_gguf(file, arch, source, kind)
            self.model = load(llama_cpp, file)
        self.contexts = [
            Context(llama_cpp, self.model, context=context, threads=threads, flash=flash) for flash in (True, False)
        ]
        self.faster: dict[Work, Context] = {}

    def fill(self, depth: int) -> None:
        for one in self.contexts:
            one.fill(depth)

    def can(self, work: Work) -> bool:
        return work.kind != "early exit"

    def prepare(self, work: Work) -> None:
        if work not in self.faster:
            self.faster[work] = min(self.contexts, key=lambda one: trial(one, work))

    def run(self, work: Work) -> None:
        run_in(self.faster[work], work)

    def num_bytes(self, work: Work) -> int:
        return self.bytes_read if self.can(work) else 0

    def best(self, depth: int) -> Context:
        """The context whose single rows were the faster, near this depth."""
        singles = [work for work in self.faster if work.kind == "forward" and work.rows == 1]
        nearest = min(singles, key=lambda work: abs(work.depth - depth), default=None)
        return self.contexts[0] if nearest is None else self.faster[nearest]

    def close(self) -> None:
        for one in self.contexts:
            one.close()
        self.api.llama_model_free(self.model)


def load(api: Any, file: Path) -> Any:
    params = api.llama_model_default_params()
    params.n_gpu_layers = 0
    params.load_mode = api.LLAMA_LOAD_MODE_NONE  # read into memory: the file goes, and pages may be large
    model = api.llama_model_load_from_file(str(file).encode(), params)
    if not model:
        raise EngineError("llama.cpp cannot load the file that was written for it.")
    return model


def run_in(context: Context, work: Work) -> None:
    context.read(numbered(0, work.rows, context.vocab_size), every=work.kind == "forward")
    context.crop(work.depth)


def trial(context: Context, work: Work) -> float:
    """Seconds: the first run where it is long, else the best of the two after it."""
    times = []
    for _ in range(3):
        started = perf_counter()
        run_in(context, work)
        times.append(perf_counter() - started)
        if times[0] > LONG_SECONDS:
            return times[0]
    return min(times[1:])


def numbered(first: int, last: int, vocab_size: int) -> list[int]:
    """Some ids for positions first..last - 1."""
    return [place * 7919 % vocab_size for place in range(first, last)]


def silence(api: Any) -> Any:
    """Its log goes nowhere; the callback must be kept."""
    callback = api.llama_log_callback(lambda _level, _text, _data: None)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    return callback
