"""Converts messages to token ids by the chat template and the tokenizer, so that no message can forge a turn.

A control token counts only where the template wrote it. To find out where, the conversation is rendered a second time
with one private-use character instead of each message's text. Control tokens are the special ones and those that the
template writes around messages; other added tokens (`<think>`, `<h1>`, runs of blanks) are text.
Knows nothing about models or the session.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args  # Any: tokenizer.json as the tokenizers library wrote it

import msgspec
from tokenizers import Tokenizer

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError, LocalspecError, NoChatTemplate, UsageError
from localspec.core.limits import entering
from localspec.core.requests import Message, Role, Template
from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import num_ids, tokenizer_faults
from localspec.models.gguf.tokenizer import BLANK
from localspec.models.safe_tokenizers import without_controls

RARE = "ᚠ 𐎠 𓀀 \U000f0000"
TRIALS: tuple[tuple[Role, ...], ...] = (("user", "assistant", "user"), ("system", "user"))
PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900))


@dataclass(frozen=True, slots=True)
class Control:
    """A control token and its characters begin..end."""

    id: int
    begin: int
    end: int


class Prompter:
    """A tokenizer and a chat template, run in this process; a model's are run in a sandbox (prompt_sandbox.py)."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        name: str,
        template: ChatTemplate | None,
        special_tokens: Mapping[str, str] | None = None,
        rows: int | None = None,
    ) -> None:
        """special_tokens: for a template other than the model's own. rows: the number of embedding rows."""
        self.tokenizer = tokenizer
        self._name = name
        self._template = template
        self._special_tokens = dict(special_tokens or {})
        self._rows = rows
        self._other: tuple[Template, Prompter] | None = None
        self.num_ids = min(num_ids(tokenizer), rows or sys.maxsize)
        added, unknown = tokenizer.get_added_tokens_decoder(), _unknown_ids(tokenizer)
        visible = {id: token for id, token in added.items() if not _is_blank(token.content) and id not in unknown}
        self._special = frozenset(id for id, token in visible.items() if token.special)
        self._rowless = frozenset(id for id in added if id >= self.num_ids)
        self.control_ids = self._special | self._rowless | (visible.keys() & self._written())

    def using(self, template: Template | None, _: Callable[[], bool] | None = None) -> Prompter:
        """This prompter with another template; None for the model's own."""
        if template is None:
            return self
        if self._other is None or self._other[0] != template:
            opening = self.tokenizer.decode(self._opening, skip_special_tokens=False)
            specials = {**self._special_tokens, "bos_token": opening}
            other = ChatTemplate(template.source, name=self._name, special_tokens=specials)
            self._other = template, Prompter(self.tokenizer, name=self._name, template=other, rows=self._rows)
        return self._other[1]

    @property
    def can_chat(self) -> bool:
        return self._template is not None

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """The conversation as ids, up to where the assistant answers."""
        if self._template is None:
            raise NoChatTemplate(
                f"'{self._name}' is a base model (no chat template).",
                hint=f"Complete text instead: localspec run {self._name} --raw PROMPT",
            )
        _check_roles(messages)
        masks = _masks(messages, self._template.source)
        masked = self._template.render(_with_masks(messages, masks))
        found = self._controls(self._encode(masked))
        self._check_rows(found)
        rendered, text, controls = self._template.render(messages), _unmask(masked, masks), _moved(found, masked, masks)
        ids = self._whole(text, controls) if rendered == text else self._rewritten(messages, rendered, controls)
        ids = ids or list(self._pieces(text, controls))
        if not ids and any(message.content.strip() for message in messages):
            message = f"The chat template of '{self._name}' returns an empty text for this conversation."
            raise CheckpointError(message, hint=CHOOSE_ANOTHER)
        return ids

    def words(self, before: Sequence[Message], answer: str) -> list[int]:
        """The ids of an answer so far, to follow `chat(before)`; none of its text is a control token."""
        return list(_encode(self._wordy, self._blank(before, answer) + answer).ids)

    def running(self, text: str) -> list[int]:
        """The ids of a part of an answer, to follow other text; none of it is a control token."""
        return list(_encode(self._running, text).ids)

    def text(self, text: str) -> list[int]:
        """The ids of a raw prompt, with its control tokens, after the tokenizer's opening tokens."""
        return [*self._opening, *_encode(self._raw, text).ids]

    def _blank(self, before: Sequence[Message], answer: str) -> str:
        """The blank that a template writes before an assistant's text but not when it opens the answer: Llama 2's
        space."""
        if self._template is None or answer[:1].isspace():
            return ""
        *_, mask = _masks([*before, Message("assistant", "x")], self._template.source)
        rendered = self._template.render([*before, Message("assistant", mask)], opens=False).partition(mask)[0]
        opened = self._template.render(before)
        blank = rendered.removeprefix(opened)
        return blank if rendered.startswith(opened) and blank.isspace() else ""

    def _encode(self, text: str) -> Any:
        return _encode(self.tokenizer, text)

    def _controls(self, encoded: Any) -> list[Control]:
        """The control tokens among the ids, with their characters."""
        pairs = zip(encoded.ids, encoded.offsets, strict=True)
        return [Control(id, begin, end) for id, (begin, end) in pairs if id in self.control_ids]

    def _written(self) -> set[int]:
        """The ids that the template writes more often for more messages: not those of its fixed text."""
        fewest, found = self._trial(("user",)), set[int]()
        for roles in TRIALS:
            found |= (self._trial(roles) - fewest).keys()
        return found

    def _trial(self, roles: Sequence[Role]) -> Counter[int]:
        """Counts how often the template writes each id for finished messages; none if it refuses these roles."""
        with suppress(LocalspecError):
            if self._template:
                text = self._template.render([Message(role, "x") for role in roles], opens=False)
                return Counter(self._encode(text).ids)
        return Counter()

    def _check_rows(self, controls: Sequence[Control]) -> None:
        if any(control.id in self._rowless for control in controls):
            raise CheckpointError(
                f"The chat template of '{self._name}' writes a token that the model has no weights for.",
                hint=CHOOSE_ANOTHER,
            )

    def _whole(self, text: str, controls: Sequence[Control]) -> list[int]:
        """The ids of a text, if its only control tokens are the template's; else none."""
        encoded = self._encode(text)
        return list(encoded.ids) if self._controls(encoded) == controls else []

    def _rewritten(self, messages: Sequence[Message], rendered: str, controls: Sequence[Control]) -> list[int]:
        """The ids for a template that changes the messages' text (drops thoughts, changes case), if its control
        tokens stay the same. Special tokens spelled in messages are hidden from it, and if that is not enough (it
        may look for a </think> that it also writes) the other control tokens, too."""
        assert self._template is not None
        spelled = [self._controls(self._encode(message.content)) for message in messages]
        for hideable in (self._special, self.control_ids):
            hidden, marks = _hide(messages, spelled, hideable, self._template.source)
            shown = self._template.render(hidden) if marks else rendered
            encoded = self._encode(shown)
            found = self._controls(encoded)
            if [control.id for control in found] == [control.id for control in controls]:
                return list(self._pieces(_unmask(shown, marks), _moved(found, shown, marks)) if marks else encoded.ids)
        return []

    def _pieces(self, text: str, controls: Sequence[Control]) -> Iterator[int]:
        """Yields the template's control tokens, and all text between them as ordinary tokens."""
        at = 0
        for control in (*controls, None):
            between = text[at : control.begin if control else len(text)]
            if between:
                yield from _encode(self._wordy if at else self._wordy_first, between).ids
            if control:
                yield control.id
                at = control.end

    @cached_property
    def _opening(self) -> list[int]:
        """The ids that the tokenizer's post-processor puts before a text: BOS, or none."""
        entering("tokenizer")
        with tokenizer_faults("The model's tokenizer.json"):
            bare, whole = self.tokenizer.encode("x", add_special_tokens=False).ids, self.tokenizer.encode("x").ids
        starts = (at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return list(whole[: next(starts, 0)])

    @cached_property
    def _raw(self) -> Tokenizer:
        """The tokenizer without tokens that have no embedding row."""
        return without_controls(self.tokenizer, self._rowless) if self._rowless else self.tokenizer

    @cached_property
    def _wordy_first(self) -> Tokenizer:
        """The tokenizer without control tokens, for a text's beginning."""
        return without_controls(self.tokenizer, self.control_ids)

    @cached_property
    def _wordy(self) -> Tokenizer:
        """The tokenizer without control tokens, for text that follows a control token."""
        return without_controls(self.tokenizer, self.control_ids, "after a control")

    @cached_property
    def _running(self) -> Tokenizer:
        """The tokenizer without control tokens, for text that continues other text."""
        return without_controls(self.tokenizer, self.control_ids, "running")


def _check_roles(messages: Sequence[Message]) -> None:
    """UsageError for an unknown role: it goes into the prompt unmasked."""
    for message in messages:
        if message.role not in get_args(Role):
            raise UsageError(f"{message.role[:40]!r} is not a role.", hint=f"Use one of {', '.join(get_args(Role))}.")


def _encode(tokenizer: Tokenizer, text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise UsageError("The text contains characters that are not valid Unicode.", hint="Remove them.") from error
    entering("tokenizer")
    with tokenizer_faults("The model's tokenizer.json"):
        return tokenizer.encode(text, add_special_tokens=False)


def _free_characters(messages: Sequence[Message], template: str) -> Iterator[str]:
    """Private-use characters that occur neither in the messages nor in the template."""
    used = set(template).union(*(message.content for message in messages))
    return (chr(code) for block in PRIVATE_USE for code in block if chr(code) not in used)


def _masks(messages: Sequence[Message], template: str) -> dict[str, str]:
    """A mask character for each message's text; a blank message needs none."""
    words = (message.content.strip() for message in messages)
    return dict(zip(_free_characters(messages, template), words, strict=False))


def _with_masks(messages: Sequence[Message], masks: dict[str, str]) -> list[Message]:
    """The conversation with its text masked; blanks around it are kept, for templates that trim."""
    return [
        msgspec.structs.replace(message, content=message.content.replace(words, mask, 1) if words else message.content)
        for message, (mask, words) in zip(messages, masks.items(), strict=True)
    ]


def _hide(
    messages: Sequence[Message], spelled: Sequence[Sequence[Control]], hideable: Collection[int], template: str
) -> tuple[list[Message], dict[str, str]]:
    """The conversation with a mask for each of these tokens in a message, and what the masks hide."""
    free, marks, hidden = _free_characters(messages, template), dict[str, str](), []
    for message, controls in zip(messages, spelled, strict=True):
        content = message.content
        for control in reversed([one for one in controls if one.id in hideable]):
            text = content[control.begin : control.end]
            marks.setdefault(text, next(free))
            content = content[: control.begin] + marks[text] + content[control.end :]
        hidden.append(msgspec.structs.replace(message, content=content))
    return hidden, {mark: text for text, mark in marks.items()}


def _unmask(masked: str, masks: dict[str, str]) -> str:
    return masked.translate({ord(mask): words for mask, words in masks.items() if words})


def _moved(controls: Sequence[Control], masked: str, masks: dict[str, str]) -> list[Control]:
    """Controls found in the masked text, with their characters in the real one."""
    moved, shift, at = [], 0, 0
    for control in controls:
        shift += sum(len(masks[char]) - 1 for char in masked[at : control.begin] if masks.get(char))
        at = control.begin
        moved.append(Control(control.id, control.begin + shift, control.end + shift))
    return moved


def _is_blank(text: str) -> bool:
    """True for a run of spaces, which some tokenizers use for indentation."""
    return not text.replace(BLANK, " ").strip()


def _unknown_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids of characters that no vocabulary has; none if the tokenizer falls back to bytes."""
    return set(_encode(tokenizer, RARE).ids)
