"""Developers' evidence, run from a clone: `python -m benchmarks.quality`, `python -m benchmarks.real_model`."""
