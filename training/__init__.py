"""Trains the built-in model, guide: a target for early exit (the LayerSkip recipe) and a small draft model.

Text in `corpus/` in, two Hugging Face snapshots and a model card out. Knows nothing about the engine that runs them.
"""

import os
import sys

# Before torch starts its threads: they sleep while they wait, or one busy neighbour makes every step ten times slower.
# Only where a program of this package is being started (`python -m training`, which imports the package first): the
# benchmarks import parts of it, and what they measure is slower with threads that sleep.
if sys.argv[0] == "-m":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
