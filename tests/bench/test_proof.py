"""`localspec verify`: what it calls the same, a near tie and a divergence, and that it finds a wrong engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from localspec.bench import proof
from localspec.bench.prompts import BenchPrompt
from localspec.bench.proof import EveryKind, prove
from localspec.bench.proof_report import Difference, Proof, ProofRow
from localspec.cli import proof as command
from localspec.cli.proof import refuse
from localspec.core.errors import Divergence, EngineError
from localspec.core.requests import LoadRequest
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.protocols import PLAIN, Offer
from localspec.engine.session import Session
from tests.conftest import Program
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like
from tests.support.two_tongues import unigram

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified", "one_state_folder")]

ASKED = (BenchPrompt("chat", "hello there general"), BenchPrompt("code", "there hello there hello there"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "tiny"
    save_snapshot(made, gpt2_like(), template=CHATML, eos="<|im_end|>")
    return made


def proven(folder: Path, draft: str = "lookup+early-exit:2", quant: str = "fp64", **more: Any) -> Proof:
    asked = LoadRequest.of(str(folder), draft=draft, quant=quant, threads=1)
    return prove(asked, prompts=ASKED, **{"num_prompts": 3, "max_tokens": 16, **more})


@pytest.mark.parametrize("quant", ["fp64", "int8"])
def test_a_sound_engine_writes_plain_text_and_that_is_said(folder: Path, quant: str):
    """Greedily and with a seed, each of three prompts; both parts of a mixed drafter draft."""
    found = proven(folder, quant=quant)
    (row,) = found.rows
    assert (row.answers, row.same, row.differences, row.fault) == (6, 6, (), "")
    assert row.drafted == row.accepted + row.rejected + row.ignored > 0
    assert found.to_markdown().endswith(
        "Drafting changed nothing: with look-up + early exit 2, all 6 answers are the same, token for token, as "
        "without it."
    )
    refuse(found)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A target and a drafter whose tokenizers differ, and whose every token is text."""
    made = tmp_path_factory.mktemp("pair")
    said = {"template": CHATML, "eos": "</s>"}
    return [
        save_snapshot(made / "target", unigram(), **said),
        save_snapshot(made / "other", unigram(nfkc=True), num_hidden_layers=1, **said),
    ]


@pytest.mark.parametrize(
    ("before", "quant"),
    [("", "int8"), *(pytest.param("lookup+", quant, marks=pytest.mark.slow) for quant in ("int8", "int4", "fp64"))],
)
def test_a_draft_model_with_another_tokenizer_drafts_in_the_proof_too(pair: list[Path], before: str, quant: str):
    """Its text is translated along each prompt."""
    target, other = pair
    (row,) = proven(target, f"{before}{other}", quant).rows
    assert (row.answers, row.same, row.differences, row.fault) == (6, 6, (), "")
    assert row.drafted > 0


@pytest.mark.slow
def test_a_rollback_that_is_one_off_is_a_divergence(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The cache keeps a rejected token: rounding does not explain it."""

    def off_by_one(self: Session) -> None:
        length = max(len(self.tokens) - 1, 0)
        self.target.crop(length + 1 if length > 20 else length)
        self.drafter.crop(length)

    monkeypatch.setattr(Session, "roll_back", off_by_one)
    found = proven(folder, "early-exit:2")
    assert found.diverged
    with pytest.raises(Divergence, match="Drafting with early exit 2 changed the text") as fault:
        refuse(found)
    assert fault.value.exit_code == 6


@pytest.mark.slow
def test_a_wide_forward_that_rounds_otherwise_is_counted_as_near_ties_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """As in bf16 on a GPU, and larger, so that it flips tokens: every logit depends on the width of the forward."""
    forward = Decoder.forward

    def rounding(self: Decoder, ids: torch.Tensor, *more: Any, **said: Any) -> torch.Tensor:
        logits = forward(self, ids, *more, **said)
        noise = torch.randn(logits.shape[-1], generator=torch.Generator().manual_seed(len(ids)), dtype=logits.dtype)
        return logits + 0.5 * noise if len(ids) > 1 else logits

    monkeypatch.setattr(Decoder, "forward", rounding)
    found = proven(folder, "early-exit:2", num_prompts=6)
    (row,) = found.rows
    assert row.near_ties > 0
    assert row.divergences == []
    assert f"the others but for {row.near_ties} near ties" in found.to_markdown()
    refuse(found)


def test_a_drafter_that_fails_proves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no more memory")

    monkeypatch.setattr(EarlyExitDrafter, "draft", broken)
    found = proven(folder, "early-exit:2")
    assert "early exit 2 (failed: no more memory)" in found.to_markdown()
    with pytest.raises(EngineError, match="failed: early exit 2"):
        refuse(found)


def test_the_command_prints_a_table_or_json_and_its_exit_code_is_that_of_a_divergence(
    folder: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    words = (
        "verify",
        folder,
        "--draft",
        "lookup",
        "--prompts",
        "1",
        "--max-tokens",
        "8",
        "--quant",
        "fp32",
        "--threads",
        "1",
    )
    monkeypatch.setattr(proof, "prompts_for", lambda _: ASKED)
    code, out, _ = localspec(*words)
    assert code == 0
    assert "| drafter | answers | same |" in out
    code, out, _ = localspec(*words, "--json")
    assert json.loads(out)["rows"][0]["drafter"] == "look-up"
    wrong = ProofRow("look-up", 1, 0, 8, 4, 2, 2, 0, (Difference("prompt 1, greedy", 3, " a", "\x1b[31m", 2.0, 0.0),))
    monkeypatch.setattr(command, "prove", lambda *_, **__: Proof("tiny", "fp32", "cpu", 1, 8, (wrong,)))
    code, out, err = localspec(*words)
    assert code == 6
    assert "look-up: prompt 1, greedy: token 3 is" in out
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("gap", "rounding", "near"),
    [(0.1, 0.1, True), (0.0, 0.1, True), (0.2, 0.1, False), (0.0, 0.0, False), (None, None, False)],
)
def test_a_near_tie_is_no_wider_than_rounding_and_without_rounding_there_is_none(
    gap: float | None, rounding: float | None, near: bool
):
    assert Difference("prompt 1, greedy", 0, "a", "b", gap, rounding).is_near_tie == near


def test_who_drafts_nothing_is_not_called_proven():
    idle = ProofRow("look-up", 2, 2, 16, 0, 0, 0, 0)
    text = Proof("tiny", "fp32", "cpu", 1, 8, (idle,)).to_markdown()
    assert text.endswith("look-up drafted nothing, so nothing is proven of it.")
    assert Proof("x", "fp32", "cpu", 1, 8, ()).to_markdown().endswith("so there is nothing to prove.")


def test_every_length_every_offer_and_grafts_are_tried():
    looked_up, exits = Offer("lookup", 3, (1, 2, 3)), Offer("early-exit", 9)
    policy = EveryKind((1, 4))
    choices = [policy.choose(8, lambda: (looked_up, exits)) for _ in range(8)]
    assert {choice.offer for choice in choices} == {looked_up, exits}
    assert {choice.graft for choice in choices if choice.offer is exits} == {None, looked_up}
    assert policy.choose(0, lambda: (looked_up,)) == PLAIN
    assert policy.choose(8, tuple) == PLAIN
