"""An engine that replays lists of events: one to open with, then one for each request. No model, no clock.

`python -m tests.support.scripted_engine` opens the chat on a demonstration.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Condition

import msgspec

from localspec.core.events import (
    AnyEvent,
    Done,
    Failure,
    FinishReason,
    Loading,
    Memory,
    ModelCard,
    Notice,
    Prefill,
    Proposal,
    Ready,
    SpecCard,
    Stats,
    Steered,
    Step,
    Token,
)
from localspec.core.requests import ChangeDrafter, GenerateRequest, SpecOptions
from localspec.runtime.stats import Tally

READY = Ready(
    model=ModelCard(
        name="guide", quant="int8", device="cpu", context_max=8192, chat=True, layers=12, sampling={"temperature": 0.0}
    ),
    spec=SpecCard(kind="model", name="guide-draft", k="auto"),
    memory=Memory(target_bytes=100 << 20, drafter_bytes=10 << 20, kv_bytes=8 << 20),
)
DIED = Failure(
    code="engine_died", message="The engine's process is gone.", hint="Load it again; what was written is kept."
)
MILLISECONDS = 20.0


def step(*texts: str, accepted: int | None = None) -> Step:
    """A round in which the drafter wrote all tokens but the last; `accepted=0` with one token is a plain one."""
    if len(texts) == 1 and accepted == 0:
        return Step(kind="plain", tokens=(Token(id=1, text=texts[0], source="plain"),), verify_ms=MILLISECONDS)
    drafted = tuple(Token(id=i, text=text, source="draft", pos=i) for i, text in enumerate(texts[:-1]))
    wanted = Proposal(id=7, text="x")
    last = Token(id=9, text=texts[-1], source="fix", alt=wanted)
    return Step(
        kind="draft",
        tokens=(*drafted, last),
        drafted=len(drafted) + 1,
        accepted=len(drafted),
        draft_ms=MILLISECONDS / 4,
        verify_ms=MILLISECONDS,
        rejected=(wanted,),
    )


def answer(*rounds: Step, finish: FinishReason = "stop", prompt: int = 12) -> list[AnyEvent]:
    """A whole generation: prompt read, rounds, and the figures they add up to."""
    script: list[AnyEvent] = [Prefill(done=prompt, total=prompt, cached=0), *rounds]
    return [*script, Done(finish_reason=finish, stats=totals(script, finish))]


def totals(script: Sequence[AnyEvent], finish: FinishReason) -> Stats:
    tally = Tally()
    for event in (READY, *script):
        tally.add(event)
    known = {name: getattr(tally.stats, name) for name in Stats.__struct_fields__}
    return Stats(**{**known, "ttft_ms": 210.0, "finish_reason": finish})


class ScriptedEngine:
    """Plays freely, or one event per permit after pause(). What it is steered to is confirmed before the next event;
    scripts stay. `changes` answer the requests for another drafter, in turn."""

    def __init__(
        self,
        *scripts: Sequence[AnyEvent],
        opening: Sequence[AnyEvent] = (READY,),
        changes: Sequence[Sequence[AnyEvent]] = (),
        paused: bool = False,
        before: Callable[[AnyEvent], None] = lambda _: None,
    ) -> None:
        self.requests: list[GenerateRequest] = []
        self.steered: list[SpecOptions] = []
        self.drafters: list[ChangeDrafter] = []
        self.started = self.closed = False
        self._opening, self._scripts, self._before = opening, list(scripts), before
        self._changes = list(changes)
        self._asked: SimpleQueue[GenerateRequest | SpecOptions | ChangeDrafter | None] = SimpleQueue()
        self._unconfirmed: deque[SpecOptions] = deque()
        self._changed = Condition()
        self._permits: float = 0 if paused else float("inf")
        self._dead = self._cancelled = False
        self._playing: int | None = None

    # --- what the chat calls

    def start(self) -> None:
        self.started = True

    def numbered(self) -> Iterator[tuple[int | None, AnyEvent]]:
        """The events, those of answers with their numbers."""
        for event in self.events():
            number = None if isinstance(event, Loading | Ready | Steered) or event == DIED else self._playing
            yield number, event

    def events(self) -> Iterator[AnyEvent]:
        yield from self._play(self._opening)
        ready = any(isinstance(event, Ready) for event in self._opening)
        while ready and not self._over and (asked := self._asked.get()) is not None:
            match asked:
                case GenerateRequest():
                    self._playing = 0 if self._playing is None else self._playing + 1
                    yield from self._play(self._scripts.pop(0))
                case ChangeDrafter():
                    self._change(_cancelled=False)  # that was of the answer before
                    yield from self._play(self._changes.pop(0))
                case SpecOptions():
                    yield from self._confirm()
        if self._dead and not self.closed:
            yield DIED

    def ask(self, request: GenerateRequest) -> int:
        self.requests.append(request)
        self._cancelled = False
        self._asked.put(request)
        return len(self.requests) - 1

    def steer(self, options: SpecOptions) -> None:
        self.steered.append(options)
        with self._changed:
            self._unconfirmed.append(options)
            self._changed.notify_all()
        self._asked.put(options)

    def change_drafter(self, asked: ChangeDrafter) -> None:
        self.drafters.append(asked)
        self._asked.put(asked)

    def cancel(self, _: int | None = None) -> None:
        self._change(_cancelled=True)

    def close(self) -> None:
        self._change(closed=True)
        self._asked.put(None)

    # --- what a test calls

    def permit(self, count: float = float("inf")) -> None:
        """Let so many more events out; all of them by default."""
        self._change(_permits=self._permits + count)

    def die(self) -> None:
        """As if the child were killed."""
        self._change(_dead=True)
        self._asked.put(None)

    @property
    def _over(self) -> bool:
        return self._dead or self.closed

    def _change(self, **state: object) -> None:
        with self._changed:
            for name, value in state.items():
                setattr(self, name, value)
            self._changed.notify_all()

    def _play(self, script: Sequence[AnyEvent]) -> Iterator[AnyEvent]:
        played: list[AnyEvent] = []
        for event in script:
            self._before(event)
            while not self._admitted():
                yield from self._confirm()
            if self._over:
                return
            if self._cancelled and not isinstance(event, Done):
                yield Done(finish_reason="cancelled", stats=totals(played, "cancelled"))
                return
            played.append(event)
            yield event

    def _admitted(self) -> bool:
        """Whether the next event may go out; else it has been steered, which comes first."""
        with self._changed:
            self._changed.wait_for(lambda: self._unconfirmed or self._permits > 0 or self._cancelled or self._over)
            if self._unconfirmed:
                return False
            self._permits -= 1
            return True

    def _confirm(self) -> Iterator[AnyEvent]:
        while self._unconfirmed:
            options = self._unconfirmed.popleft()
            yield Steered(msgspec.structs.replace(READY.spec, mode=options.mode, k=options.k))


# --- the demonstration

TEXT = """Speculative decoding lets a **small drafter** guess a few tokens, and the real model checks them *at once*.

1. The drafter proposes `k` tokens.
2. The target verifies them in **one** forward pass.
3. The longest agreed prefix is kept, and the target adds a token of its own.

```python
def speculative_round(target, drafter, tokens, k):
    draft = drafter.draft(tokens, k)
    logits = target.forward(tokens.pending + draft)
    return accept(logits, draft)
```

| drafter | cost | accepted |
|---|---|---|
| model | low | 71 % |
| early exit | lower | 58 % |

Nothing is lost: the text is the one the model *would have written* anyway. See [the paper](https://arxiv.org/abs/2211.17192).
"""


def rounds(text: str, size: int = 3) -> list[Step]:
    """The text in rounds of a few words, every fifth without a draft."""
    words = [word + " " for line in text.splitlines(keepends=True) for word in line.split(" ")]
    words = [word.replace("\n ", "\n") for word in words]
    pieces = [words[i : i + size] for i in range(0, len(words), size)]
    made: list[Step] = []
    for index, piece in enumerate(pieces):
        made += [step(word, accepted=0) for word in piece] if index % 5 == 1 else [step(*piece)]
    return made


def demonstration() -> ScriptedEngine:
    def pace(event: AnyEvent) -> None:
        time.sleep({Loading: 0.3, Prefill: 0.2, Step: 0.03}.get(type(event), 0))

    opening = [*(Loading("loading weights", n, 8, eta_s=0.3 * (8 - n)) for n in range(9)), READY]
    notice = Notice("info", "demo", "This is a demonstration: nothing here is a model.")
    script = answer(*rounds(TEXT))
    return ScriptedEngine([notice, *script], script, script, script, opening=opening, before=pace)


if __name__ == "__main__":
    from localspec.tui.app import ChatApp

    ChatApp(demonstration).run()
