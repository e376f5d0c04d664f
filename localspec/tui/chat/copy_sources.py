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
    left_out = {said.id for said in conversation.out_of_context}
    sent = [said for said in conversation.branch if said.id not in left_out]
    others = [said for said in reversed(conversation.tree.nodes.values()) if said not in sent]
    answers = [said for said in others if said.role == "assistant" and said.text]
    files = attached(others, {one.text for said in sent for one in said.attachments})
    return [*(reference(conversation, said) for said in answers), *files]


def reference(conversation: Conversation, said: Utterance) -> Reference:
    """An answer behind its question; named by the question, and by its version where there are several."""
    question = conversation.question(said)
    asked = first_line(question.text) if question else ""
    number, versions = conversation.version(said)
    name = asked if versions == 1 else f"{asked} ({number} of {versions})"
    return answer("branch", name, followed(conversation, question) if question else (), said.text)


def followed(conversation: Conversation, question: Utterance) -> tuple[Message, ...]:
    """The messages that an answer to this question follows."""
    before = turns(conversation.tree.path(question.parent_id))
    return (*before, Message("user", question.for_model))


def attached(messages: list[Utterance], sent: Collection[str | None]) -> Iterator[Reference]:
    """Each file once that is attached to one of these messages, unless its text is sent."""
    seen = set(sent)
    for one in (one for said in messages for one in said.attachments):
        if one.text not in seen:
            seen.add(one.text)
            yield file(one)
