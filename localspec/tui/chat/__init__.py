"""The chat as records and texts. No module here knows a widget."""
