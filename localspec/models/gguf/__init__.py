"""GGUF files, as llama.cpp, LM Studio and Ollama keep models: what is in them, and how it becomes a model of ours."""
