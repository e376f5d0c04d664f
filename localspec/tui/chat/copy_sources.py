"""The chat's texts that are not in the prompt: answers on other branches, files that were attached there, turns that
were left out. A look-up copies from them. Knows the conversation, and nothing of ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from localspec.core.requests import Message, Reference
from localspec.history import first_line
from localspec.history.references import answer, file
from localspec.tui.chat.conversation import Conversation, Utterance, turns


def elsewhere(conversation: Conversation) -> list[Reference]:
    """The texts of all messages that the model is not sent, the newest first."""
    left_out = {utterance.id for utterance in conversation.out_of_context}
    sent = [utterance for utterance in conversation.branch if utterance.id not in left_out]
    others = [utterance for utterance in reversed(conversation.tree.nodes.values()) if utterance not in sent]
    answers = [utterance for utterance in others if utterance.role == "assistant" and utterance.text]
    files = attached(others, {one.text for utterance in sent for one in utterance.attachments})
    return [*(reference(conversation, utterance) for utterance in answers), *files]


def reference(conversation: Conversation, utterance: Utterance) -> Reference:
    """An answer after its question; named by the question, and by its version where there are several."""
    question = conversation.question(utterance)
    asked = first_line(question.text) if question else ""
    number, versions = conversation.version(utterance)
    name = asked if versions == 1 else f"{asked} ({number} of {versions})"
    return answer("branch", name, followed(conversation, question) if question else (), utterance.text)


def followed(conversation: Conversation, question: Utterance) -> tuple[Message, ...]:
    """The messages that an answer to this question follows."""
    before = turns(conversation.tree.path(question.parent_id))
    return (*before, Message("user", question.for_model))


def attached(messages: list[Utterance], sent: Collection[str | None]) -> Iterator[Reference]:
    """Each file once that is attached to one of these messages, unless its text is sent."""
    seen = set(sent)
    for one in (one for utterance in messages for one in utterance.attachments):
        if one.text not in seen:
            seen.add(one.text)
            yield file(one)
