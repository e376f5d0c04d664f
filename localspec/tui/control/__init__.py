"""The chat screen's controllers: the commands, the engine's events, the settings."""
