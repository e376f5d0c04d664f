"""What the chat's screen costs: the same model through the chat and through `run`, in terminals."""
