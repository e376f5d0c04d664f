"""Keys, and the command palette."""
