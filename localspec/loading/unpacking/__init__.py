"""Quantised tensors of others become float rows while they are read. Knows what headers say from prequantised/."""
