"""Trains the built-in model, guide: a target for early exit (the LayerSkip recipe) and a small draft model.

Text in `corpus/` in, two Hugging Face snapshots and a model card out. Knows nothing about the engine that runs them.
"""

import os

# Before torch starts its threads: they sleep while they wait, or one busy neighbour makes every step ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
