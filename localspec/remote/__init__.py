"""Other people's servers behind the same events as our engine: llama-server, vLLM, SGLang, LM Studio, Ollama, localspec
serve, and whatever else speaks /v1/chat/completions. Asks nothing before it is asked for."""
