"""The chat's screen. Reads events and writes requests; knows no torch and no model."""
