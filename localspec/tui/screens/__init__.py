"""The full screens: the chat, and those opened over it."""
