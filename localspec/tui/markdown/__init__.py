"""How a growing Markdown text is parsed, laid out and drawn."""
