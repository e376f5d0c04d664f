"""The engine: tensors and token ids only. No text, no network, no screen."""
