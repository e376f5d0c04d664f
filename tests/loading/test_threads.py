"""The count of threads follows the machine's other work, in virtual time; and changes no token, in ours."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch

from localspec import load
from localspec.core.drain import drain
from localspec.core.requests import GenerateRequest, LoadRequest, Message
from localspec.loading import threads
from localspec.loading.threads import LONG, SHARE, Threads
from localspec.runtime import api, drafter_setup
from localspec.runtime import open as opening
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [{"role": "user", "content": "hello there general"}]


class Rows:
    """A decoder whose rows take what `seconds` says of a count of threads."""

    def __init__(self, seconds: Callable[[int], float], device: str = "cpu") -> None:
        self.seconds, self.clock, self.threads, self.device = seconds, 0.0, 1, torch.device(device)
        self.length, self.context = 7, 100
        self.lengths: list[int] = []

    def set_threads(self, threads: int) -> None:
        self.threads = threads

    def forward(self, ids: torch.Tensor) -> None:
        self.clock += self.seconds(self.threads)
        self.length += len(ids)

    def crop(self, length: int) -> None:
        self.length = length
        self.lengths.append(length)


def quiet(count: int) -> float:
    return 0.1 / count


def busy(count: int) -> float:
    """All wait for the one that has to share its core."""
    return 0.1 if count == 1 else 0.8


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    made = Rows(quiet)
    for module in ("loading.threads", "loading.resident_decoder"):
        monkeypatch.setattr(f"localspec.{module}.perf_counter", lambda: made.clock)
    return made


def answer(target: Any, changing: Threads, seconds: float, *beside: Any) -> float:
    """Rounds of one row each for so long; how much of it was spent beside them."""
    until, spent = target.clock + seconds, 0.0
    while target.clock < until:
        began = target.clock
        target.forward(torch.zeros(1))
        target.crop(7)
        took, ended = target.clock - began, target.clock
        changing.after(took, (target, *beside))
        spent += target.clock - ended
    return spent


def test_a_machine_that_becomes_busy_after_loading_is_noticed_and_one_that_becomes_quiet_again(rows: Rows):
    changing = Threads([1, 2, 4], 4)
    answer(rows, changing, 30)
    assert rows.threads == changing.count == 4
    rows.seconds = busy
    answer(rows, changing, 400)
    assert rows.threads == changing.count == 1
    rows.seconds = quiet
    answer(rows, changing, 400)
    assert rows.threads == changing.count == 4


@pytest.mark.parametrize("seconds", [quiet, busy])
def test_looking_costs_the_share_that_it_may(seconds: Callable[[int], float], rows: Rows):
    rows.seconds = seconds
    changing = Threads([1, 2], 1)
    answer(rows, changing, 10)
    assert 0 < answer(rows, changing, 1000) < 1000 * SHARE * 1.1


def test_what_is_committed_stays(rows: Rows):
    answer(rows, Threads([1, 2], 1), 10)
    assert set(rows.lengths) == {7}


def test_a_full_context_has_no_row_to_measure_with(rows: Rows):
    rows.length = rows.context
    Threads([1, 2], 2).after(1000, (rows,))  # type: ignore[arg-type]
    assert rows.clock == 0


def test_a_long_prompt_is_read_by_all_threads_and_a_short_one_by_those_that_write(rows: Rows):
    changing, beside, far = Threads([1, 2, 4], 1), Rows(quiet), Rows(quiet, "meta")
    for tokens, count in ((LONG, 4), (LONG - 1, 1)):
        changing.read(tokens, (rows, beside, far))  # type: ignore[arg-type]
        assert (rows.threads, beside.threads, far.threads) == (count, count, 1)
        changing.write((rows, beside, far))  # type: ignore[arg-type]
        assert (rows.threads, beside.threads, changing.count) == (1, 1, 1)


def test_one_core_has_nothing_to_choose(rows: Rows):
    changing = Threads([1], 1)
    assert answer(rows, changing, 100) == 0
    assert changing.count == 1


def test_a_draft_that_torch_computes_has_its_threads_back(rows: Rows):
    """Measuring keeps torch's out of the way."""

    class Torch(Rows):
        def set_threads(self, threads: int) -> None:
            torch.set_num_threads(threads)

    answer(rows, Threads([1, 2], 2), 10, Torch(quiet))
    assert torch.get_num_threads() == 2


def test_a_draft_beside_it_follows_and_one_on_a_gpu_does_not(rows: Rows):
    rows.seconds = busy
    beside, far = Rows(quiet), Rows(quiet, "meta")
    changing = Threads([1, 2], 2)
    beside.threads = far.threads = 2
    answer(rows, changing, 60, beside, far)
    assert (changing.count, rows.threads, beside.threads, far.threads) == (1, 1, 1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("draft", ["off", "early-exit:2", "itself"])
def test_no_token_depends_on_when_the_count_changes(draft: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Another count after every round."""
    counts, used = cycle((2, 3, 1)), set[int]()
    monkeypatch.setattr(threads, "SHARE", 1e9)
    monkeypatch.setattr(threads, "FIRST_SECONDS", 0)
    monkeypatch.setattr(drafter_setup, "possible", lambda: [1, 2, 3])
    monkeypatch.setattr(opening, "choose_threads", lambda *_, **__: 1)

    def another(self: Threads, target: Any) -> int:
        used.add(count := next(counts))
        for tried in self.counts:
            threads.mean_row(target, tried)
        return count

    monkeypatch.setattr(Threads, "_better", another)
    named = str(folder) if draft == "itself" else draft
    asked: dict[str, Any] = {"max_tokens": 24, "temperature": 0}
    with load(str(folder), quant="int8", draft="off", threads=1) as llm:
        expected = [token.id for token in llm.generate(HI, **asked).tokens]
    with load(str(folder), quant="int8", draft=named, k=3) as llm:
        assert [token.id for token in llm.generate(HI, **asked).tokens] == expected
    assert used == {1, 2, 3}


def test_a_prompt_that_all_threads_read_has_the_same_answer(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the answer is cancelled in the middle of the prompt: those that write are back."""
    counts = list[int]()
    use = Threads._use

    def counted(count: int, decoders: Any) -> None:
        counts.append(count)
        use(count, decoders)

    monkeypatch.setattr(Threads, "_use", staticmethod(counted))
    monkeypatch.setattr(drafter_setup, "possible", lambda: [1, 2, 3])
    monkeypatch.setattr(opening, "choose_threads", lambda *_, **__: 1)
    long = [{"role": "user", "content": "hello there general " * LONG}]
    asked: dict[str, Any] = {"max_tokens": 8, "temperature": 0}
    with load(str(folder), quant="int8", draft="off", threads=1) as llm:
        expected = [token.id for token in llm.generate(long, **asked).tokens]
    with load(str(folder), quant="int8", draft=str(folder), k=3) as llm:
        assert [token.id for token in llm.generate(long, **asked).tokens] == expected
        assert counts[:2] == [3, 1]
        llm._model.forget()
        counts.clear()
        events = llm._model.answer(GenerateRequest(messages=(Message("user", long[0]["content"]),)))
        while counts != [3]:
            next(events)
        events.close()
        assert counts == [3, 1]


@pytest.mark.parametrize(
    ("asked", "changes"), [({}, True), ({"threads": 1}, False), ({"quant": "fp32"}, False)], ids=str
)
def test_only_a_count_that_nobody_named_changes_and_only_where_no_bit_depends_on_it(
    asked: dict[str, Any], changes: bool, folder: Path
):
    request = LoadRequest.of(str(folder), **{"quant": "int8", "draft": "off", **asked})
    with drain(api.load_events(request)) as llm:
        assert (llm._model.state.parts.threads is not None) == changes
