"""Tests on things that nobody here made: weights, tokenizers and templates that are fetched, and never committed."""
