"""Measures the cost of the chat's screen: the same model through the chat and through `run`, in terminals."""
