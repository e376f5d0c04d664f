"""Models on disk: catalogue, files, tokenizer, chat template, prompt. Knows no tensors."""
