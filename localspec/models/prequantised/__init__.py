"""Weights that others have quantised and localspec unpacks while loading: what their config.json and headers say.

GPTQ, AWQ, compressed-tensors and FP8 all mean (code - zero) * scale; they differ in how the three lie. Knows no torch.
"""
