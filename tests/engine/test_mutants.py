"""L2: the tests can fail. Each mutant is a line of the engine changed; levels L0, L1, L3, L4 run until one objects.

The level that is there for it runs first. A mutant that nobody kills fails, and so does one whose line has gone from
the engine. `make slow` prints every level that sees it.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from localspec.engine import acceptance, cache, decode, decoder, samplers, sampling, session
from localspec.engine.drafters import early_exit, model
from localspec.engine.samplers import Rejection
from tests.engine.test_acceptance_algebra import check_algebra
from tests.engine.test_exact_in_float64 import POLICIES, check_exact, check_seeded, plain_texts, prompts
from tests.engine.test_exact_in_float64 import SAMPLED as SEEDED
from tests.engine.test_law_of_samples import ENOUGH, SHAPES, check_loop, check_seeds, check_tensor_program
from tests.engine.test_rollback import check_rollback

pytestmark = pytest.mark.heavy

ASKED = prompts(2)
GREEDY_TEXTS = plain_texts(ASKED, 20)  # the engine's as it is, before any mutant
SEEDED_TEXTS = plain_texts(ASKED, 20, SEEDED)


def algebra() -> None:
    check_algebra(14)


def law() -> None:
    check_tensor_program(3, SHAPES[0], 20_000, greedy_draft=False)
    check_tensor_program(2, SHAPES[1], 20_000, greedy_draft=True)
    check_loop(2, SHAPES[1], ENOUGH, greedy_draft=False)
    check_seeds(2, SHAPES[0], 400)


def rollback() -> None:
    check_rollback(range(60))


def exact() -> None:
    for drafter in ("exit 2", "another", "n-grams", "itself"):
        check_exact(drafter, ASKED, GREEDY_TEXTS, (1, 4))
        check_seeded(drafter, POLICIES["constant"], ASKED[0], SEEDED_TEXTS[0])


LEVELS: dict[str, Callable[[], None]] = {"L0": algebra, "L1": law, "L3": rollback, "L4": exact}


class Mutant(NamedTuple):
    """In `owner`'s function `name`, `old` becomes `new`. `level`: the one that is there to see it."""

    level: str
    owner: Any
    name: str
    old: str
    new: str


MUTANTS = {
    "q and p swapped": Mutant(
        "L0",
        acceptance,
        "accept_block",
        "p[..., :-1, :].gather(-1, index) / q.gather(-1, index)",
        "q.gather(-1, index) / p[..., :-1, :].gather(-1, index)",
    ),
    "coins of a certain draft turned": Mutant(
        "L0", acceptance, "accept_one_hot", "coin < p_drafted", "coin > p_drafted"
    ),
    "a block that forgets what came before": Mutant("L0", acceptance, "accept_block", "scales[-1] * ratio", "ratio"),
    "a block that may gain more than all": Mutant("L0", acceptance, "accept_block", ".clamp_max(1)", ""),
    "a block that ends at the first refusal": Mutant(
        "L0",
        acceptance,
        "accept_block",
        "(kept * torch.arange(kept.shape[-1], device=p.device)).amax(-1)",
        "matching_prefix(kept) - 1",
    ),
    "residual of q over p": Mutant("L0", acceptance, "residual", "(p - q)", "(q - p)"),
    "residual not normalised": Mutant(
        "L0", acceptance, "residual", "positive / total.clamp_min(torch.finfo(p.dtype).tiny)", "positive"
    ),
    "raw q, from before top-k": Mutant(
        "L1", Rejection, "propose", "draw(q, self.generator), q", "draw(q, self.generator), scores.softmax(-1)"
    ),
    "bonus from the wrong row": Mutant(
        "L0", acceptance, "accept_block", "row(p, accepted)", "row(p, (accepted - 1).clamp_min(0))"
    ),
    "bonus of a certain draft from the wrong row": Mutant(
        "L0", acceptance, "accept_one_hot", "row(p, accepted)", "row(p, (accepted - 1).clamp_min(0))"
    ),
    "bonus from the wrong row, greedy": Mutant(
        "L3", samplers.Greedy, "accept", "int(chosen[accepted])", "int(chosen[max(accepted - 1, 0)])"
    ),
    "no crop": Mutant("L3", session.Session, "roll_back", "self.target.crop(length)", "pass"),
    "no crop of the drafter": Mutant("L3", session.Session, "roll_back", "self.drafter.crop(length)", "pass"),
    "crop one too few": Mutant(
        "L3", session.Session, "roll_back", "self.target.crop(length)", "self.target.crop(length + 1)"
    ),
    "crop one too many": Mutant(
        "L3", session.Session, "roll_back", "self.target.crop(length)", "self.target.crop(max(length - 1, 0))"
    ),
    "crop that raises the counter": Mutant("L4", cache.Cache, "crop", "min(self.length, length)", "length"),
    "position off by one, drafting": Mutant(
        "L4", early_exit.EarlyExitDrafter, "draft", "self.target.length + position", "self.target.length + position + 1"
    ),
    "position off by one, the last draft": Mutant(
        "L4",
        decoder.Span,
        "behind",
        "slice(self.positions.start + done, self.positions.stop)",
        "slice(self.positions.start + done + 1, self.positions.stop + 1)",
    ),
    "position off by one, rotating": Mutant(
        "L4",
        decoder.Decoder,
        "rotary_tables",
        "self.cos[span.positions]",
        "self.cos.roll(-1, 0)[span.positions]",
    ),
    "one coin for all positions": Mutant(
        "L1",
        acceptance,
        "accept_block",
        "torch.rand(ratio.shape, generator=generator, dtype=p.dtype, device=p.device)",
        "torch.rand(ratio.shape, generator=generator, dtype=p.dtype)[..., :1].expand(ratio.shape)",
    ),
    "coins drawn again each round": Mutant(
        "L1",
        Rejection,
        "accept",
        "if draft.probs is None:",
        "self.generator.manual_seed(len(draft))\n    if draft.probs is None:",
    ),
    "one noise for all positions": Mutant("L1", sampling, "gumbel_noise", "mix(seed, position)", "mix(seed, 0)"),
    "noise of the wrong position, drafting": Mutant(
        "L4", samplers.Seeded, "propose", "len(session.tokens) + len(drafted)", "len(drafted)"
    ),
    "temperature on one side": Mutant(
        "L1",
        Rejection,
        "accept",
        "p = shape(penalise(logits, self.sampling, session.tokens, draft.tokens), self.sampling)",
        "p = shape(logits, Sampling(1.0, self.sampling.top_k, self.sampling.top_p))",
    ),
    "first draft token unverified": Mutant(
        "L0",
        acceptance,
        "matching_prefix",
        "matches.long()",
        "torch.cat((matches[..., :1] | True, matches[..., 1:]), dim=-1).long()",
    ),
    "penalties a row late": Mutant("L3", sampling, "seen_tokens", "len(drafted) - rows,", "len(drafted) - rows - 1,"),
    "a stop rewinds one too few": Mutant("L3", decode, "cut", "+ length)", "+ length + 1)"),
    "a draft as long as the context": Mutant(
        "L3", decode, "decode", "session.tokens_left) - 1", "session.tokens_left) + 1"
    ),
    "what was missed is not read": Mutant(
        "L3", model.ModelDrafter, "draft", "session.tokens[self.decoder.length :]", "session.tokens[-1:]"
    ),
    "mask that sees one ahead": Mutant("L4", decoder.Decoder, "mask", "columns > row if", "columns > row + 1 if"),
}


def apply(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's own source with one change, in its own module's names, wherever it had been imported."""
    original = getattr(mutant.owner, mutant.name)
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(original)))
    assert source.count(mutant.old) == 1, f"'{mutant.old}' stands {source.count(mutant.old)} times in {mutant.name}"
    names: dict[str, Any] = {}
    code = compile(
        source.replace(mutant.old, mutant.new), mutant.name, "exec", flags=__future__.annotations.compiler_flag
    )
    exec(code, inspect.unwrap(original).__globals__, names)
    if inspect.isclass(mutant.owner):
        monkeypatch.setattr(mutant.owner, mutant.name, names[mutant.name])
        return
    for module in [
        module
        for name, module in sys.modules.items()
        if name.startswith(("localspec", "tests.engine", "tests.support"))
    ]:
        if getattr(module, mutant.name, None) is original:
            monkeypatch.setattr(module, mutant.name, names[mutant.name])


def objects(level: str) -> bool:
    try:
        LEVELS[level]()
    except (AssertionError, RuntimeError):  # torch's own, for rows that have no place in the cache
        return True
    return False


@pytest.mark.parametrize("level", LEVELS)
def test_the_engine_as_it_is_passes(level: str) -> None:
    LEVELS[level]()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_killed(mutant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first = MUTANTS[mutant].level
    with monkeypatch.context() as changed:
        apply(MUTANTS[mutant], changed)
        killer = next((level for level in sorted(LEVELS, key=lambda level: level != first) if objects(level)), None)
    with capsys.disabled():
        print(f"\n  {mutant}: {f'killed by {killer}' if killer else 'ALIVE'}", end="")
    assert killer == first


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_all_that_kill_a_mutant(
    mutant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as changed:
        apply(MUTANTS[mutant], changed)
        killers = [level for level in LEVELS if objects(level)]
    with capsys.disabled():
        print(f"\n  {mutant}: {' '.join(killers) or 'ALIVE'}", end="")
    assert MUTANTS[mutant].level in killers
