"""Messages to token ids: the chat template, then the tokenizer, and no message can forge a turn.

A control token counts only where the template wrote it. To know where that is, the conversation is rendered a second
time with one private-use character in place of each message's words. Knows nothing about models or the session.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args  # Any: tokenizer.json as the tokenizers library wrote it

import msgspec
from tokenizers import Tokenizer

from localspec.checkpoint import Snapshot, num_ids, open_tokenizer, parse_tokenizer, tokenizer_faults
from localspec.errors import CheckpointError, NoChatTemplate, UsageError
from localspec.requests import Message, Role, Template
from localspec.template import ChatTemplate

RARE = "ᚠ 𐎠 𓀀 \U000f0000"
PRIVATE_USE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0xE000, 0xF900))


@dataclass(frozen=True, slots=True)
class Control:
    """A control token and the characters begin..end it stands for."""

    id: int
    begin: int
    end: int


class Prompter:
    """A snapshot's tokenizer and template. Open it with `Prompter.open`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        name: str,
        template: ChatTemplate | None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """special_tokens: for another template than the model's own."""
        self.tokenizer = tokenizer
        self._name = name
        self._template = template
        self._special_tokens = dict(special_tokens or {})
        self._other: tuple[Template, Prompter] | None = None
        added = tokenizer.get_added_tokens_decoder()
        unknown = _unknown_ids(tokenizer)
        # runs of spaces are how some tokenizers write indentation, and an unknown character is no turn
        self.control_ids = frozenset(id for id, token in added.items() if token.content.strip() and id not in unknown)
        self.num_ids = num_ids(tokenizer)

    @classmethod
    def open(cls, snapshot: Snapshot) -> Prompter:
        if snapshot.tokenizer_file is None:
            raise CheckpointError(
                f"Model '{snapshot.name}' has no tokenizer.json.",
                hint="Choose a copy that has one: localspec reads no other.",
            )
        tokenizer = open_tokenizer(snapshot.tokenizer_file)
        template = None
        if snapshot.chat_template is not None:
            template = ChatTemplate(snapshot.chat_template, name=snapshot.name, special_tokens=snapshot.special_tokens)
        return cls(tokenizer, name=snapshot.name, template=template, special_tokens=snapshot.special_tokens)

    def using(self, template: Template | None) -> Prompter:
        """The same with another template; None for the model's own."""
        if template is None:
            return self
        if self._other is None or self._other[0] != template:
            opening = self.tokenizer.decode(self._opening, skip_special_tokens=False)
            specials = {**self._special_tokens, "bos_token": opening}
            other = ChatTemplate(template.source, name=self._name, special_tokens=specials)
            self._other = template, Prompter(self.tokenizer, name=self._name, template=other)
        return self._other[1]

    def controls_among(self, texts: Sequence[str]) -> frozenset[int]:
        """Those of them that are control tokens of this model."""
        return frozenset(id for text in texts if (id := self.tokenizer.token_to_id(text)) in self.control_ids)

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
        text = _unmask(masked, masks)
        controls = list(_moved(self._controls(self._encode(masked)), masked, masks))
        rendered = self._template.render(messages)
        if rendered != text and self._is_faithful(rendered, messages, controls):
            return list(self._encode(rendered).ids)
        encoded = self._encode(text)
        if self._controls(encoded) == controls:
            return list(encoded.ids)
        return list(self._pieces(text, controls))

    def words(self, before: Sequence[Message], answer: str) -> list[int]:
        """An answer so far as ids, to stand behind `chat(before)`, where it was written: no word of it is a control."""
        return list(_encode(self._wordy, self._blank(before, answer) + answer).ids)

    def text(self, text: str) -> list[int]:
        """A raw prompt: the user's own program, control tokens included, after the tokenizer's opening tokens."""
        return [*self._opening, *self._encode(text).ids]

    def _blank(self, before: Sequence[Message], answer: str) -> str:
        """What a template puts before an assistant's words that does not open the answer: Llama 2's space."""
        if self._template is None or answer[:1].isspace():
            return ""
        *_, mask = _masks([*before, Message("assistant", "x")], self._template.source)
        told = self._template.render([*before, Message("assistant", mask)], opens=False).partition(mask)[0]
        opened = self._template.render(before)
        blank = told.removeprefix(opened)
        return blank if told.startswith(opened) and blank.isspace() else ""

    def _encode(self, text: str) -> Any:
        return _encode(self.tokenizer, text)

    def _controls(self, encoded: Any) -> list[Control]:
        """The control tokens among the ids, and where they stand."""
        pairs = zip(encoded.ids, encoded.offsets, strict=True)
        return [Control(id, begin, end) for id, (begin, end) in pairs if id in self.control_ids]

    def _is_faithful(self, rendered: str, messages: Sequence[Message], controls: Sequence[Control]) -> bool:
        """A template that reads the words it is given (changes case, drops thoughts) is obeyed if nobody forged."""
        if any(self._controls(self._encode(message.content)) for message in messages):
            return False
        return [control.id for control in self._controls(self._encode(rendered))] == [one.id for one in controls]

    def _pieces(self, text: str, controls: Sequence[Control]) -> Iterator[int]:
        """The template's control tokens as they are, and all between them as ordinary words."""
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
        """What the tokenizer's post-processor puts before a text: BOS, or nothing."""
        with tokenizer_faults("The model's tokenizer.json"):
            bare, whole = self.tokenizer.encode("x", add_special_tokens=False).ids, self.tokenizer.encode("x").ids
        starts = (at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        return list(whole[: next(starts, 0)])

    @cached_property
    def _wordy_first(self) -> Tokenizer:
        """The tokenizer without control tokens, for a text's beginning."""
        return _without(self.tokenizer, self.control_ids, first=True)

    @cached_property
    def _wordy(self) -> Tokenizer:
        """The same for what follows a control token."""
        return _without(self.tokenizer, self.control_ids, first=False)


def _check_roles(messages: Sequence[Message]) -> None:
    """A role goes into the prompt unmasked, so it is one of ours."""
    for message in messages:
        if message.role not in get_args(Role):
            raise UsageError(f"{message.role[:40]!r} is not a role.", hint=f"Use one of {', '.join(get_args(Role))}.")


def _encode(tokenizer: Tokenizer, text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise UsageError("The text contains characters that are not valid Unicode.", hint="Remove them.") from error
    with tokenizer_faults("The model's tokenizer.json"):
        return tokenizer.encode(text, add_special_tokens=False)


def _masks(messages: Sequence[Message], template: str) -> dict[str, str]:
    """One character that nobody uses for each message's words; what is blank needs none."""
    used = set(template).union(*(message.content for message in messages))
    free = (chr(code) for block in PRIVATE_USE for code in block if chr(code) not in used)
    return dict(zip(free, (message.content.strip() for message in messages), strict=False))


def _with_masks(messages: Sequence[Message], masks: dict[str, str]) -> list[Message]:
    """The same conversation, its words masked and the blanks around them kept, for templates that trim."""
    return [
        msgspec.structs.replace(message, content=message.content.replace(words, mask, 1) if words else message.content)
        for message, (mask, words) in zip(messages, masks.items(), strict=True)
    ]


def _unmask(masked: str, masks: dict[str, str]) -> str:
    return masked.translate({ord(mask): words for mask, words in masks.items() if words})


def _moved(controls: Sequence[Control], masked: str, masks: dict[str, str]) -> Iterator[Control]:
    """Controls found in the masked text, at their places in the real one."""
    shift, at = 0, 0
    for control in controls:
        shift += sum(len(masks[char]) - 1 for char in masked[at : control.begin] if masks.get(char))
        at = control.begin
        yield Control(control.id, control.begin + shift, control.end + shift)


def _unknown_ids(tokenizer: Tokenizer) -> set[int]:
    """What the tokenizer makes of characters that no vocabulary has; nothing, if it falls back to bytes."""
    return set(_encode(tokenizer, RARE).ids)


def _without(tokenizer: Tokenizer, control_ids: frozenset[int], *, first: bool) -> Tokenizer:
    """A copy in which no text, whatever it spells, becomes a control token.

    They are renamed, not removed: without them the other added tokens would move to their ids.
    """
    spec = json.loads(tokenizer.to_str())
    controls = [token for token in spec["added_tokens"] if token["id"] in control_ids]
    names = {token["content"]: f"\U0010fffd{secrets.token_hex(16)}" for token in controls}  # nobody can type these
    for token in controls:
        token["content"] = names[token["content"]]
    spec["post_processor"] = None
    _rename(spec["model"], names)
    if not first:
        _never_first(spec["pre_tokenizer"])
    return parse_tokenizer(json.dumps(spec), "the tokenizer without its control tokens")


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """The pieces of the model's own vocabulary that spell a control token, which plain text could reach."""
    vocab = model["vocab"]
    if isinstance(vocab, list):
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
        return
    model["vocab"] = {names.get(piece, piece): id for piece, id in vocab.items()}
    if "merges" in model:
        parts = [merge if isinstance(merge, list) else merge.split(" ", 1) for merge in model["merges"]]
        model["merges"] = [pair for pair in parts if not names.keys() & {*pair, "".join(pair)}]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]


def _never_first(part: Any) -> None:
    """What follows a control token is not the text's beginning, though its copy is encoded as if it were."""
    if isinstance(part, dict):
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
        for inner in part.get("pretokenizers", ()):
            _never_first(inner)
