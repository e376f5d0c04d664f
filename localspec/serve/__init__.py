"""The OpenAI-compatible server: one engine, one answer at a time, for programs on this machine."""
