"""Widgets of the conversation."""
