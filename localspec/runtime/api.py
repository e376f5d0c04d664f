"""The Python interface: text in, events out. `load` a model, then `generate`, `stream` or `chat`.

Runs the engine in this process; the chat runs the same in a child. Knows no screen and no command line.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from typing import Any, Literal, Self  # Any: messages may come as plain dicts

from localspec.core.arguments import check_names, checked
from localspec.core.drain import drain
from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Loading, Notice, Ready, SpecCard
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
    SpecOptions,
    WeightOptions,
    draft_length,
)
from localspec.core.trace import TracedRound
from localspec.core.weight_formats import INT8_THRESHOLD
from localspec.loading.plan_request import check as check_weights
from localspec.runtime.chat import Chat
from localspec.runtime.open import open_model
from localspec.runtime.parallel import Answers
from localspec.runtime.result import Result
from localspec.runtime.sampling_defaults import check_limits
from localspec.runtime.slots import Slots
from localspec.runtime.stream import Stream

PromptInput = str | Sequence[Message | dict[str, Any]]


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
        prompt: PromptInput,
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
    def steer(self, options: SpecOptions) -> SpecCard:
        """Speculate so from the next round on, whatever is being answered; says how it is done now. From any thread."""
        return self._slots.steer(options)

    @checked
    def change_drafter(self, draft: AskedDraft, *, k: AskedLength = "auto", draft_quant: str = "auto") -> SpecCard:
        """Draft otherwise from now on, as `load` takes it; says how it is done now. The model is not read again, and a
        conversation stays in the cache. A drafter that cannot be loaded leaves plain decoding."""
        check_weights(WeightOptions(draft_format=draft_quant))
        asked = ChangeDrafter(draft, draft_length(k), draft_format=draft_quant)
        deque(self._slots.change_drafter(asked), maxlen=0)
        return self._model.spec

    @checked
    def generate(self, prompt: PromptInput, **options: Any) -> Result:
        """One whole answer; options as for `stream`."""
        return self.stream(prompt, **options).result()

    @checked
    def generate_many(self, prompts: Iterable[PromptInput], **options: Any) -> list[Result]:
        """Whole answers in the order of the prompts, written `parallel` at a time; each is what `generate` gives. The
        error of one ends all. Options as for `stream`."""
        if isinstance(prompts, str):
            raise UsageError("The prompts are a single text, not a list.", hint="Give a list: [prompt]")
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
    async def astream(self, prompt: PromptInput, **options: Any) -> AsyncIterator[AnyEvent]:
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


@checked
def request_of(  # noqa: PLR0913 - the options of an answer
    prompt: PromptInput,
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
        messages=None if isinstance(prompt, str) else tuple(map(Message.of, prompt)),
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
