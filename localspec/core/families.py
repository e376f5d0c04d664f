"""The model types that localspec's own decoder computes."""

from __future__ import annotations

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # SmolLM's configs say "llama"
