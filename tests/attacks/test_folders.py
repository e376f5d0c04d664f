"""The attack: a model's folder that somebody else filled. README.md beside this file says what is tried.

Each ends in one sentence that is right, or in an answer; none takes long, fills the memory or shows a traceback.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.attacks.attack import Attack, Attacks
from tests.attacks.configurations import CONFIGURATIONS
from tests.attacks.warm_program import Ran, WarmProgram
from tests.attacks.weights import WEIGHTS

pytestmark = pytest.mark.heavy

MOST_SECONDS, MOST_BYTES = 10, 1 << 30
ATTACKS: Attacks = {**WEIGHTS, **CONFIGURATIONS}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("story", ATTACKS)
def test_a_hostile_folder_is_one_sentence(
    story: str, good_model: Path, program: WarmProgram, verdicts: dict[str, str], tmp_path: Path
) -> None:
    attack = ATTACKS[story]
    ran = attempt(attack, good_model, program, verdicts, tmp_path)
    assert re.fullmatch(attack.pattern(tmp_path), sentence(ran)), sentence(ran)
    assert ran.code == attack.code
    assert bool(ran.out) == (attack.code == 0)
    assert ran.seconds < MOST_SECONDS
    assert ran.peak_bytes < MOST_BYTES


def attempt(attack: Attack, good_model: Path, program: WarmProgram, verdicts: dict[str, str], here: Path) -> Ran:
    shutil.copytree(good_model, here / "model", dirs_exist_ok=True)
    (here / "config").mkdir()
    attack.spoil(here)
    words = ("run", str(here / "model"), "hello there", "--draft", "off", "--threads", "1", "--max-tokens", "4")
    quant = () if "--quant" in attack.words else ("--quant", "int8")
    environment = {**verdicts, "LOCALSPEC_CONFIG_DIR": str(here / "config")}
    return program.run(*words, *quant, *attack.words, environment=environment)


def sentence(ran: Ran) -> str:
    """What is printed beside the answer, but how far the loading is."""
    lines = [line for line in ran.err.splitlines() if not line.endswith(" %")]
    return "\n".join(lines)
