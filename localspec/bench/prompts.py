"""The fixed questions of `localspec bench`. Any chat model can answer them; the built-in guide was made for them."""

from __future__ import annotations

PROMPTS = (
    "What is speculative decoding?",
    "What does the acceptance rate mean?",
    "How do I stop an answer while it streams?",
    "What is early exit and why is it fast?",
    "How is the speed-up measured?",
    "Does drafting change the text I get?",
    "Show me how to use localspec from Python.",
    "What is the difference between a drafter and a target?",
)
