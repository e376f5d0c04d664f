"""A conversation in Python: its turns, answered one after another. Knows no file but the one that it is saved to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: the options of an answer, and messages that come as plain dicts

from localspec.core.arguments import check, checked
from localspec.core.errors import NO_ANSWER, UsageError
from localspec.core.events import AnyEvent, Step
from localspec.core.requests import Message, Reference
from localspec.core.whole_file import cannot_be_written
from localspec.history.references import answer
from localspec.runtime.result import Result
from localspec.runtime.stream import Stream

if TYPE_CHECKING:
    from localspec.runtime.api import LLM


class Chat:
    """Turns of a conversation. A stopped answer is kept; a question without any answer is dropped."""

    def __init__(self, llm: LLM, system: str | None, options: dict[str, Any]) -> None:
        self._llm = llm
        self._options = options
        self.messages: list[Message] = [Message("system", system)] if system else []

    @checked
    def send(self, text: str) -> Result:
        return self.stream(text).result()

    @checked
    def stream(self, text: str) -> ChatStream:
        return self._stream([*self.messages, Message("user", text)])

    def retry(self) -> Result:
        """Answer the last user turn again; the prompt is in the cache already, and a look-up copies from the answer
        before."""
        turns, before = self._turns(), list[Reference]()
        while turns and turns[-1].role == "assistant":
            text = turns.pop().content
            before.append(answer("branch", "", turns, text))
        if not turns or turns[-1].role != "user":
            raise UsageError("There is no answer to regenerate.", hint="Send a message first.")
        return self._stream(turns, *before).result()

    def resume(self) -> Result:
        """Go on with the last answer, which was cut. The result is what is new; `messages` has the answer whole."""
        turns = self._turns()
        if not turns or turns[-1].role != "assistant":
            raise UsageError(NO_ANSWER, hint="Send a message first.")
        stream = self._llm.stream(turns, continues=True, **self._options)
        return ChatStream(stream, turns[:-1], self.messages, turns[-1].content).result()

    def _turns(self) -> list[Message]:
        """The messages, of which the user may have written some."""
        check("messages", self.messages, Sequence[Message | dict[str, Any]])
        return list(map(Message.of, self.messages))

    def _stream(self, turns: list[Message], *before: Reference) -> ChatStream:
        references = (*before, *self._options.get("references", ()))
        return ChatStream(self._llm.stream(turns, **{**self._options, "references": references}), turns, self.messages)

    def branch(self) -> Chat:
        """A copy that goes its own way."""
        copy = Chat(self._llm, None, self._options)
        copy.messages = list(self.messages)
        return copy

    @checked
    def save(self, path: str | Path) -> None:
        """The turns as JSON."""
        turns = [{"role": message.role, "content": message.content} for message in self._turns()]
        with cannot_be_written(Path(path)):
            Path(path).write_text(json.dumps(turns, ensure_ascii=False, indent=1), encoding="utf-8")


class ChatStream:
    """An answer that joins the conversation with its question when it ends, however it ends, if it has any text.
    `text` is what there was of it."""

    def __init__(self, stream: Stream, turns: list[Message], messages: list[Message], text: str = "") -> None:
        self._stream = stream
        self._turns = turns
        self._messages = messages
        self._text = text

    def __iter__(self) -> Iterator[AnyEvent]:
        before = self._text
        try:
            for event in self._stream:
                self._text += event.text if isinstance(event, Step) else ""
                yield event
        finally:
            if self._text != before:
                self._messages[:] = [*self._turns, Message("assistant", self._text)]

    def cancel(self) -> None:
        self._stream.cancel()

    def close(self) -> None:
        self._stream.close()

    def result(self) -> Result:
        for _ in self:
            pass
        return self._stream.result()
