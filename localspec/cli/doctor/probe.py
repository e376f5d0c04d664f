"""Lets bitsandbytes find its compiled library, and prints it as one line of JSON: `backend` runs this."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import msgspec

from localspec.cli.doctor.records import Bitsandbytes
from localspec.cli.doctor.words import short


def look() -> Bitsandbytes:
    spec = find_spec("bitsandbytes")
    assert spec is not None  # `backend` has found its metadata
    sys.modules["bitsandbytes"] = module_from_spec(spec)  # not executed: that takes seconds, and one module is enough
    from bitsandbytes import cextension

    library = cextension.lib
    if isinstance(library, cextension.ErrorHandlerMockBNBNativeLibrary):
        return Bitsandbytes(cextension.BNB_BACKEND, fault=short(library.error_msg))
    return Bitsandbytes(cextension.BNB_BACKEND, library=Path(library._lib._name).name)


if __name__ == "__main__":
    sys.modules["kernels"] = None  # type: ignore[assignment] # bitsandbytes would fetch compiled code with it
    logging.disable()
    print(msgspec.json.encode(look()).decode(), flush=True)
