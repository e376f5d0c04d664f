"""The terminal and the process: driver, clipboard, editor, timer, collector."""
