"""Widgets around the conversation: header, lines, prompt, sidebar, speed panel."""
