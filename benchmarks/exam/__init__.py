"""The exam of the built-in model, taken plain and with every drafter."""
