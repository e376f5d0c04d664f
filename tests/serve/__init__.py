"""The server: who may ask, what is answered, and in which order."""
