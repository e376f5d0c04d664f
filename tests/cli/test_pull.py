"""`localspec pull`: what it shows, asks and answers in every state of a hub, from scripted answers; and what chat and
run offer where a model is not here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from localspec.cli.download import session
from localspec.cli.download.bar import TransferBar, bar_line, time_words
from localspec.cli.download.record import PullRecord
from localspec.core import paths
from localspec.core.errors import CheckpointError, HubAway, LocalspecError, NotDownloaded, PullError
from localspec.core.events import Failure
from localspec.core.requests import WeightOptions
from localspec.hub.disconnects import LocationExpired, why_cut
from localspec.hub.licences import must_acknowledge
from localspec.hub.records import (
    AskPull,
    DraftOffer,
    Fetched,
    Go,
    HubAnswer,
    Licence,
    Progress,
    Pulled,
    PullPlan,
    PullRequest,
    Retrying,
)
from localspec.loading.fit import FormatFit
from localspec.models.catalog import Catalog
from localspec.runtime.pairs import PairVerdict
from tests.conftest import Program
from tests.support.scripted_hub import (
    COMMIT,
    GB,
    ScriptedHub,
    a_fetched,
    a_fit,
    a_plan,
    a_pulled,
    a_repository,
    gated,
)

pytestmark = pytest.mark.heavy

LAYERSKIP = "facebook/layerskip-llama2-7B"
FAIR = Licence("fair", non_commercial=True)
ARRIVING = (
    Progress("org/model", "downloading", GB, 4 * GB, GB),
    Progress("org/model", "downloading", 3 * GB, 4 * GB, GB, bytes_per_second=9.2e7, eta_s=11.0),
)
Install = Callable[..., ScriptedHub]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Install:
    """A hub with this plan, or these one after the other, and a download of what they name."""

    def install(
        *plans: PullPlan | BaseException, arrives: Sequence[HubAnswer | Exception] | None = None
    ) -> ScriptedHub:
        shown = plans or (a_plan(),)
        last = next((plan for plan in reversed(shown) if isinstance(plan, PullPlan)), a_plan())
        repositories = [one for one in (last.target, last.drafter) if one]
        whole = [*ARRIVING, *map(a_fetched, repositories), a_pulled(last)]
        resolving = Progress(last.target.repo, "resolving", 0, 0)
        scripts = {AskPull: [[resolving, plan] for plan in shown], Go: [whole if arrives is None else arrives]}
        return ScriptedHub(scripts).install(monkeypatch)

    return install


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """A user at a terminal, who gives this answer to every question; the questions."""

    def give(answer: bool) -> list[str]:
        asked: list[str] = []

        def confirm(question: str, **_: object) -> bool:
            asked.append(question)
            return answer

        monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
        monkeypatch.setattr("localspec.cli.questions.answered", confirm)
        return asked

    return give


def test_a_pull_shows_the_plan_then_progress_then_the_next_command(hub: Install, localspec: Program):
    scripted = hub()
    code, out, err = localspec("pull", "org/model", "--yes")
    assert code == 0
    assert out.splitlines() == [
        "org/model @ 1a2b3c4   licence apache-2.0",
        "  4.0 GB in 2 files, 2.00 B parameters, BF16 (1.0 GB are here)   disk: 212.0 GB free",
        "  this machine: bf16 16.0 GB · int8 10.0 GB of 12.0 GB free",
        "    → fits in int8 with 4096 tokens",
        "  speculation: none: no drafter is known for it",
        "  chat template: its own",
        "  checked: 2 of 2 files have the hub's sha256",
        "Ready. localspec chat org/model",
    ]
    assert "downloading 20 %: 1.0 of 4.0 GB, org/model\n" in err
    assert "downloading 70 %: 3.0 of 4.0 GB, org/model\n" in err
    assert [type(each) for each in scripted.asked] == [AskPull, Go]


@pytest.mark.parametrize(
    ("typed", "request_"),
    [
        ("org/model", PullRequest("org/model")),
        ("org/model@v1.0", PullRequest("org/model", "v1.0")),
        ("org/model:Q4_K_M", PullRequest("org/model", variant="Q4_K_M")),
        ("org/model@v1:Q4_K_M", PullRequest("org/model", "v1", "Q4_K_M")),
        ("qwen3-8b", PullRequest("Qwen/Qwen3-8B")),
        ("qwen3:8b", PullRequest("Qwen/Qwen3-8B")),
        ("qwen3-8b@" + COMMIT, PullRequest("Qwen/Qwen3-8B", COMMIT)),
    ],
)
def test_what_is_typed_names_a_repository(typed: str, request_: PullRequest, hub: Install, localspec: Program):
    scripted = hub()
    localspec("pull", typed, "--dry-run")
    assert scripted.asked == [AskPull(request_)]


def test_options_are_what_the_hub_is_asked(hub: Install, localspec: Program):
    scripted = hub()
    localspec("pull", "a/b", "--dry-run", "--draft", "none", "--quant", "int4", "--ctx", "512", "--xet", "--as", "mine")
    weights = WeightOptions(weight_format="int4", ctx=512)
    assert scripted.asked == [AskPull(PullRequest("a/b", draft="none", key="mine", weights=weights, xet=True))]


def test_a_dry_run_downloads_nothing(hub: Install, localspec: Program):
    scripted = hub()
    code, out, _ = localspec("pull", "org/model", "--dry-run")
    assert (code, [type(each) for each in scripted.asked]) == (0, [AskPull])
    assert "org/model @ 1a2b3c4" in out
    assert "Ready" not in out


UNUSABLE = {
    "a typing error": (("qwen3-8",), 3, "did you mean 'qwen3-8b'"),
    "the built-in model": (
        ("guide",),
        2,
        "built in: there is nothing to fetch. Chat with it: localspec chat guide",
    ),
    "no name of a repository": (("a/b/c",), 3, "There is no folder or file a/b/c"),
    "a name that escapes": (("../x/y",), 3, "There is no folder or file"),
    "JSON without an answer": (("org/model", "--json"), 2, "--json asks no questions"),
    "no terminal": (("org/model",), 2, "Not a terminal: add --yes to download"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_pulled_is_one_sentence(name: str, hub: Install, localspec: Program):
    hub()
    words, exit_code, sentence = UNUSABLE[name]
    code, _, err = localspec("pull", *words)
    assert code == exit_code
    assert sentence in err


def test_a_yes_downloads_and_a_no_does_not(hub: Install, answers, localspec: Program):
    scripted = hub()
    assert answers(True) == []
    assert localspec("pull", "org/model")[0] == 0
    asked = answers(False)
    code, _, err = localspec("pull", "org/model")
    assert (code, asked) == (130, ["Download?"])
    assert "Nothing was downloaded." in err
    assert "error" not in err
    assert [type(each) for each in scripted.asked] == [AskPull, Go, AskPull]


def test_what_is_here_already_is_not_asked_about(hub: Install, answers, localspec: Program):
    whole = a_repository(files=tuple(replace(file, here=file.size) for file in a_repository().files))
    hub(a_plan(whole), arrives=[replace(a_fetched(), checked=0), a_pulled()])
    asked = answers(False)
    code, out, _ = localspec("pull", "org/model")
    assert (code, asked) == (0, [])
    again = "localspec verify-files org/model"
    sentence = f"  All files are here; they were not hashed again (to do so: {again}).\n"
    assert f"{sentence}Ready. localspec chat org/model\n" in out
    assert "0 of 2" not in out


GATES = {
    "logged-out": ("Not logged in", "hf auth login"),
    "no-request": ("logged in as ana", "--wait"),
    "awaiting": ("its authors have not answered yet", "--wait"),
    "scope": ("This token may not read gated repositories.", "https://huggingface.co/settings/tokens"),
}


@pytest.mark.parametrize("gate", GATES)
def test_a_closed_gate_is_a_state_with_its_next_step(gate: str, hub: Install, localspec: Program):
    scripted = hub(a_plan(gated(a_repository(LAYERSKIP, licence=FAIR), gate), fit=None))
    code, out, err = localspec("pull", LAYERSKIP, "--yes")
    assert code == 4
    assert f"{LAYERSKIP} @ 1a2b3c4   licence fair, non-commercial   gated: its authors review each request" in out
    for said in GATES[gate]:
        assert said in out
    assert "Nothing was downloaded." in out
    assert "error" not in err
    assert [type(each) for each in scripted.asked] == [AskPull]


@pytest.mark.parametrize("gate", GATES)
def test_the_json_of_a_closed_gate_has_the_next_step_too(gate: str, hub: Install, localspec: Program):
    hub(a_plan(gated(a_repository(LAYERSKIP), gate), fit=None))
    failure = json.loads(localspec("pull", LAYERSKIP, "--yes", "--json")[1].splitlines()[-1])
    assert (failure["type"], failure["exit_code"]) == ("failure", 4)
    assert failure["hint"] in " ".join(localspec("pull", LAYERSKIP, "--yes")[1].split())
    assert failure["hint"]


def test_waiting_looks_again_and_goes_on_when_the_gate_opens(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []
    monkeypatch.setattr(session, "sleep", slept.append)
    closed = a_plan(gated(a_repository(LAYERSKIP), "awaiting"), fit=None)
    scripted = hub(closed, closed, a_plan(a_repository(LAYERSKIP)))
    code, out, _ = localspec("pull", LAYERSKIP, "--yes", "--wait")
    assert code == 0
    assert slept == [session.GATE_SECONDS, session.GATE_SECONDS] == [600.0, 600.0]
    assert out.count("its authors have not answered yet") == 1, "a state is said once"
    assert [type(each) for each in scripted.asked] == [AskPull, AskPull, AskPull, Go]


def test_a_wait_that_would_end_in_a_question_needs_a_terminal(hub: Install, localspec: Program):
    """Said before the wait, and not after days of it."""
    scripted = hub(a_plan(gated(a_repository(LAYERSKIP), "awaiting"), fit=None))
    code, out, err = localspec("pull", LAYERSKIP, "--wait")
    assert (code, out, scripted.asked) == (2, "", [])
    assert "Not a terminal" in err
    assert "Add --yes." in err


AWAY = (
    HubAway("The hub has a problem of its own (status 503).", hint="Wait a minute."),
    HubAway("There is no route to the hub.", hint="Check the connection."),
    HubAway("The hub stopped answering (30 s).", hint="Repeat the command to go on."),
)


def test_a_wait_for_a_gate_outlasts_a_hub_that_is_away(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """Said once each time that it goes away."""
    slept: list[float] = []
    monkeypatch.setattr(session, "sleep", slept.append)
    closed = a_plan(gated(a_repository(LAYERSKIP), "awaiting"), fit=None)
    scripted = hub(closed, *AWAY, closed, AWAY[1], a_plan(a_repository(LAYERSKIP)))
    code, out, err = localspec("pull", LAYERSKIP, "--yes", "--wait")
    assert code == 0
    assert slept == [session.GATE_SECONDS] * 6
    assert err.count("Access is still checked") == 2
    assert (
        "warning: The hub has a problem of its own (status 503). Access is still checked every 10 minutes."
        in " ".join(err.split())
    )
    assert out.count("its authors have not answered yet") == 1
    assert [type(each) for each in scripted.asked] == [AskPull] * 7 + [Go]


@pytest.mark.parametrize(
    ("faults", "code"), [((AWAY[0], NotDownloaded("The hub has no model of that name.")), 3), ((PullError("No."),), 7)]
)
def test_a_wait_for_a_gate_ends_at_a_fault_that_stays(
    faults: tuple[LocalspecError, ...],
    code: int,
    hub: Install,
    localspec: Program,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(session, "sleep", lambda _: None)
    hub(a_plan(gated(a_repository(LAYERSKIP), "awaiting"), fit=None), *faults)
    ended, _, err = localspec("pull", LAYERSKIP, "--yes", "--wait")
    assert ended == code
    assert faults[-1].message in err


def test_a_hub_that_is_away_at_the_first_look_ends_a_wait(hub: Install, localspec: Program):
    """No gate was seen: whoever has just typed the command is told."""
    hub(AWAY[1])
    code, _, err = localspec("pull", LAYERSKIP, "--yes", "--wait")
    assert (code, AWAY[1].message in err) == (7, True)


def test_a_non_commercial_licence_is_acknowledged_once_for_a_repository(hub: Install, answers, localspec: Program):
    plan = a_plan(a_repository(LAYERSKIP, licence=FAIR))
    hub(plan)
    asked = answers(False)
    assert localspec("pull", LAYERSKIP)[0] == 130
    assert must_acknowledge(LAYERSKIP, FAIR), "a no acknowledges nothing"
    assert asked == [f"The licence of {LAYERSKIP} (fair, non-commercial) allows no commercial use. Do you accept it?"]
    asked = answers(True)
    assert localspec("pull", LAYERSKIP)[0] == 0
    assert len(asked) == 2
    asked = answers(True)
    assert localspec("pull", LAYERSKIP)[0] == 0
    assert asked == ["Download?"]


def test_yes_acknowledges_the_licence_and_says_so(hub: Install, localspec: Program):
    hub(a_plan(a_repository(LAYERSKIP, licence=FAIR)))
    code, _, err = localspec("pull", LAYERSKIP, "--yes")
    assert code == 0
    assert "allows no commercial use. --yes accepts it." in err
    assert not must_acknowledge(LAYERSKIP, FAIR)
    assert "commercial" not in localspec("pull", LAYERSKIP, "--yes")[2]


def test_what_does_not_fit_is_asked_about_and_yes_goes_on(hub: Install, answers, localspec: Program):
    hub(a_plan(fit=a_fit(chosen="", word="too large")))
    code, out, err = localspec("pull", "org/model", "--yes")
    assert code == 0
    assert "this machine: bf16 16.0 GB · int8 10.0 GB of 12.0 GB free → too large\n" in out
    assert "org/model does not fit on this machine. --yes downloads it." in err
    asked = answers(False)
    code, _, err = localspec("pull", "org/model")
    assert code == 5
    assert asked == ["org/model does not fit on this machine. Download it anyway?"]
    assert "Nothing was downloaded." in err


def test_a_disk_without_the_bytes_is_refused_before_the_first(hub: Install, localspec: Program):
    scripted = hub(a_plan(disk_free=GB, disk_needed=3 * GB))
    code, _, err = localspec("pull", "org/model", "--yes")
    assert code == 5
    assert "The disk is too full: 1.0 GB are free; the download takes 3.0 GB, and 1.1 GB have to stay free." in err
    assert "Free 2.0 GB, or move the cache" in err
    assert [type(each) for each in scripted.asked] == [AskPull]


def test_a_dry_run_with_too_little_disk_ends_as_the_pull_does(hub: Install, localspec: Program):
    """It shows the plan all the same; what could not be loaded either is of no use on any disk."""
    hub(a_plan(disk_free=GB, disk_needed=3 * GB))
    code, out, err = localspec("pull", "org/model", "--dry-run")
    assert (code, err) == (5, localspec("pull", "org/model", "--yes")[2])
    assert "disk: 1.0 GB free" in out
    code, out, _ = localspec("pull", "org/model", "--dry-run", "--json")
    assert (code, [json.loads(line)["type"] for line in out.splitlines()[-2:]]) == (5, ["plan", "failure"])
    hub(a_plan(disk_free=GB, disk_needed=3 * GB, unloadable="It has only pickles.", fit=None))
    assert localspec("pull", "org/model", "--dry-run")[0] == 1


def test_what_localspec_could_not_load_is_refused_before_the_first_byte(hub: Install, localspec: Program):
    hub(a_plan(unloadable="It has only pickles."), CheckpointError("It has no tokenizer.json.", hint="Choose another."))
    code, _, err = localspec("pull", "org/model", "--yes")
    assert (code, "It has only pickles. Nothing was downloaded. Choose another copy of the model." in err) == (1, True)
    code, _, err = localspec("pull", "org/model", "--yes")
    assert (code, "It has no tokenizer.json. Choose another." in err) == (1, True)


def test_a_dry_run_of_what_cannot_be_loaded_ends_as_the_pull_does(hub: Install, localspec: Program):
    scripted = hub(a_plan(unloadable="It has only pickles.", fit=None))
    codes = [localspec("pull", "org/model", flag)[0] for flag in ("--dry-run", "--yes")]
    assert codes == [1, 1]
    assert [type(each) for each in scripted.asked] == [AskPull, AskPull]
    assert "Exits with 1" in " ".join(localspec("pull", "--help")[1].split())


def test_what_the_hubs_scanners_report_is_in_the_plan_and_in_the_question(hub: Install, answers, localspec: Program):
    scripted = hub(a_plan(a_repository(flagged=("model.safetensors", "x\x1b[2J.json"))))
    asked = answers(False)
    code, out, _ = localspec("pull", "org/model")
    (question,) = asked
    assert code == 130
    assert "  The hub's scanners report model.safetensors, x" in out
    assert question.startswith("The hub's scanners report model.safetensors, x")
    assert "\x1b" not in out + question
    assert [type(each) for each in scripted.asked] == [AskPull]
    code, _, err = localspec("pull", "org/model", "--yes")
    assert (code, "--yes downloads it." in err) == (0, True)


def test_each_format_is_shown_and_no_line_is_wider_than_80(hub: Install, localspec: Program):
    names = ("bf16", "int8", "nf4", "fp4", "int4")
    formats = tuple(FormatFit(name, "fits", 40 * GB, 10 * GB, 2 * GB, GB) for name in names)
    fit = a_fit(formats=formats, device="cuda:0", free_bytes=80 * GB, chosen="bf16", word="fits on the GPU in bf16")
    hub(a_plan(fit=fit))
    _, out, _ = localspec("pull", "org/model", "--dry-run")
    begin = out.index("  this machine:")
    shown = out[begin : out.index("  speculation:")]
    assert all(f"{name} 53.0 GB" in shown for name in names), "no size is torn from its format"
    assert "of 80.0 GB free on the GPU" in shown
    assert "→ fits on the GPU in bf16 with 4096 tokens" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_of_a_gguf_repository_every_file_is_listed_with_its_fit(hub: Install, localspec: Program):
    hub(
        a_plan(
            a_repository(files=()),
            fit=None,
            variants=(
                replace(a_fit("Q4_K_M", word="fits"), num_bytes=5 * GB),
                replace(a_fit("Q8_0", word="too large"), num_bytes=8 * GB),
            ),
        )
    )
    code, out, err = localspec("pull", "org/model", "--yes")
    assert code == 2
    assert re.search(r"^  Q4_K_M +5\.0 GB +fits\n  Q8_0 +8\.0 GB +too large$", out, re.MULTILINE)
    assert "Choose one: localspec pull org/model:Q4_K_M" in err
    assert localspec("pull", "org/model", "--dry-run")[0] == 0


def test_a_stop_of_the_hub_says_what_to_do_and_what_it_said_before(hub: Install, localspec: Program):
    stop = PullError("The hub stopped answering (30 s).", hint="3.0 GB are kept; repeat to go on.")
    hub(arrives=[*ARRIVING, stop])
    code, _, err = localspec("pull", "org/model", "--yes")
    assert code == 7
    assert "error: The hub stopped answering (30 s). 3.0 GB are kept; repeat to go on." in err
    assert PullRecord("org/model").events()[0][-1] == Failure(stop.code, stop.message, stop.hint, 7)


class ConnectError(Exception):
    """As httpx and httpx2 name it."""


class TransportError(Exception):
    """As httpx and httpx2 name it."""


class HTTPStatusError(Exception):
    response = SimpleNamespace(status_code=503)


@pytest.mark.parametrize("fault", [ConnectError, TransportError, HTTPStatusError, LocationExpired])
def test_a_new_try_is_a_whole_sentence_for_every_reason_that_there_is(
    fault: type[Exception], hub: Install, localspec: Program
):
    reason = why_cut(fault())
    assert reason
    hub(arrives=[Retrying("org/model", reason, 8), a_fetched(), a_pulled()])
    code, _, err = localspec("pull", "org/model", "--yes")
    assert code == 0
    (line,) = [line for line in err.splitlines() if "Trying again" in line]
    assert line == f"{reason[0].upper()}{reason[1:]}. Trying again in 8 s; progress is kept."


def test_ctrl_c_keeps_what_came_and_says_how_to_go_on(hub: Install, localspec: Program):
    scripted = hub(arrives=[*ARRIVING, KeyboardInterrupt()])  # type: ignore[list-item]
    code, _, err = localspec("pull", "org/model", "--yes")
    assert code == 130
    assert "Stopped. Progress is kept: 3.0 of 4.0 GB. Go on: localspec pull org/model" in err
    assert scripted.closed == 1


def drafted() -> PullPlan:
    drafter = a_repository("org/small")
    verdict = PairVerdict("org/model", "org/small", True, "padding", "same 7 tokens")
    return a_plan(drafter=drafter, offer=DraftOffer("model", "org/small", source="asked for", verdict=verdict))


def test_a_target_and_its_drafter_are_one_plan(hub: Install, localspec: Program):
    hub(drafted())
    _, out, _ = localspec("pull", "org/model", "--draft", "org/small", "--yes")
    assert "  speculation: org/small drafts (asked for); padding: same 7 tokens\n" in out
    assert "  + org/small @ 1a2b3c4   licence apache-2.0\n" in out
    assert out.count("checked: 2 of 2 files") == 2
    assert out.endswith("Ready. localspec chat org/model\n"), "auto takes the drafter that a model was pulled with"


def test_a_drafter_that_comes_after_the_catalogues_is_named_in_the_next_command(hub: Install, localspec: Program):
    offer = DraftOffer("model", "org/small", source="asked for")
    hub(a_plan(a_repository(LAYERSKIP), drafter=a_repository("org/small"), offer=offer))
    _, out, _ = localspec("pull", LAYERSKIP, "--draft", "org/small", "--yes")
    assert out.endswith(f"Ready. localspec chat {LAYERSKIP} --draft org/small\n")


def test_an_early_exit_names_its_layer_and_the_source_of_it(hub: Install, localspec: Program):
    offer = DraftOffer("early-exit", exit_layer=8, k=6, source="LayerSkip's README")
    hub(a_plan(a_repository(LAYERSKIP, chat_template=False), offer=offer))
    _, out, _ = localspec("pull", "layerskip-llama2-7b", "--yes")
    assert "  speculation: layers 1–8, k 6 (LayerSkip's README); no second model\n" in out
    assert "  chat template: none in it (a base model)" in out
    assert out.endswith("Ready. localspec chat layerskip-llama2-7b\n"), "the catalogue knows the layer"


def test_as_writes_the_model_with_its_commit_and_pair_and_keeps_what_the_user_wrote(hub: Install, localspec: Program):
    file = paths.models_file()
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nschema_version = 1\n[models.other]\npath = '/x'  # here\n")
    hub(drafted())
    _, out, _ = localspec("pull", "org/model", "--yes", "--as", "pair")
    assert out.endswith("Ready. localspec chat pair\n")
    table = Catalog.load().models["pair"]
    assert (table.repo, table.revision) == ("org/model", COMMIT)
    assert table.draft is not None
    assert (table.draft.kind, table.draft.model, table.draft.source) == ("model", "org/small", "asked for")
    assert file.read_text().startswith("# mine\nschema_version = 1\n[models.other]\npath = '/x'  # here\n")


def test_as_writes_no_layer_that_is_only_a_guess(hub: Install, localspec: Program):
    """So it is called an untested start wherever the entry is read."""
    offer = DraftOffer("early-exit", exit_layer=3, source=DraftOffer.UNTESTED)
    hub(a_plan(offer=offer))
    assert localspec("pull", "org/model", "--yes", "--as", "mine")[0] == 0
    table = Catalog.load().models["mine"]
    assert table.draft is not None
    assert (table.draft.kind, table.draft.exit_layer, table.draft.source) == ("early-exit", None, "")


def test_as_with_no_drafter_takes_away_the_one_that_an_earlier_pull_wrote(hub: Install, localspec: Program):
    """Look-up needs no second model, and is what a model drafts with where models.toml says nothing. A pull that finds
    no drafter leaves what is written."""
    hub(drafted())
    localspec("pull", "org/model", "--yes", "--as", "pair")
    hub(a_plan())
    localspec("pull", "org/model", "--yes", "--as", "pair")
    assert (draft := Catalog.load().models["pair"].draft) is not None
    assert draft.model == "org/small"
    localspec("pull", "org/model", "--yes", "--as", "pair", "--draft", "none")
    assert (draft := Catalog.load().models["pair"].draft) is not None
    assert (draft.kind, draft.model) == ("lookup", None)


def test_a_key_that_cannot_be_written_is_refused_before_the_download(hub: Install, localspec: Program):
    scripted = hub()
    code, _, err = localspec("pull", "org/model", "--yes", "--as", "qwen3:8b")
    assert (code, "names both" in err) == (2, True)
    assert scripted.asked == []


def test_what_is_no_key_is_said_in_the_words_of_models_toml(hub: Install, localspec: Program):
    scripted = hub()
    code, _, err = localspec("pull", "org/model", "--yes", "--as", "bad key!")
    said = "error: 'bad key!' is no key: it must be a name of letters, digits and any of _ . : + -. Choose another: "
    assert (code, scripted.asked, " ".join(err.split()).startswith(said.strip())) == (2, [], True)


def own_models(text: str) -> None:
    paths.models_file().parent.mkdir(parents=True, exist_ok=True)
    paths.models_file().write_text(f"schema_version = 1\n{text}")


def test_the_built_in_models_name_is_no_key(hub: Install, localspec: Program):
    scripted = hub()
    code, _, err = localspec("pull", "org/model", "--yes", "--as", "guide")
    assert (code, scripted.asked) == (2, [])
    assert "'guide' is the built-in model's name." in err
    assert "Choose another: --as KEY" in err
    assert not paths.models_file().exists()


def test_a_key_of_another_model_is_replaced_only_after_a_yes_to_that(hub: Install, answers, localspec: Program):
    scripted = hub()
    own_models("[models.k]\nrepo = 'org/other'\n")
    code, _, err = localspec("pull", "org/model", "--yes", "--as", "k")
    assert (code, scripted.asked) == (2, [])
    assert "'k' is org/other in your models.toml, not org/model." in err
    asked = answers(False)
    code, _, err = localspec("pull", "org/model", "--as", "k")
    assert (code, scripted.asked, Catalog.load().models["k"].repo) == (130, [], "org/other")
    assert asked == ["'k' is org/other in your models.toml. Replace it with org/model?"]
    answers(True)
    assert localspec("pull", "org/model", "--as", "k")[0] == 0
    assert Catalog.load().models["k"].repo == "org/model"
    assert localspec("pull", "org/model", "--yes", "--as", "k")[0] == 0, "the same repository"


def test_a_key_of_the_catalogue_is_another_model_only_after_a_yes_to_that(hub: Install, answers, localspec: Program):
    """Also where the user's file only changes what the catalogue says of it."""
    scripted = hub()
    for own in ("", "[models.qwen3-14b]\nfallback_template = 'plain'\n"):
        own_models(own)
        code, _, err = localspec("pull", "org/model", "--yes", "--as", "qwen3-14b")
        assert (code, scripted.asked) == (2, [])
        assert "'qwen3-14b' is Qwen/Qwen3-14B in the catalogue, not org/model." in err
    asked = answers(False)
    assert localspec("pull", "org/model", "--as", "qwen3-14b")[0] == 130
    assert asked == ["'qwen3-14b' is Qwen/Qwen3-14B in the catalogue. Replace it with org/model?"]
    answers(True)
    assert localspec("pull", "org/model", "--as", "qwen3-14b")[0] == 0
    assert Catalog.load().models["qwen3-14b"].repo == "org/model"
    assert localspec("pull", "org/model", "--yes", "--as", "qwen3-14b")[0] == 0, "the same repository"


def test_a_key_of_a_gguf_file_is_its_repository_commit_and_file(hub: Install, localspec: Program):
    own_models("[models.q]\nrepo = 'org/model'\nfile = 'old.gguf'\n")
    folder = a_fetched().folder
    hub(arrives=[a_fetched(), a_pulled(file=f"{folder}/deep/m-Q4_1.gguf")])
    assert localspec("pull", "org/model:Q4_1", "--yes", "--as", "smol")[0] == 0
    table = Catalog.load().models["smol"]
    assert (table.repo, table.path, table.revision, table.file) == ("org/model", None, COMMIT, "deep/m-Q4_1.gguf")
    hub()
    assert localspec("pull", "org/model", "--yes", "--as", "q")[0] == 0
    assert Catalog.load().models["q"].file is None


def test_json_is_an_event_a_line_and_an_error_is_one_too(hub: Install, localspec: Program):
    hub(drafted())
    code, out, _ = localspec("pull", "org/model", "--yes", "--json")
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert (code, kinds) == (0, ["progress", "plan", "progress", "progress", "fetched", "fetched", "pulled"])
    hub(a_plan(gated(a_repository(), "awaiting")))
    code, out, _ = localspec("pull", "org/model", "--yes", "--json")
    *_, plan, failure = map(json.loads, out.splitlines())
    assert (code, plan["target"]["access"]["gate"]) == (4, "awaiting")
    assert (failure["type"], failure["code"], failure["exit_code"]) == ("failure", "access_denied", 4)


def test_a_second_terminal_shows_the_first_ones_download_and_fetches_nothing_twice(hub: Install, localspec: Program):
    record = PullRecord("org/model")
    first = record.take()
    assert first is not None
    record.begin()
    record.add(ARRIVING[1])

    def ends() -> None:
        record.add(Fetched("org/model", COMMIT, "/x", 4 * GB, 2))
        record.add(Pulled(Fetched("org/model", COMMIT, "/x", 4 * GB, 2)))
        first.close()

    timer = threading.Timer(0.3, ends)
    timer.start()
    whole = a_repository(files=tuple(replace(file, here=file.size) for file in a_repository().files))
    hub(a_plan(whole), arrives=[replace(a_fetched(), checked=0), a_pulled()])
    code, out, err = localspec("pull", "org/model")
    timer.join()
    assert code == 0
    assert "checked: 2 of 2 files have the hub's sha256" in out, "the other process has hashed them"
    assert "Another localspec is downloading org/model." in err
    assert "downloading 70 %: 3.0 of 4.0 GB, org/model\n" in err
    assert out.endswith("Ready. localspec chat org/model\n")


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_in_the_background_nothing_waits_for_another_localspec(
    json_too: tuple[str, ...], hub: Install, localspec: Program
):
    """It watched the other download until its end."""
    first = PullRecord("org/model").take()
    assert first is not None
    scripted = hub()
    code, _, err = localspec("pull", "org/model", "--yes", "--background", *json_too)
    first.close()
    assert (code, scripted.asked) == (2, [])
    assert "Another localspec is downloading org/model: nothing was started." in err
    assert "See how far it is: localspec pull org/model" in err


def test_before_the_background_a_wait_is_in_this_terminal_and_says_so(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session, "sleep", lambda _: None)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=os.getppid()))
    hub(a_plan(gated(a_repository(), "awaiting"), fit=None), a_plan())
    code, out, err = localspec("pull", "org/model", "--yes", "--background", "--wait")
    assert (code, "Downloading in the background." in out) == (0, True)
    waits = "Waiting in this terminal: access is checked every 10 minutes, then it downloads in the background."
    assert waits in " ".join(err.split())


def test_in_the_background_it_is_listed_from_the_moment_that_the_command_ends(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """The new process first asks the hub for its plan."""
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: SimpleNamespace(pid=os.getppid()))
    hub(drafted())
    assert localspec("pull", "org/model", "--yes", "--background")[0] == 0
    listed = json.loads(localspec("ls", "--unfinished", "--json")[1])
    assert {(one["repo"], one["running"]) for one in listed} == {("org/model", True), ("org/small", True)}
    assert re.search(r"^org/model .* is being downloaded$", localspec("ls")[1], re.MULTILINE)


def test_in_the_background_the_same_pull_runs_without_a_question(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    started: list[list[str]] = []

    def start(command: list[str], *, pass_fds: tuple[int, ...], env: dict[str, str], **_: object) -> SimpleNamespace:
        assert env["LOCALSPEC_PULL_LOCK"] == str(*pass_fds)
        assert PullRecord("org/model").take() is None, "it is held from the start"
        started.append(command)
        return SimpleNamespace(pid=4711)

    monkeypatch.setattr("subprocess.Popen", start)
    scripted = hub()
    code, out, _ = localspec("pull", "org/model@v1", "--yes", "--background", "--quant", "int8", "--as", "k")
    assert code == 0
    assert started[0][1:] == [
        "-m", "localspec", "pull", "org/model@v1", "--yes", "--as", "k", "--quant", "int8", "--json"
    ]  # fmt: skip
    assert out.endswith(
        "Downloading in the background.\n"
        "  See how far it is: localspec pull org/model@v1\n"
        "  Stop it: localspec pull --stop org/model@v1\n"
    )
    code, out, _ = localspec("pull", "org/model", "--yes", "--background", "--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last) == (0, {"type": "background", "repo": "org/model", "pid": 4711})
    assert PullRecord("org/model").holder == 4711
    assert [type(each) for each in scripted.asked] == [AskPull, AskPull]
    whole = a_repository(files=tuple(replace(file, here=file.size) for file in a_repository().files))
    hub(a_plan(whole))
    code, out, _ = localspec("pull", "org/model", "--yes", "--background")
    assert (code, len(started), out.splitlines()[-1]) == (0, 2, "Ready. localspec chat org/model")


def test_text_from_the_hub_cannot_drive_the_terminal(hub: Install, localspec: Program):
    hostile = a_repository("org/\x1b[2Jmodel", licence=Licence("mit\x1b]0;x\x07\n\u202e"), dtype="BF16\r")
    hub(a_plan(hostile, offer=DraftOffer("none", detail="\x1b[31m"), unloadable="\x9b1m"))
    _, out, err = localspec("pull", "org/model", "--yes")
    assert not set("\x1b\x07\r\x9b\u202e") & {*out, *err}


def test_the_bar_shows_rate_time_and_what_was_here():
    assert bar_line(ARRIVING[1]) == "  ███████████████░░░░░   3.0 of 4.0 GB   92 MB/s   11 s   (1.0 GB were here)"
    assert [time_words(seconds) for seconds in (0, 89, 90, 5399, 5400, 90000)] == [
        "0 s", "89 s", "1 min", "89 min", "1 h 30 min", "25 h 0 min"
    ]  # fmt: skip


def test_a_slow_line_is_called_slow(capsys: pytest.CaptureFixture[str]):
    """Check 6. In a log once for each tenth."""
    slow = replace(ARRIVING[1], bytes_per_second=92_000.0, eta_s=10_869.0, slow=True)
    assert bar_line(slow) == "  ███████████████░░░░░   3.0 of 4.0 GB   slow: 92 kB/s   3 h 1 min   (1.0 GB were here)"
    assert "slow: under 1 kB/s" in bar_line(replace(slow, bytes_per_second=1.0, eta_s=None))
    bar = TransferBar()
    for event in (ARRIVING[1], slow, ARRIVING[1], slow):
        bar.show(event)
    assert capsys.readouterr().err.splitlines() == [
        "downloading 70 %: 3.0 of 4.0 GB, org/model",
        "downloading 70 %: 3.0 of 4.0 GB, slow: 92 kB/s, org/model",
    ]


def test_pull_alone_goes_on_with_what_is_unfinished(hub: Install, answers, localspec: Program, monkeypatch):
    from localspec.hub.pulls import Unfinished

    found = [
        Unfinished("org/model", COMMIT, GB, 4 * GB, "The line was cut", 1.0, PullRequest("org/model", "v1")),
        Unfinished("other/model", "", GB, 0, "begun by another program", 0.0),
    ]
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: found)
    scripted = hub()
    asked = answers(False)
    code, out, _ = localspec("pull")
    assert (code, asked) == (130, ["Continue?"])
    assert re.search(r"^org/model@v1 +1\.0 GB of 4\.0 GB +The line was cut$", out, re.MULTILINE)
    assert localspec("pull", "--yes")[0] == 0
    requests = [each.request for each in scripted.asked if isinstance(each, AskPull)]
    assert requests == [PullRequest("org/model", "v1"), PullRequest("other/model", draft="none")]


def test_going_on_with_a_download_accepts_no_licence_and_no_misfit(
    hub: Install, answers, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    from localspec.hub.pulls import Unfinished

    found = [Unfinished(LAYERSKIP, "", GB, 0, "begun by another program", 0.0)]
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: found)
    scripted = hub(a_plan(a_repository(LAYERSKIP, licence=FAIR), fit=a_fit(chosen="", word="too large")))
    asked = answers(True)
    assert localspec("pull")[0] == 0
    assert [question.rpartition(". ")[2] for question in asked] == [
        "Continue?", "Do you accept it?", "Download it anyway?"
    ]  # fmt: skip
    assert [type(each) for each in scripted.asked] == [AskPull, Go]
    scripted.asked.clear()
    assert localspec("pull", "--dry-run")[0] == 0
    assert [type(each) for each in scripted.asked] == [AskPull], "nothing is downloaded"


BROKEN = CheckpointError("org/images has no config.json.", hint="Choose another copy of the model.")


def found_unfinished(monkeypatch: pytest.MonkeyPatch, *repos: str) -> None:
    from localspec.hub.pulls import Unfinished

    found = [Unfinished(repo, "", GB, 0, "begun by another program", 0.0) for repo in repos]
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: found)


def test_one_that_fails_is_a_line_and_the_others_go_on(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    found_unfinished(monkeypatch, "org/images", "org/model", "org/gone")
    scripted = hub(
        BROKEN, a_plan(), PullError("The hub does not know org/gone.", hint="Delete it: localspec rm org/gone")
    )
    code, out, err = localspec("pull", "--yes")
    assert code == BROKEN.exit_code, "of the first"
    assert "Ready. localspec chat org/model" in out
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert said == [f"error: {BROKEN}", "error: The hub does not know org/gone. Delete it: localspec rm org/gone"]
    assert [type(each) for each in scripted.asked] == [AskPull, AskPull, Go, AskPull]


def test_two_files_of_a_gguf_repository_both_go_on(hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    from localspec.hub.pulls import Unfinished

    requests = [PullRequest("org/m-GGUF", variant=quant) for quant in ("Q8_0", "Q4_0")]
    found = [Unfinished("org/m-GGUF", COMMIT, GB, 4 * GB, "interrupted", 1.0, each) for each in requests]
    found.append(Unfinished("org/small", COMMIT, GB, 2 * GB, "interrupted", 1.0, requests[0]))  # its drafter
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: found)
    scripted = hub()
    code, out, _ = localspec("pull", "--yes")
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["org/m-GGUF:Q8_0", "org/m-GGUF:Q4_0", "org/small"]
    assert (code, [each.request for each in scripted.asked if isinstance(each, AskPull)]) == (0, requests)


def test_a_licence_that_is_declined_is_not_an_end_of_the_others_but_ctrl_c_is(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    found_unfinished(monkeypatch, LAYERSKIP, "org/model")
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("localspec.cli.questions.answered", lambda question, **_: question == "Continue?")
    restricted = a_plan(a_repository(LAYERSKIP, licence=FAIR))
    scripted = hub(restricted, a_plan())
    code, _, err = localspec("pull")
    assert (code, "\nThe licence was not accepted. Nothing was downloaded.\n" in err) == (130, True)
    assert [type(each) for each in scripted.asked] == [AskPull, AskPull, Go]
    scripted = hub(KeyboardInterrupt())
    code, _, err = localspec("pull")
    assert (code, "Stopped." in err) == (130, True)
    assert [type(each) for each in scripted.asked] == [AskPull]


def test_going_on_asks_once_where_nothing_else_is_to_be_asked(
    hub: Install, answers, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    from localspec.hub.pulls import Unfinished

    found = [Unfinished("org/model", "", GB, 0, "begun by another program", 0.0)]
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: found)
    hub()
    asked = answers(True)
    assert localspec("pull")[0] == 0
    assert asked == ["Continue?"]


def test_pull_alone_says_when_nothing_is_unfinished(localspec: Program):
    code, out, err = localspec("pull")
    assert (code, out) == (0, "")
    assert "Nothing is unfinished." in err


@pytest.mark.parametrize("command", [("chat", "qwen3-8b"), ("run", "qwen3-8b", "hi")])
def test_a_catalogued_model_that_is_not_here_names_the_command(command: tuple[str, ...], localspec: Program):
    code, _, err = localspec(*command)
    assert code == 3
    assert "'qwen3-8b' (Qwen/Qwen3-8B) is not on this machine. Fetch it: localspec pull qwen3-8b" in err


def test_on_a_terminal_chat_offers_to_pull_it(hub: Install, answers, localspec: Program):
    scripted = hub(a_plan(gated(a_repository("Qwen/Qwen3-8B"), "awaiting")))
    asked = answers(True)
    code, out, err = localspec("chat", "qwen3-8b")
    assert asked == [], "the plan asks, and a closed gate leaves nothing to ask"
    assert "Qwen/Qwen3-8B is not on this machine." in err
    assert scripted.asked == [AskPull(PullRequest("Qwen/Qwen3-8B"))]
    assert (code, "its authors have not answered yet" in err) == (4, True), "the pull's own end"
    assert out == "", "stdout is for answers"
    hub(a_plan(a_repository("Qwen/Qwen3-8B")))
    asked = answers(False)
    assert localspec("chat", "qwen3-8b")[0] == 130
    assert asked == ["Download?"]


def test_a_name_that_nobody_knows_is_not_offered(answers, localspec: Program):
    asked = answers(True)
    assert localspec("chat", "qwen3-8")[0] == 3
    assert asked == []


def test_names_of_the_catalogue_are_completed():
    from click.shell_completion import ShellComplete

    from localspec.cli.main import cli

    found = ShellComplete(cli, {}, "localspec", "_LOCALSPEC_COMPLETE").get_completions(["pull"], "qwen3-")
    assert [each.value for each in found] == ["qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"]


def test_what_is_about_models_imports_neither_the_hubs_library_nor_torch():
    """In this process: the hub's own asks, and the engine's computes. One command after the other."""
    heavy = ("huggingface_hub", "torch", "transformers")
    commands = ["ls", "show guide", "fit guide", "pair guide", "chat qwen3-8b"]
    program = f"""
import sys
from localspec.cli.main import main
for words in {commands}:
    sys.argv = ["localspec", *words.split()]
    try:
        main()
    except SystemExit:
        print(words, "imported", [name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, input="")
    told = [line for line in done.stdout.splitlines() if "imported" in line]
    assert told == [f"{words} imported []" for words in commands], done.stderr
