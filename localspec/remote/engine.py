"""A server as an engine: the calls of EngineProcess, the events of core/events.py, over HTTP.

Knows no screen. `events` belongs to one thread and does all the asking; all else may be called from any.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from msgspec.structs import replace

from localspec.core.errors import ContextOverflow, LocalspecError, RemoteError, UsageError
from localspec.core.events import (
    AnyEvent,
    Done,
    Failure,
    FinishReason,
    Loading,
    Memory,
    ModelCard,
    Notice,
    Ready,
    SpecCard,
    Stats,
    Steered,
    Text,
)
from localspec.core.requests import AnyRequest, ChangeDrafter, GenerateRequest, SpecOptions
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import SERVER, UNREPORTED
from localspec.remote import comments, faults, sse
from localspec.remote.answers import AnswerChunk, AnswerReader
from localspec.remote.exchange import DEADLINES, HttpExchange, ServerTimeouts
from localspec.remote.figures import stats
from localspec.remote.readiness import find_loaded, waited, while_loading
from localspec.remote.request_body import body, is_off
from localspec.remote.server import FoundServer, Remote, ServerModel, ServerProbe
from localspec.remote.totals import ServerTotals, of_one_answer

CANNOT_SWITCH = "{title} cannot switch speculation for one answer; it is set where the server is started"
CANNOT_CHANGE = "The server chooses its drafter."
OPEN_KEY = Notice(
    "warning",
    "open_key",
    "The key goes to this server unencrypted.",
    "Use https, or a tunnel: ssh -L 8000:127.0.0.1:8000 HOST",
)
UNAVAILABLE = 503
STREAMS = {False: "text/event-stream", True: "application/x-ndjson"}


@dataclass(slots=True)
class Clock:
    """Keeps when an answer was asked for, and when its first and its last text came, in seconds."""

    asked: float
    first: float = 0.0
    last: float = 0.0

    def tick(self) -> None:
        self.last = time.monotonic()
        self.first = self.first or self.last

    @property
    def ttft_ms(self) -> float:
        return 1000 * (self.first - self.asked) if self.first else 0.0

    @property
    def writing_ms(self) -> float:
        return 1000 * (self.last - self.first)


class RemoteEngine:
    """Asks nothing before `events` is read."""

    def __init__(self, remote: Remote, deadlines: ServerTimeouts = DEADLINES) -> None:
        self.remote, self.deadlines = remote, deadlines
        self._waiting: SimpleQueue[AnyRequest | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._exchange: HttpExchange | None = None  # of the answer
        self._short: HttpExchange | None = None  # of the short question beside it
        self._asked = self._stopped = -1  # the numbers of the last answer asked for and of the last to be stopped
        self._answered = -1
        self._closed = False
        self._asked_spec: SpecOptions | None = None  # None: not steered yet, and the server does as it was started
        self._own = SpecOptions()  # how the server drafts unasked, as far as it says so
        self._card: SpecCard | None = None  # the drafter, where the server names it
        self._tells_each: bool | None = None  # whether the server reports an answer's drafts; None: not known yet

    # --- what the chat calls

    def start(self) -> None:
        """Asks nothing yet: `events` does, in its own thread."""

    def ask(self, request: GenerateRequest) -> None:
        with self._lock:
            self._asked += 1
        self._waiting.put(request)

    def steer(self, options: SpecOptions) -> None:
        self._waiting.put(options)

    def change_drafter(self, asked: ChangeDrafter) -> None:
        self._waiting.put(asked)

    def cancel(self) -> None:
        """The answer asked for last ends here."""
        with self._lock:
            self._stopped = self._asked
            open_now = (self._exchange, self._short) if self._answered == self._asked else ()
        for exchange in filter(None, open_now):
            exchange.stop()

    def close(self) -> None:
        """Ends all. Twice does no harm."""
        with self._lock:
            self._closed, self._stopped, open_now = True, self._asked, (self._exchange, self._short)
        for exchange in filter(None, open_now):
            exchange.stop()
        self._waiting.put(None)

    def events(self) -> Iterator[AnyEvent]:
        """Ready and the answers, until it is closed; a Failure where the server is not there."""
        yield Loading(f"asking {one_line(self.remote.title)}", 0, 1, "steps")
        try:
            found = yield from find_loaded(self.remote, self.deadlines, self._keep, lambda: self._closed)
            model = found.model(self.remote.model)
        except LocalspecError as fault:
            if not self._closed:
                yield failure(fault)
            return
        if found.access.key and found.access.address.is_open:
            yield OPEN_KEY
        if model.spec is not None:
            self._meet(model.spec)
        yield ready(found, model, self._spec(found))
        while (message := self._waiting.get()) is not None and not self._closed:
            yield from self._take(message, found, model)

    def _asking(self) -> ServerProbe:
        return ServerProbe(self.remote.access, self.deadlines, self._keep)

    def _take(self, message: AnyRequest, found: FoundServer, model: ServerModel) -> Iterator[AnyEvent]:
        match message:
            case SpecOptions():
                self._asked_spec = message
                yield Steered(self._spec(found))
            case ChangeDrafter():
                yield failure(UsageError(CANNOT_CHANGE))
            case GenerateRequest():
                with self._lock:
                    self._answered += 1
                try:
                    yield from self._answer_when_loaded(message, found, model)
                except LocalspecError as fault:
                    yield self._ended() if self._is_stopped else failure(fault, message)

    def _meet(self, card: SpecCard) -> None:
        """Takes the drafter that the server names; what it was asked for is not its own way."""
        self._card = card
        if self._asked_spec is None:
            self._own = SpecOptions(card.mode, card.k)

    def _spec(self, found: FoundServer) -> SpecCard:
        """How the next answer is drafted for, as far as it is known."""
        if self._card is None:
            return spec_card(found, self._asked_spec or SpecOptions())
        return replace(self._card, mode=self._asked_spec.mode, k=self._asked_spec.k) if self._asked_spec else self._card

    def _keep(self, exchange: HttpExchange) -> None:
        with self._lock:
            self._short = exchange
        if self._is_stopped:
            exchange.stop()

    # --- an answer

    @property
    def _is_stopped(self) -> bool:
        return self._closed or 0 <= self._answered <= self._stopped

    def _ended(self) -> Done:
        """An answer that was stopped before its figures came."""
        return Done("cancelled", Stats(draft_kind=UNREPORTED, finish_reason="cancelled"))

    def _begin(self) -> HttpExchange:
        with self._lock:
            self._exchange = HttpExchange(self.remote.access, self.deadlines)
            return self._exchange

    def _answer_when_loaded(
        self, request: GenerateRequest, found: FoundServer, model: ServerModel
    ) -> Iterator[AnyEvent]:
        """The answer; a server that refuses it since it loads its model is asked again once it has."""
        while True:
            try:
                yield from self._answer(request, found, model)
                return
            except RemoteError:
                if not self._is_unavailable:
                    raise
                if not (yield from waited(self._asking(), lambda: self._is_stopped, while_loading)):
                    raise

    @property
    def _is_unavailable(self) -> bool:
        """Whether the question was refused, and nothing written."""
        return self._exchange is not None and self._exchange.status == UNAVAILABLE

    def _answer(self, request: GenerateRequest, found: FoundServer, model: ServerModel) -> Iterator[AnyEvent]:
        exchange, kind = self._begin(), found.kind
        asked = body(kind, model.name, request, (self._asked_spec, self._own))
        before = self._totals(found)
        reader, clock = self._reader(request, found), Clock(time.monotonic())
        if self._is_stopped:
            yield self._ended()
            return
        with exchange:
            response = exchange.ask("POST", kind.path, asked, kind.headers)
            content_type = response.getheader("Content-Type", "")
            if content_type.partition(";")[0].strip().lower() != STREAMS[kind.lines]:
                raise faults.of_another_kind(found.access.name, content_type)
            lines = exchange.lines(response)
            for sent in written(lines) if kind.lines else sse.events(lines):
                if self._is_stopped or sent == sse.END:
                    break
                if isinstance(sent, str):
                    piece = reader.read(sent)
                    yield from self._shown(piece, clock)
                    if piece.spec is not None and request.speculate is None:
                        self._meet(piece.spec)
                        yield Steered(self._spec(found))
                elif (event := comments.read(sent.words)) is not None:
                    yield event
        yield self._done(request, reader, clock, (found, model, before))

    def _reader(self, request: GenerateRequest, found: FoundServer) -> AnswerReader:
        begun = request.messages[-1].content if request.continues and request.messages and found.kind.echoes else ""
        return AnswerReader(found.access.name, lines=found.kind.lines, echo=begun)

    def _shown(self, piece: AnswerChunk, clock: Clock) -> Iterator[AnyEvent]:
        if piece.text:
            clock.tick()
        if piece.step is not None:
            yield piece.step
        elif piece.text:
            yield Text(piece.text)
        yield from piece.notices

    def _done(
        self,
        request: GenerateRequest,
        reader: AnswerReader,
        clock: Clock,
        asked: tuple[FoundServer, ServerModel, ServerTotals | None],
    ) -> AnyEvent:
        """The end with its figures; a stream that ended before the answer did is a failure."""
        found, model, before = asked
        finish: FinishReason | None = "cancelled" if self._is_stopped else reader.finish
        if finish is None:
            return failure(faults.cut(found.access.name))
        if reader.own is not None:
            return Done(finish, replace(reader.own, finish_reason=finish))
        self._learn(found, reader)
        is_stopped = finish == "cancelled" and reader.streamed.predicted_n  # localspec's: its own sums did not come
        after = None if finish == "cancelled" else self._totals(found)  # whoever stopped it waits for nothing more
        figures = reader.streamed if is_stopped else of_one_answer(reader.figures, before, after)
        sums = stats(
            figures,
            finish=finish,
            ttft_ms=clock.ttft_ms,
            writing_ms=clock.writing_ms,
            context_max=model.context,
            off=found.kind.switches and is_off(request, self._asked_spec),
        )
        return Done(finish, sums)

    def _learn(self, found: FoundServer, reader: AnswerReader) -> None:
        """A vLLM that reports every answer's drafts need not be asked for its totals."""
        if found.kind.name == "vllm":
            self._tells_each = reader.figures.drafted is not None

    def _totals(self, found: FoundServer) -> ServerTotals | None:
        """The server's totals now, where they are all that it says of drafts."""
        if found.kind.name != "vllm" or self._tells_each:
            return None
        with suppress(LocalspecError):
            return self._asking().totals()
        return None


def written(lines: Iterable[bytes]) -> Iterator[str]:
    """JSON lines, without empty ones."""
    return (line.decode("utf-8", errors="replace") for line in lines if line.strip())


def failure(fault: LocalspecError, request: GenerateRequest | None = None) -> Failure:
    """An error as an event. A chat that is too long may be asked again without its oldest turn."""
    asked = [message for message in (request.messages or ()) if message.role == "user"] if request else []
    over = 1 if isinstance(fault, ContextOverflow) and len(asked) > 1 else 0
    return Failure(fault.code, fault.message, fault.hint, fault.exit_code, turns_over=over)


def ready(found: FoundServer, model: ServerModel, spec: SpecCard) -> Ready:
    """The server as a model that is loaded."""
    where = f"{found.kind.title} at {found.access.address.url.partition('://')[2]}"
    card = ModelCard(one_line(title(model.name)), "", where, model.context, chat=True, server=found.access.address.url)
    return Ready(card, spec, Memory(0, 0, 0))


def title(name: str) -> str:
    """A model's name for the user: llama-server calls its models by the file's path."""
    return os.path.basename(name.rstrip("/")) if os.path.isabs(name) else name


def spec_card(found: FoundServer, options: SpecOptions) -> SpecCard:
    """Speculation is the server's; `reason`: why it cannot be switched from here."""
    reason = "" if found.kind.switches else CANNOT_SWITCH.format(title=found.kind.title)
    return SpecCard(SERVER, one_line(found.speculation), k=options.k, reason=reason, mode=options.mode)
