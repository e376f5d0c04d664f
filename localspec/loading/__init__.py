"""Loads a model's files into a decoder: the plan, weight formats, offload, the weight cache, the self-check."""
