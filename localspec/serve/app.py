"""The routes: health, models, chat completions, completions, metrics; each with and without /v1.

Knows how a request becomes a response; who may ask is the guard's, and what answers is the host's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from time import time
from typing import Any  # Any: JSON

from msgspec import convert
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from localspec.core.events import AnyEvent, Done, Failure, Prefill, Step
from localspec.core.requests import SamplingOptions, Template
from localspec.serve.answers import Kind, ReplyWriter
from localspec.serve.bodies import CompletionRequest, chat_request, completion_request
from localspec.serve.engine import STOPPED, Host
from localspec.serve.exchange import PING, QueuedAnswer
from localspec.serve.faults import FAILED, NOT_LOADED, RequestRefused, loading, of_failure
from localspec.serve.guard import HAS_KEY, Guard
from localspec.serve.metrics import MEDIA_TYPE, AnswerTotals
from localspec.serve.queue import Queue
from localspec.serve.replies import DONE, EventStream, Json, comment, data, refusal, watched
from localspec.serve.request_body import Bodies
from localspec.serve.security import AccessRules

WHAT_THERE_IS = "There are /v1/chat/completions, /v1/completions, /v1/models, /health and /metrics."
OTHER_PROTOCOLS = {"responses": "Responses", "messages": "Messages", "messages/count_tokens": "Messages"}
CHAT = "localspec-chat"  # a header
BASE_MODEL = "This is a base model without a chat template. Complete text instead: POST /v1/completions"


@dataclass(frozen=True, slots=True)
class Served:
    """The model under its `name`, and what holds where a request says nothing. `names`: others that it is known by;
    `sampling` gives a request all of its options."""

    name: str
    names: frozenset[str] = frozenset()
    sampling: Callable[[SamplingOptions, SamplingOptions], SamplingOptions] = SamplingOptions.over
    template: Template | None = None
    max_tokens: int | None = None


@dataclass(slots=True)
class Site:
    """What the routes share."""

    served: Served
    host: Host
    queue: Queue
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    bodies: Bodies = field(default_factory=Bodies)
    ping: float = PING
    since: int = field(default_factory=lambda: int(time()))

    # --- what reads

    async def health(self, request: Request) -> Response:
        """Says whether it answers; without the key no more: no model's name, and no reason, which may have one."""
        if not request.scope[HAS_KEY]:
            if self.host.is_out_of_order:
                raise NOT_LOADED
            if self.host.state == "loading":
                raise loading(None)
            return Json({"status": "ok"})
        if self.host.is_out_of_order:
            fault = of_failure(self.host.failure)
            raise RequestRefused(503, fault.message, code=fault.code, kind=fault.kind)
        self.host.check_loaded()
        is_loaded, parallel = self.host.state == "ready", self.host.parallel
        return Json({"status": "ok", "model": self.served.name, "parallel": parallel, "loaded": is_loaded})

    async def models(self, _: Request) -> Response:
        return Json({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return Json(self._model())

    async def metrics(self, _: Request) -> Response:
        text = self.totals.text(
            answering=self.queue.answering,
            waiting=self.queue.waiting,
            starts=self.host.starts,
            is_loaded=self.host.state == "ready",
            parallel=self.host.parallel,
        )
        return PlainTextResponse(text, media_type=MEDIA_TYPE)

    async def other_protocol(self, request: Request) -> Response:
        name = OTHER_PROTOCOLS[request.path_params["name"]]
        message = f"{name} is a protocol that this server does not have. {WHAT_THERE_IS}"
        raise RequestRefused(404, message, code="not_found")

    def _model(self) -> dict[str, Any]:
        found = {"id": self.served.name, "object": "model", "created": self.since, "owned_by": "localspec"}
        if (ready := self.host.ready) is None:
            return found
        card = ready.model
        meta = {"n_ctx": card.context_max, "quant": card.quant, "device": card.device}
        return {**found, "meta": meta, "localspec": {"spec": ready.spec}}

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self.served.name and name not in self.served.names:
            message = f"There is no model '{name[:100]}' here; this server has '{self.served.name}'."
            raise RequestRefused(404, message, parameter="model", code="model_not_found")

    # --- what answers

    async def _body(self, request: Request) -> bytes:
        """The request's body; RequestRefused, before it is read, while the model loads or where the queue is full."""
        self.host.check_loaded()
        self.queue.check(ahead=is_chat(request))
        return await self.bodies.read(request)

    async def chat(self, request: Request) -> Response:
        asked = chat_request(await self._body(request))
        self.host.check_loaded()
        asked = replace(asked, request=replace(asked.request, template=self.served.template))
        if self.served.template is None and self.host.ready is not None and not self.host.ready.model.chat:
            raise RequestRefused(400, BASE_MODEL, code="no_chat_template")
        return await self._answer("chat", asked, request)

    async def completions(self, request: Request) -> Response:
        return await self._answer("completion", completion_request(await self._body(request)), request)

    async def _answer(self, kind: Kind, asked: CompletionRequest, request: Request) -> Response:
        self._check_model(asked.model)
        self.host.check_loaded()
        self._check_limit(asked)
        exchange = QueuedAnswer(self.host, self.queue, self._completed(asked), self.ping, ahead=is_chat(request))
        try:
            if not asked.stream:
                return await self._whole(kind, exchange, request)
            lines = self._lines(kind, exchange)
            return EventStream(led_by(await anext(lines), lines), exchange.close)
        except BaseException:
            exchange.close()
            raise

    def _check_limit(self, asked: CompletionRequest) -> None:
        limit, ready = asked.request.max_tokens, self.host.ready
        if limit is not None and ready is not None and limit > ready.model.context_max:
            context = ready.model.context_max
            message = f"'{asked.limit_field}' is {limit:,}, more than the context of {context:,} tokens."
            raise RequestRefused(400, message, parameter=asked.limit_field, code="out_of_range")

    def _completed(self, asked: CompletionRequest) -> CompletionRequest:
        """The request with the options that the server's user set, and the model's own, beneath its own."""
        own = self.host.ready.model.sampling if self.host.ready is not None else {}
        sampling = self.served.sampling(asked.request.sampling, convert(own, SamplingOptions))
        limit = asked.request.max_tokens or self.served.max_tokens
        return replace(asked, request=replace(asked.request, sampling=sampling, max_tokens=limit))

    async def _whole(self, kind: Kind, exchange: QueuedAnswer, request: Request) -> Response:
        async with watched(request.receive, exchange.close):
            async for _ in exchange.turn():
                pass
            reply = None
            async for event in exchange.events():
                reply = reply or self._reply(kind, exchange)
                self._take(reply, event)
            if reply is None:
                raise RequestRefused(400, "The client has left.", code="gone")
            return Json(reply.whole())

    async def _lines(self, kind: Kind, exchange: QueuedAnswer) -> AsyncIterator[bytes]:
        """The stream's lines. An error before the first is raised, and one after it is an event."""
        begun = False
        try:
            async for words in exchange.turn():
                begun = True
                yield comment(words)
            async for line in self._events(kind, exchange):
                begun = True
                yield line
        except RequestRefused as fault:
            if not begun:
                raise
            yield data(fault.body)

    async def _events(self, kind: Kind, exchange: QueuedAnswer) -> AsyncIterator[bytes]:
        reply = None
        async for event in exchange.events():
            if reply is None:
                reply = self._reply(kind, exchange)
            self._take(reply, event)
            match event:
                case Prefill():
                    yield comment(f"reading {event.cached + event.done} of {event.total}")
                case Step():
                    for chunk in (*reply.opening(), *reply.chunk(event)):
                        yield data(chunk)
                case Done():
                    for chunk in (*reply.opening(), *reply.closing()):
                        yield data(chunk)
                    yield DONE

    def _reply(self, kind: Kind, exchange: QueuedAnswer) -> ReplyWriter:
        assert self.host.ready is not None
        return ReplyWriter(kind, exchange.asked, self.host.ready, exchange.spec, self.served.name)

    def _take(self, reply: ReplyWriter, event: AnyEvent) -> None:
        """Adds the event; RequestRefused if the answer ended with an error."""
        if isinstance(event, Failure):
            self.totals.answers["error"] += 1
            raise of_failure(event)
        reply.take(event)
        if isinstance(event, Done):
            self.totals.add(event.stats)
            if event.finish_reason == "cancelled":
                raise of_failure(STOPPED)

    # --- what is refused

    async def refused(self, _: Request, fault: Exception) -> Response:
        assert isinstance(fault, RequestRefused)
        self.totals.refuse(fault.status)
        return refusal(fault)

    async def failed(self, _: Request, __: Exception) -> Response:
        self.totals.refuse(FAILED.status)
        return refusal(FAILED, close=True)

    async def not_found(self, request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        path = request.url.path[:100]
        messages = {404: f"There is no '{path}' here.", 405: f"'{path}' does not take {request.method[:20]}."}
        message = f"{messages.get(fault.status_code, fault.detail)} {WHAT_THERE_IS}"
        return await self.refused(
            request, RequestRefused(fault.status_code, message, code="not_found", headers=fault.headers)
        )


def is_chat(request: Request) -> bool:
    """Whether a person waits for it. A header says so, for a body is not read where the queue is full."""
    return CHAT in request.headers


async def led_by(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


def make_app(
    site: Site, rules: AccessRules, lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None
) -> ASGIApp:
    """The server as an ASGI application, behind its guard."""
    reads = {
        "/health": site.health,
        "/models": site.models,
        "/models/{name:path}": site.model,
        "/metrics": site.metrics,
    }
    writes = {"/chat/completions": site.chat, "/completions": site.completions}
    routes = [
        *(Route(f"{at}{path}", route, methods=["GET"]) for at in ("", "/v1") for path, route in reads.items()),
        *(Route(f"{at}{path}", route, methods=["POST"]) for at in ("", "/v1") for path, route in writes.items()),
        *(
            Route(f"{at}/{name}", other(site, name), methods=["GET", "POST"])
            for at in ("", "/v1")
            for name in OTHER_PROTOCOLS
        ),
    ]
    handlers: dict[Any, Any] = {RequestRefused: site.refused, HTTPException: site.not_found, Exception: site.failed}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, rules, site.totals.refuse)


def other(site: Site, name: str) -> Callable[[Request], Any]:
    async def refuse(request: Request) -> Response:
        request.path_params["name"] = name
        return await site.other_protocol(request)

    return refuse
