"""What the chat screen does: its controllers, the commands, the engine's events, the settings."""
