"""`localspec verify`: the proof with progress, its table or JSON, and the exit code that it deserves."""

from __future__ import annotations

from localspec.bench.proof import prove
from localspec.bench.proof_report import Proof
from localspec.cli.io import print_text
from localspec.cli.output import print_records
from localspec.cli.progress import ProgressBar
from localspec.core.errors import Divergence, EngineError
from localspec.core.requests import LoadRequest

REPORT = (
    "Report it with `localspec verify MODEL --json` and `localspec doctor --json`; chat with --draft off until then."
)


def verify(load: LoadRequest, *, prompts: int, max_tokens: int, as_json: bool) -> int:
    """Prints the proof; Divergence where drafting changed the text, EngineError where a drafter failed."""
    with ProgressBar() as bar:
        found = prove(load, num_prompts=prompts, max_tokens=max_tokens, tell=bar.show)
    if as_json:
        print_records(found)
    else:
        print_text(found.to_markdown())
    refuse(found)
    return 0


def refuse(found: Proof) -> None:
    if found.diverged:
        names = ", ".join(row.drafter for row in found.diverged)
        raise Divergence(f"Drafting with {names} changed the text.", hint=REPORT)
    if found.failed:
        names = ", ".join(row.drafter for row in found.failed)
        raise EngineError(f"Not verified, because drafting failed: {names}.", hint="See the table above.")
