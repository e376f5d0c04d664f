"""A loaded model that answers: the Python interface, the chat's engine process, statistics."""
