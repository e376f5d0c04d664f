"""A conversation as the history keeps it: a tree, one branch of which is shown and sent to the engine.

Knows records; nothing about widgets, engines or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise, takewhile

from localspec.config import precedence
from localspec.core.events import ModelCard, Stats, Step
from localspec.core.requests import GenerateRequest, Message, Role, whole
from localspec.history import OWN, Attachment, Generation, StoredChat, Tree, WhenFull, with_attachments
from localspec.history.records import now
from localspec.runtime.truncation import without_oldest
from localspec.tui.chat.repetition import repeated
from localspec.tui.control.tuning import Tuning

IDS = count(OWN)


@dataclass(eq=False)
class Utterance:
    """One message. An answer has a speaker; `line` is what stands beneath it once it has ended, in the manner `how`.

    `rounds` are those that this program saw; of an answer from before they are in the history. `edited`: how many of an
    answer's first characters the user wrote. `reason`: why an answer failed, or a question has none.
    """

    id: int
    parent_id: int | None
    role: Role
    text: str = ""
    speaker: str = "You"
    at: str = ""
    made: Generation | None = None
    rounds: list[Step] = field(default_factory=list)
    line: str = ""
    how: str = ""
    attachments: tuple[Attachment, ...] = ()
    edited: int = 0
    reason: str = ""

    @property
    def by_user(self) -> str:
        """What the user wrote of an answer."""
        return self.text[: self.edited]

    @property
    def author(self) -> str:
        """The speaker, as the transcript names it."""
        return f"{self.speaker} · edited" if self.edited else self.speaker

    @property
    def for_model(self) -> str:
        """The text with its attachments, as the model reads it."""
        return with_attachments(self.text, self.attachments)

    @property
    def may_go_on(self) -> bool:
        """Whether the answer has text and was cut before the model ended it, by a stop text too, or repeats itself."""
        stats = self.made.stats if self.made else Stats()
        is_cut = stats.finish_reason != "stop" or bool(stats.stop_text) or stats.loops
        return bool(self.text) and (is_cut or bool(repeated(self.text)))

    @property
    def is_kept(self) -> bool:
        """Whether the message is from before this program, with its rounds in the history."""
        return self.id < OWN and self.made is not None


class Conversation:
    """`head` is the last message of the branch that is shown; what is asked next follows it.

    `system` holds for every chat that begins in this program; `own_system` for this chat and no other, "" for none.
    """

    def __init__(self, system: str | None = None, tuning: Tuning | None = None) -> None:
        self.system, self.tuning = system, tuning or Tuning()
        self.own_system: str | None = None
        self.tree: Tree[Utterance] = Tree(())
        self.head: int | None = None
        self.turns_left_out = 0  # how many of the oldest turns are left out of the context
        self.when_full: WhenFull | None = None  # what was chosen for this chat, where something was
        self.own_model = ""  # the history's name of the model that the chat was with when it was opened

    def recall(self, chat: StoredChat, utterances: Iterable[Utterance]) -> None:
        """Takes the messages from before this program began."""
        self.own_system = None if self.system else chat.system
        self.tree, self.head, self.turns_left_out, self.when_full = (
            Tree(utterances),
            chat.head_id,
            chat.turns_left_out,
            chat.when_full,
        )
        self.own_model = chat.model_key

    def forget(self) -> None:
        self.own_model = ""
        self.own_system, self.tree, self.head, self.turns_left_out, self.when_full = None, Tree(()), None, 0, None

    @property
    def instructions(self) -> str:
        """The system prompt of the next question."""
        if self.own_system is not None:
            return self.own_system
        return precedence.instructions(self.tuning.entry, self.system, self.tuning.preset_table)

    @property
    def branch(self) -> list[Utterance]:
        return self.tree.path(self.head)

    def request(self, question: Utterance, so_far: str = "") -> GenerateRequest:
        """All that led to this question, and it: for an answer, or for more of one."""
        first = [Message("system", self.instructions)] if self.instructions else []
        before = turns(self.tree.path(question.parent_id))
        begun = [Message("assistant", so_far)] if so_far else []
        messages = without_oldest((*first, *before, Message("user", question.for_model), *begun), self.turns_left_out)
        tuning = self.tuning
        return GenerateRequest(
            tuple(Message(one.role, whole(one.content)) for one in messages),
            max_tokens=tuning.max_tokens,
            stop=tuning.stop,
            sampling=tuning.sampling,
            continues=bool(begun),
            template=tuning.template,
        )

    @property
    def out_of_context(self) -> list[Utterance]:
        """The beginning of the branch that is no longer in the model's context."""
        turns = [index for index, (asked, answered) in enumerate(pairwise(self.branch)) if is_turn(asked, answered)]
        if not self.turns_left_out or not turns:
            return []
        return self.branch[: turns[min(self.turns_left_out, len(turns)) - 1] + 2]

    def ask(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Utterance:
        """A question after the head, which it becomes."""
        return self._add(Utterance(next(IDS), self.head, "user", text, at=now(), attachments=attachments))

    def answer(self, question: Utterance, speaker: str) -> Utterance:
        """A new answer's node below this question, beside others there may be."""
        question.reason = ""
        return self._add(Utterance(next(IDS), question.id, "assistant", speaker=speaker, at=now()))

    def rewrite(self, utterance: Utterance, text: str) -> Utterance:
        """The user's own version of this answer, beside it."""
        own = Utterance(next(IDS), utterance.parent_id, "assistant", text, utterance.speaker, now(), edited=len(text))
        return self._add(own)

    def question(self, utterance: Utterance) -> Utterance | None:
        """The question that this answers; the message itself, if it is a question."""
        asked = utterance if utterance.role == "user" else self.tree.nodes.get(utterance.parent_id or 0)
        return asked if asked is not None and asked.role == "user" else None

    def last(self, role: Role | None = None) -> Utterance | None:
        """The last message of the branch, or of one role in it."""
        return next((utterance for utterance in reversed(self.branch) if role in (None, utterance.role)), None)

    def counted(self, model: ModelCard) -> Stats:
        """The figures of the branch's last answer; none, if another model wrote it or the context was of another
        size."""
        made = next(
            (utterance.made for utterance in reversed(self.branch) if utterance.role == "assistant" and utterance.text),
            None,
        )
        same = made is not None and (made.target, made.stats.context_max) == (model.name, model.context_max)
        return made.stats if made is not None and same else Stats()

    def show(self, utterance: Utterance) -> None:
        """The branch through this, as far as it was continued last."""
        self.head = self.tree.tip(utterance.id)

    def next_turn(self) -> int | None:
        """The end of the turn that follows the branch, where it was continued last; None where nothing does."""
        below = self.tree.children(self.head)
        if not below:
            return None
        question, *after = self.tree.path(self.tree.tip(below[-1]))[len(self.branch) :]
        return [question, *takewhile(lambda utterance: utterance.role != "user", after)][-1].id

    def elsewhere(self) -> tuple[int, int]:
        """How many messages the tree has, on how many branches."""
        return len(self.tree), sum(1 for _ in self.tree.leaves())

    def beside(self, utterance: Utterance, steps: int) -> Utterance:
        return self.tree.nodes[self.tree.beside(utterance.id, steps)]

    def version(self, utterance: Utterance) -> tuple[int, int]:
        """The number of this version among its siblings, from one, and how many there are."""
        siblings = self.tree.siblings(utterance.id)
        return siblings.index(utterance.id) + 1, len(siblings)

    def repeats(self, utterance: Utterance) -> bool:
        """Whether another version of it has the same text."""
        others = (self.tree.nodes[one] for one in self.tree.siblings(utterance.id) if one != utterance.id)
        return any(other.text == utterance.text for other in others)

    def remove(self, utterance: Utterance) -> None:
        """Removes the message and all after it. As in the history, a head among them moves to where the chat was
        continued last before."""
        self.tree.remove(utterance.id)
        if self.head not in self.tree.nodes:
            before = self.tree.nodes.get(utterance.parent_id or 0)
            self.head = self.tree.tip(before.id) if before else max(self.tree.nodes, default=None)

    def take_back(self, question: Utterance) -> None:
        """Removes a question as if it had not been asked."""
        self.tree.remove(question.id)
        self.head = question.parent_id

    def _add(self, utterance: Utterance) -> Utterance:
        self.tree.add(utterance)
        self.head = utterance.id
        return utterance


def turns(branch: Iterable[Utterance]) -> Iterator[Message]:
    """Whole turns only: a question without an answer would make the next one follow it, which templates refuse."""
    for asked, answered in pairwise(branch):
        if is_turn(asked, answered):
            yield Message("user", asked.for_model)
            yield Message("assistant", answered.text)


def is_turn(asked: Utterance, answered: Utterance) -> bool:
    return (asked.role, answered.role) == ("user", "assistant") and bool(answered.text)
