"""Continues an answer that was cut: the prompt in ids, and a StepWriter at the answer's end.

Where the session still holds the answer, its very tokens are the prompt: nothing is read again, and the text becomes
what it would have been without the cut. Elsewhere its text is encoded. Knows no model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from localspec.core.errors import NO_ANSWER, UsageError
from localspec.core.requests import GenerateRequest
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.runtime.prompt_reuse import keep_spelling
from localspec.runtime.steps import StepWriter


def go_on(
    request: GenerateRequest, prompter: AnyPrompter, known: Sequence[int], stop_ids: Collection[int]
) -> tuple[list[int], StepWriter]:
    """`known`: what the session holds. An answer that the model has ended there is encoded without its end."""
    messages = request.messages or ()
    if not messages or messages[-1].role != "assistant" or not messages[-1].content:
        raise UsageError(NO_ANSWER, hint="The last message must be the assistant's.")
    *asked, last = messages
    opened = keep_spelling(known, prompter.chat(asked), prompter.control_ids, prompter.tokenizer.decode)
    written = list(known[len(opened) :])
    writer = StepWriter(prompter.tokenizer, request.stop)
    held = list(known[: len(opened)]) == opened and written and written[-1] not in stop_ids
    if held and writer.resume(written, last.content):
        return [*opened, *written], writer
    words, writer = prompter.words(asked, last.content), StepWriter(prompter.tokenizer, request.stop)
    writer.resume(words, last.content)
    return [*opened, *words], writer
