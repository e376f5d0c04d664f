"""What can fill the terminal: the chat, and what is opened over it."""
