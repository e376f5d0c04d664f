"""Forwards of models of well-known shapes with random weights: every format, peers on the same weights, offload."""
