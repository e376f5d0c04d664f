"""The OpenAI-compatible server: one engine, several answers at once, for programs on this machine."""
