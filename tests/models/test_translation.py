"""Two tokenizers, one text: the drafter's ids follow the target's byte by byte, and its words come back."""
