"""Measures speculation honestly: every way of decoding on the same prompts, in one process, taking turns."""
