"""Compares our decoder with transformers on random weights before a configuration runs."""
