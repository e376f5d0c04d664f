"""Reads GGUF files, the format of llama.cpp, LM Studio and Ollama, and converts their metadata."""
