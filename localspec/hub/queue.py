"""The queue of downloads: one at a time, in an order that can be changed, and kept in a file over restarts.

Belongs to a program, not to a screen. Knows nothing about how it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, RLock, Thread
from time import monotonic
from typing import Literal

from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import AccessDenied, CheckpointError, HubAway, LocalspecError, PullError
from localspec.core.events import Record
from localspec.core.json_store import JsonStore
from localspec.hub import pulls
from localspec.hub.environment import is_offline
from localspec.hub.gates import next_step, state_sentence
from localspec.hub.process import ANSWER_SECONDS, HubProcess
from localspec.hub.records import AskPull, Go, HubAnswer, Progress, Pulled, PullPlan, PullRequest, Retrying
from localspec.hub.request import parts_of

State = Literal["waiting", "downloading", "retrying", "paused", "failed", "done"]
RUNNING: tuple[State, ...] = ("downloading", "retrying")
OVER: tuple[State, ...] = ("done",)
PACE = 0.1  # seconds between two changes that only say how far it is
WAITS = (5.0, 10.0, 30.0)  # seconds before a hub is asked again that is away
ENDED = PullError("The download's process ended.", hint="Progress is kept.")


class Download(Record, frozen=True):
    """A download in the queue. `done` of `total` bytes are here; `reason`: why it does not go on, and what to do."""

    request: PullRequest
    position: int = 0
    state: State = "waiting"
    done: int = 0
    total: int = 0
    stage: str = ""
    bytes_per_second: float | None = None
    eta_s: float | None = None
    reason: str = ""
    retry_seconds: float = 0.0
    """How long the hub's process waits before it tries again, counted from when it reported that."""
    slow: bool = False

    @property
    def key(self) -> str:
        asked = self.request
        named = ("", asked.repo), (":", asked.variant), ("@", asked.revision)
        return "".join(f"{sign}{word}" for sign, word in named if word)

    @property
    def repos(self) -> tuple[str, ...]:
        """The repositories of its target and its drafter; auto and none are among them, and name no repository."""
        return self.request.repo, parts_of(self.request.draft)[0]

    @property
    def percent(self) -> int:
        return 100 * self.done // self.total if self.total else 0

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING


def kept_downloads() -> JsonStore[Download]:
    return JsonStore(paths.downloads_file, Download)


class DownloadQueue:
    """`changed` is called from any thread: with each new state, and at most every `pace` seconds with progress. What
    was not complete when the last program ended is there, paused."""

    def __init__(
        self,
        changed: Callable[[Download], object],
        *,
        pace: float = PACE,
        waits: tuple[float, ...] = WAITS,
        silence: float = ANSWER_SECONDS,
    ) -> None:
        self._changed, self._pace, self._waits, self._silence = changed, pace, waits, silence
        self._failures, self._woken = Counter[str](), Event()
        self._lock, self._store = RLock(), kept_downloads()
        self._items = {key: replace(item, state="paused") for key, item in self._store.read().items()}
        self._disk = ThreadPoolExecutor(1, "downloads")  # a slow disk holds up no screen
        self._worker: Thread | None = None
        self._hub: HubProcess | None = None
        self._changed_at = 0.0

    # --- what there is

    @property
    def items(self) -> tuple[Download, ...]:
        """All of them in their order, those that are complete too."""
        with self._lock:
            return tuple(sorted(self._items.values(), key=lambda item: item.position))

    @property
    def unfinished(self) -> tuple[Download, ...]:
        return tuple(item for item in self.items if item.state not in OVER)

    @property
    def running(self) -> Download | None:
        return next((item for item in self.items if item.is_running), None)

    def find(self, repo: str) -> Download | None:
        """The download that brings this repository, as its target or its drafter."""
        return next((item for item in self.items if repo in item.repos), None)

    # --- what a user does

    def add(self, request: PullRequest, *, done: int = 0, total: int = 0) -> Download:
        """Put it last, or let it go on where it is in the queue already."""
        with self._lock:
            last = max((item.position for item in self._items.values()), default=0)
            new = Download(request, last + 1, done=done, total=total)
            known = self._items.get(new.key)
            if known is not None and known.state not in OVER:
                new = replace(known, request=request, state="waiting", reason="") if not known.is_running else known
            self._put(new)
        self._work_on()
        return new

    def find_unfinished(self) -> None:
        """Take in what `localspec pull` has begun and no process is at, paused; and of what is here already how much of
        it is on the disk: a program that was killed could not note it. Reads the disk."""
        found: dict[str, Download] = {}
        for one in pulls.unfinished():
            if one.request is not None and not one.running:
                new = Download(one.request, 0, "paused")
                known = found.get(new.key, new)  # a drafter has the request of its target
                found[new.key] = replace(known, done=known.done + one.done, total=known.total + one.total)
        for item in found.values():
            self._take_in(item)

    def _take_in(self, found: Download) -> None:
        with self._lock:
            known = self._items.get(found.key)
            if known is None:
                last = max((item.position for item in self._items.values()), default=0)
                self._put(replace(found, position=last + 1))
            elif known.state not in (*RUNNING, *OVER):
                total = known.total or found.total  # of the target alone, too, when that is complete
                now = replace(known, total=total, done=max(0, total - (found.total - found.done)))
                if now != known:
                    self._put(now)

    def pause(self, key: str) -> None:
        self._stop(key, "paused")

    def go_on(self, key: str) -> None:
        """Let one that is paused or failed wait for its turn; try one that waits for the hub again at once."""
        self._stop(key, "waiting")
        self._work_on()

    def drop(self, key: str) -> None:
        """Take it off the queue; the parts that came stay where they are."""
        with self._lock:
            dropped = self._items.pop(key, None)
            self._woken.set()
            if dropped is not None and dropped.is_running and self._hub is not None:
                self._hub.close()
        if dropped is not None:
            self._disk.submit(self._forget, dropped)
            self._changed(dropped)

    def move(self, key: str, by: int) -> None:
        """Let it change places with the one before (-1) or after it (1)."""
        with self._lock:
            order = [item.key for item in self.items]
            index = order.index(key) if key in order else 0
            other = index + by
            if key in order and 0 <= other < len(order):
                first, second = self._items[key], self._items[order[other]]
                self._put(replace(first, position=second.position))
                self._put(replace(second, position=first.position))

    def close(self) -> None:
        """End what runs: the file has it, and so has the disk what came of it."""
        with self._lock:
            for item in self.unfinished:
                self._items[item.key] = paused = replace(item, state="paused")
                self._disk.submit(self._store.put, item.key, paused)
            hub = self._hub
            self._woken.set()
        if hub is not None:
            hub.close()
        self._disk.shutdown()

    # --- the work, in a thread of its own

    def _work_on(self) -> None:
        with self._lock:
            if self._worker is None:
                self._worker = Thread(target=self._work, name="downloads", daemon=True)
                self._worker.start()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            self._fetch(item)

    def _next(self) -> Download | None:
        with self._lock:
            waiting = next((item for item in self.items if item.state == "waiting"), None)
            if waiting is None:
                self._worker = None
                return None
            self._hub = HubProcess(silence=self._silence)
            return self._put(replace(waiting, state="downloading", stage="resolving", reason=""))

    def _fetch(self, item: Download) -> None:
        assert self._hub is not None
        with self._hub as hub:
            try:
                for answer in answers(hub, item.request):
                    if not self._take(item.key, answer):
                        return
            except LocalspecError as fault:
                if isinstance(fault, HubAway) and not is_offline():
                    self._wait(item.key, fault)
                else:
                    self._fail(item.key, fault)
            except (OSError, ValueError):  # its pipes were closed while it was read
                self._fail(item.key, ENDED)

    def _take(self, key: str, answer: HubAnswer) -> bool:
        """Whether it is still wanted."""
        with self._lock:
            item = self._items.get(key)
            if item is None or not item.is_running:
                return False
            match answer:
                case Progress():
                    self._progress(item, answer)
                case PullPlan():
                    del self._failures[key]
                    total = answer.num_bytes
                    self._items[key] = replace(item, total=total, done=min(total, total - answer.bytes_left))
                case Retrying():
                    waits = replace(item, reason=answer.reason, retry_seconds=answer.seconds)
                    self._put(at_rest(waits, "retrying"))
                case Pulled():
                    self._put(at_rest(replace(item, done=item.total, reason=""), "done"))
                case _:
                    pass
            return True

    def _progress(self, item: Download, at: Progress) -> None:
        """The first that brings a byte after a pause on the line changes the state, and is not left out."""
        if item.state == "retrying" and at.stage == item.stage and at.done <= item.done:
            return
        known = replace(item, state="downloading", stage=at.stage, reason="")
        if at.stage in ("downloading", "linking"):
            speed = {"bytes_per_second": at.bytes_per_second, "eta_s": at.eta_s, "slow": at.slow}
            known = replace(known, done=at.done, total=at.total, **speed)
        self._items[item.key] = known
        now = monotonic()
        if item.state != "downloading" or now - self._changed_at >= self._pace:
            self._changed_at = now
            self._changed(known)

    def _wait(self, key: str, fault: HubAway) -> None:
        """Let it wait before its next try, longer each time until the hub gives a plan."""
        with self._lock:
            item = self._items.get(key)
            if item is None or not item.is_running:
                return
            seconds = self._waits[min(self._failures[key], len(self._waits) - 1)]
            self._failures[key] += 1
            self._woken.clear()
            self._put(at_rest(replace(item, reason=fault.message, retry_seconds=seconds), "retrying"))
        self._woken.wait(seconds)
        with self._lock:
            item = self._items.get(key)
            if item is not None and item.state == "retrying":
                self._put(replace(item, state="waiting"))

    def _fail(self, key: str, fault: LocalspecError) -> None:
        with self._lock:
            item = self._items.get(key)
            if item is not None and item.is_running:
                reason = fault.message if isinstance(fault, PullError) else str(fault)  # its hint names a command
                self._put(at_rest(replace(item, reason=reason), "failed"))

    # --- both

    def _stop(self, key: str, state: State) -> None:
        with self._lock:
            item = self._items.get(key)
            if item is None or item.state in OVER:
                return
            self._put(at_rest(replace(item, reason=""), state))
            self._woken.set()
            if item.is_running and self._hub is not None:
                self._hub.close()

    def _forget(self, item: Download) -> None:
        """Let no list of what is unfinished name it again."""
        self._store.remove(item.key)
        pulls.drop(item.request)

    def _put(self, item: Download) -> Download:
        self._items[item.key] = item
        if item.state in OVER:
            self._disk.submit(self._store.remove, item.key)
        else:
            self._disk.submit(self._store.put, item.key, item)
        self._changed(item)
        return item


def at_rest(item: Download, state: State) -> Download:
    return replace(item, state=state, bytes_per_second=None, eta_s=None, slow=False)


def answers(hub: HubProcess, request: PullRequest) -> Iterator[HubAnswer]:
    """The answers to a pull whose plan was accepted before; raises where it can no longer be carried out."""
    for answer in hub.ask(AskPull(request)):
        if isinstance(answer, PullPlan):
            check(answer)
        yield answer
    yield from hub.ask(Go())


def check(plan: PullPlan) -> None:
    access = plan.target.access
    if not access.may_read:
        raise AccessDenied(state_sentence(access), hint=next_step(plan.target.repo, access.page, access))
    if plan.unloadable:
        raise CheckpointError(plan.unloadable)
