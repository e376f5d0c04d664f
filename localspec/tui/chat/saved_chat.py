"""A chat from the history as it is gone on with, and the way back. Knows records, and no widgets and no database."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.core.sanitize import one_line
from localspec.history import OpenChat, Status, StoredChat, StoredMessage, Tree
from localspec.history.records import STATUS_OF, now
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.control.tuning import Tuning
from localspec.tui.panels.stats_line import summary

INTERRUPTED = "interrupted: the program ended before the answer did"
ENDED: dict[Status, str] = {"stopped": "-stopped", "error": "-failed"}


def conversation(past: OpenChat | None, system: str | None, tuning: Tuning | None = None) -> Conversation:
    """Makes the conversation of a past chat that goes on, or of a new one."""
    goes_on = Conversation(system, tuning)
    if past is not None:
        goes_on.recall(past.chat, remembered(past))
    return goes_on


def title(past: OpenChat) -> str:
    return f"{one_line(past.chat.title) or 'A chat without a title'} · begun {past.chat.created_at[:10]}"


def remembered(past: OpenChat) -> Iterator[Utterance]:
    for message in past.tree.nodes.values():
        made = message.generation
        line, how = ending(message)
        yield Utterance(
            message.id,
            message.parent_id,
            message.role,
            message.content,
            speaker=speaker(past, message),
            at=message.created_at,
            made=made,
            line=line,
            how=how,
            attachments=message.attachments,
            edited=message.edited,
            reason=message.reason,
        )


def speaker(past: OpenChat, message: StoredMessage) -> str:
    """The model that wrote the answer; of an edited one, that of another version of it."""
    if message.role == "user":
        return "You"
    versions = [message, *(past.tree.nodes[one] for one in past.tree.siblings(message.id))]
    made = next((one.generation for one in versions if one.generation), None)
    return made.target if made else past.chat.model_key


def record(running: Conversation, title: str, model_key: str) -> OpenChat:
    """The conversation as the history would return it, but with our own ids and no chat's."""
    messages = [stored(one) for one in running.tree.nodes.values()]
    times = [one.created_at for one in messages] or [now()]
    preset, system = running.tuning.preset, running.instructions or None
    known = (model_key, preset, system, running.head, False, len(messages), None, running.turns_left_out)
    return OpenChat(StoredChat("", title, min(times), max(times), *known), Tree(messages))


def stored(one: Utterance) -> StoredMessage:
    text = one.id, "", one.parent_id, one.role, one.text, status(one), one.at
    return StoredMessage(*text, one.attachments, one.made, one.edited, one.reason)


def status(utterance: Utterance) -> Status:
    if utterance.role == "user" or (utterance.edited and utterance.made is None):
        return "done"
    return STATUS_OF[utterance.made.stats.finish_reason] if utterance.made else "partial"


def ending(message: StoredMessage) -> tuple[str, str]:
    """The line below a stored message, and its style."""
    if message.status == "partial":
        return INTERRUPTED, "-stopped"
    if message.generation is None:
        return "", ""
    return one_line(message.reason) or summary(message.generation.stats), ENDED.get(message.status, "-done")
