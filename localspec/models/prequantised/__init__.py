"""Pre-quantised weights that localspec unpacks while loading: reads their config.json and headers.

GPTQ, AWQ, compressed-tensors and FP8 all mean (code - zero) * scale; they differ in how these are stored. Knows no
torch.
"""
