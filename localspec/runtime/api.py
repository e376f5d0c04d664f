"""The Python interface: text in, events out. `load` a model, then `generate`, `stream` or `chat`.

Runs the engine in this process; the chat runs the same in a child. Knows no screen and no command line.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self  # Any: messages may come as plain dicts

from localspec.core.arguments import check, check_names, checked
from localspec.core.drain import drain
from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Loading, Notice, Ready, SpecCard, Step
from localspec.core.requests import (
    SAMPLING_FIELDS,
    AskedDraft,
    AskedLength,
    ChangeDrafter,
    GenerateRequest,
    LoadRequest,
    Message,
    Reference,
    SamplingOptions,
    Size,
    SpecWish,
    draft_length,
)
from localspec.core.trace import TracedRound
from localspec.core.weight_formats import INT8_THRESHOLD
from localspec.core.whole_file import cannot_be_written
from localspec.history.references import answer
from localspec.runtime.gathered import Gathered, Result
from localspec.runtime.many import Answers
from localspec.runtime.model import Model
from localspec.runtime.open import open_model
from localspec.runtime.sampling_defaults import check_limits
from localspec.runtime.slots import Slots

Messages = Sequence[Message | dict[str, Any]]
Prompt = str | Messages
SUCH = 'Write {"role": "user", "content": "Hello"}, for example.'


class Stream:
    """An answer as it comes: iterate over its events, `cancel` from any thread, `result` for all of it."""

    def __init__(
        self, model: Model, request: GenerateRequest, trace: Callable[[TracedRound], object] | None = None
    ) -> None:
        self._cancel = threading.Event()
        self._events = model.answer(request, self._cancel.is_set, trace)
        self._gathered = Gathered()

    def __iter__(self) -> Iterator[AnyEvent]:
        for event in self._events:
            self._gathered.take(event)
            yield event

    def cancel(self) -> None:
        """Stop before the next forward; what was written stays."""
        self._cancel.set()

    def close(self) -> None:
        """Drops the rest, so that the next answer may begin."""
        self._events.close()

    def result(self) -> Result:
        """The whole answer; runs to its end first."""
        for _ in self:
            pass
        return self._gathered.result()


class LLM:
    """A loaded model with its drafter. Use it in a `with`, or `close` it."""

    def __init__(self, slots: Slots) -> None:
        self._slots, self._model = slots, slots.first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the weights. Closing twice does no harm; later calls raise UsageError."""
        self._slots.close()

    @property
    def ready(self) -> Ready:
        """The loaded model, its drafter and its memory."""
        return self._slots.ready

    @checked
    def stream(  # noqa: PLR0913 - the options of an answer
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        continues: bool = False,
        speculate: bool | None = None,
        references: Sequence[Reference] = (),
        beams: int = 1,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> Stream:
        """Events of one answer. A string is completed as it is; messages go through the chat template.

        `continues`: the last message is the assistant's, and goes on. `speculate`: with drafts, or without.
        `references`: texts that a look-up may copy from, the newest first. `beams`: search so many texts for the
        likeliest, without drafts and without sampling. `logprobs`: each Token has its log-probability, before
        temperature and cuts, and those of so many likeliest tokens, 0 to 20.
        sampling: the fields of SamplingOptions (temperature, seed, …).
        """
        asked = request_of(
            prompt,
            max_tokens=max_tokens,
            stop=stop,
            continues=continues,
            speculate=speculate,
            references=references,
            beams=beams,
            logprobs=logprobs,
            **sampling,
        )
        return self.answer(asked)

    @checked
    def answer(self, request: GenerateRequest, *, trace: Callable[[TracedRound], object] | None = None) -> Stream:
        """Streams the answer to a request record, as the chat's pipe carries it; `trace` is called with every
        round."""
        check_limits(request)
        self._model.check_open()
        return Stream(self._model, request, trace)

    @checked
    def steer(self, wish: SpecWish) -> SpecCard:
        """Speculate so from the next round on, whatever is being answered; says how it is done now. From any thread."""
        return self._slots.steer(wish)

    @checked
    def change_drafter(self, draft: AskedDraft, *, k: AskedLength = "auto") -> SpecCard:
        """Draft otherwise from now on, as `load` takes it; says how it is done now. The model is not read again, and a
        conversation stays in the cache. A drafter that cannot be loaded leaves plain decoding."""
        deque(self._slots.change_drafter(ChangeDrafter(draft, draft_length(k))), maxlen=0)
        return self._model.spec

    @checked
    def generate(self, prompt: Prompt, **options: Any) -> Result:
        """One whole answer; options as for `stream`."""
        return self.stream(prompt, **options).result()

    @checked
    def generate_many(self, prompts: Iterable[Prompt], **options: Any) -> list[Result]:
        """Whole answers in the order of the prompts, written `parallel` at a time; each is what `generate` gives. The
        error of one ends all. Options as for `stream`."""
        if isinstance(prompts, str):
            raise UsageError("The prompts are one text.", hint="Give a list: [prompt]")
        answers = dict(self.answer_many(request_of(prompt, **options) for prompt in prompts))
        return [answers[number].result() for number in range(len(answers))]

    @checked
    def answer_many(
        self, requests: Iterable[GenerateRequest], *, cancelled: Callable[[], bool] = lambda: False
    ) -> Answers:
        """Answers to request records as they are ready, each with the number of its request, from 0; `result` of one
        that failed raises its error. Once it is `cancelled`, what is under way ends, and nothing more is begun."""
        self._model.check_open()
        return Answers(self._slots, requests, cancelled)

    @checked
    async def astream(self, prompt: Prompt, **options: Any) -> AsyncIterator[AnyEvent]:
        """`stream` without blocking the event loop."""
        import asyncio

        events = iter(self.stream(prompt, **options))
        while (event := await asyncio.to_thread(next, events, None)) is not None:
            yield event

    @checked
    def chat(self, *, system: str | None = None, **options: Any) -> Chat:
        """A conversation that remembers; options as for `stream`, for every turn."""
        self._model.check_open()
        return Chat(self, system, options)


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
            raise UsageError("There is nothing to answer again.", hint="Send a message first.")
        return self._stream(turns, *before).result()

    def resume(self) -> Result:
        """Go on with the last answer, which was cut. The result is what is new; `messages` has the answer whole."""
        turns = self._turns()
        if not turns or turns[-1].role != "assistant":
            raise UsageError("There is no answer to continue.", hint="Send a message first.")
        stream = self._llm.stream(turns, continues=True, **self._options)
        return ChatStream(stream, turns[:-1], self.messages, turns[-1].content).result()

    def _turns(self) -> list[Message]:
        """The messages, of which the user may have written some."""
        check("messages", self.messages, Messages)
        return [make_message(message) for message in self.messages]

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


@checked
def request_of(  # noqa: PLR0913 - the options of an answer
    prompt: Prompt,
    *,
    max_tokens: int | None = None,
    stop: str | Sequence[str] = (),
    continues: bool = False,
    speculate: bool | None = None,
    references: Sequence[Reference] = (),
    beams: int = 1,
    logprobs: int | None = None,
    **sampling: Any,
) -> GenerateRequest:
    """The request record of `LLM.stream`'s arguments."""
    check_names(sampling, SAMPLING_FIELDS)
    return GenerateRequest(
        messages=None if isinstance(prompt, str) else tuple(make_message(message) for message in prompt),
        prompt=prompt if isinstance(prompt, str) else None,
        max_tokens=max_tokens,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        sampling=SamplingOptions(**sampling),
        continues=continues,
        speculate=speculate,
        references=tuple(references),
        beams=beams,
        logprobs=logprobs,
    )


def make_message(message: Message | dict[str, Any]) -> Message:
    if isinstance(message, Message):
        return message
    if set(message) != {"role", "content"} or message["role"] not in ("system", "user", "assistant"):
        fault = "A message has a role (system, user or assistant) and a content, and nothing else."
        raise UsageError(fault, hint=SUCH)
    if not isinstance(message["content"], str):
        raise UsageError("A message's content is text.", hint=SUCH)
    return Message(message["role"], message["content"])


@checked
def load(  # noqa: PLR0913 - the words of the command line
    model: str | os.PathLike[str] = "guide",
    *,
    draft: AskedDraft | os.PathLike[str] = "auto",
    quant: str = "auto",
    device: str = "auto",
    ctx: int | None = None,
    k: AskedLength = "auto",
    threads: int | None = None,
    keep_head: bool = False,
    int8_threshold: float = INT8_THRESHOLD,
    max_memory: Size | None = None,
    save_quantized: bool = False,
    draft_quant: str = "auto",
    parallel: int | Literal["auto"] = 1,
    folding: bool = True,
) -> LLM:
    """A model by catalogue key, folder or GGUF file, ready to answer. For progress, iterate over `load_events`.
    `parallel`: how many answers `generate_many` writes at once, each with a context of its own in memory."""
    request = LoadRequest.of(
        os.fspath(model),
        draft=os.fspath(draft) if isinstance(draft, os.PathLike) else draft,
        quant=quant,
        device=device,
        ctx=ctx,
        k=draft_length(k),
        threads=threads,
        keep_head=keep_head,
        int8_threshold=int8_threshold,
        max_memory=max_memory,
        save_quantized=save_quantized,
        draft_quant=draft_quant,
        parallel=parallel,
        folding=folding,
    )
    return drain(load_events(request))


@checked
def load_events(request: LoadRequest) -> Generator[Loading | Notice | Ready, None, LLM]:
    """Progress, then Ready; returns the LLM."""
    return LLM((yield from open_model(request)))
