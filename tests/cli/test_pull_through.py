"""From a name to a chat, as a new user would: the program, the hub's process and a hub on this machine."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from localspec.cli.download.record import ANSWERS
from localspec.core import paths
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.hub import manifests
from localspec.hub.process import HubProcess
from localspec.hub.pulls import unfinished
from localspec.hub.records import (
    AnyAsk,
    AskSearch,
    Fetched,
    HubAnswer,
    Progress,
    Pulled,
    PullPlan,
    SearchPage,
    SearchRequest,
)
from localspec.models import hub_cache
from tests.conftest import Program
from tests.support.fake_hub import Account, FakeHub, FakeRepository
from tests.support.hub_clients import guide, guide_draft

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "warm_hub")]

LAYERSKIP = "facebook/layerskip-llama2-7B"
QUESTION = "What is speculative decoding?"
HEADER = 100_001  # bytes that are read of a file for its header
MAY = Account(may_read=frozenset({LAYERSKIP}))


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A model trained for early exit under LayerSkip's name, gated by hand as that is, and a small one."""
    small = guide_draft("org/small")
    with FakeHub(guide(LAYERSKIP, gated="manual", licence="fair"), small, account=MAY) as running:
        for name, value in running.variables(tmp_path / "hf").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
        paths.licences_file().unlink(missing_ok=True)  # the state folder is all tests', and none has accepted one
        yield running


@pytest.mark.usefixtures("hub")
def test_from_a_name_to_an_answer_in_one_command_each(localspec: Program):
    """The README's quick start. The answer with drafts is the answer without."""
    code, out, _ = localspec("pull", LAYERSKIP, "--yes")
    assert code == 0
    assert "layers 1–8, k 6 (LayerSkip's README); no second model" in out
    assert "checked: 1 of 1 files have the hub's sha256" in out
    assert out.endswith(f"Ready. localspec chat {LAYERSKIP}\n")
    options = ("--temperature", "0", "--max-tokens", "24", "--stats", "--device", "cpu", "--quant", "fp32")
    code, drafted, err = localspec("run", LAYERSKIP, QUESTION, *options)
    assert code == 0
    figures = json.loads(err.strip().splitlines()[-1])
    assert figures["draft_kind"] == "early-exit"
    assert figures["draft_n_accepted"] > 0
    _, plain, _ = localspec("run", LAYERSKIP, QUESTION, *options, "--draft", "off")
    assert drafted == plain
    assert "draft" in plain.lower()


def test_run_of_what_is_not_here_pulls_it_and_answers(
    hub: FakeHub, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """From a name to an answer in one command, at a terminal; stdout has the answer alone."""
    asked: list[str] = []
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("localspec.cli.questions.answered", lambda question, **_: not asked.append(question))
    options = ("--temperature", "0", "--max-tokens", "8", "--device", "cpu", "--quant", "fp32")
    code, out, err = localspec("run", "layerskip-llama2-7b", QUESTION, *options)
    assert code == 0
    assert [question.rpartition(". ")[2] for question in asked] == ["Do you accept it?", "Download?"]
    assert "layers 1–8, k 6 (LayerSkip's README)" in err
    hub.forget()
    assert localspec("run", "layerskip-llama2-7b", QUESTION, *options)[:2] == (0, out), "here now, and nothing is asked"
    assert out.strip()
    assert (len(asked), hub.log) == (2, ())


def test_what_is_pulled_is_listed_shown_checked_and_deleted_to_the_last_byte(hub: FakeHub, localspec: Program):
    localspec("pull", LAYERSKIP, "--yes")
    _, out, _ = localspec("ls")
    assert re.search(r"^layerskip-llama2-7b +bf16 +16 MB +fits +layers 1–8 +fair", out, re.MULTILINE)
    (_, model) = json.loads(localspec("ls", "--json")[1])
    assert (model["repo"], model["licence"]["non_commercial"], len(model["commit"])) == (LAYERSKIP, True, 40)
    _, out, _ = localspec("show", "layerskip-llama2-7b")
    assert f"{LAYERSKIP} @ {model['commit'][:7]}" in out
    assert "llama, 12 layers, context 2,048, vocabulary 4,096" in out
    hub.forget()
    assert (
        localspec("verify-files", LAYERSKIP)[1] == f"{LAYERSKIP}: 5 of 5 files have the hash that is known of them.\n"
    )
    assert hub.log == (), "a check asks no network"
    code, out, _ = localspec("rm", LAYERSKIP, "--yes")
    assert (code, out) == (0, f"Deleting {LAYERSKIP} frees 17 MB.\nFreed 17 MB.\n")
    left = [file for file in hub_cache.folder().rglob("*") if file.is_file() and "layerskip" in str(file)]
    assert sum(file.stat().st_size for file in left) < 4096
    assert localspec("run", LAYERSKIP, "hi")[0] == 3


def test_what_a_newer_version_replaced_is_listed_and_freed_alone(hub: FakeHub, localspec: Program):
    localspec("pull", "org/small", "--draft", "none", "--yes")
    older = hub_cache.snapshot("org/small")
    hub.push(guide("org/small"))
    localspec("pull", "org/small", "--draft", "none", "--yes")
    newer = hub_cache.snapshot("org/small")
    assert newer not in (None, older)
    line = r"^Older versions of org/small take (.* MB)\. Free it: localspec rm --older$"
    (size,) = re.findall(line, localspec("ls")[1], re.MULTILINE)
    code, out, _ = localspec("rm", "--older", "--yes")
    assert (code, out) == (0, f"Deleting older versions of org/small frees {size}.\nFreed {size}.\n")
    assert older is not None
    assert not older.exists()
    assert "Older versions" not in localspec("ls")[1]
    assert localspec("verify-files", "org/small")[0] == 0


def test_a_file_that_went_bad_is_named_and_fetched_again_alone(hub: FakeHub, localspec: Program):
    localspec("pull", LAYERSKIP, "--yes")
    folder = hub_cache.snapshot(LAYERSKIP)
    assert folder is not None
    weights = Path(os.path.realpath(folder / "model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, out, err = localspec("verify-files", LAYERSKIP)
    assert code == 7
    assert re.search(r"^model\.safetensors +wrong", out, re.MULTILINE)
    assert f"localspec verify-files {LAYERSKIP} --fetch" in err
    hub.forget()
    assert localspec("verify-files", LAYERSKIP, "--fetch")[0] == 0
    assert len(hub.seen("cdn")) == 1, "the rest was right"
    assert manifests.is_of_a_branch(LAYERSKIP, folder.name), "a later pull makes it an older version"
    assert localspec("verify-files", LAYERSKIP)[0] == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("account", "said"),
    [
        (None, "Not logged in"),
        (Account(), "No request yet: logged in as ana"),
        (Account(pending=frozenset({LAYERSKIP})), "Awaiting review: ana has asked"),
        (replace(MAY, reads_gated=False), "This token may not read gated repositories."),
    ],
)
def test_every_state_of_the_gate_is_its_own_screen_and_no_byte_of_weights(
    account: Account | None, said: str, hub: FakeHub, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    hub.account = account
    monkeypatch.setenv("HF_TOKEN", account.token if account else "")
    code, out, err = localspec("pull", LAYERSKIP, "--yes")
    assert (code, said in out, hub.weight_bytes) == (4, True, 0)
    assert "Nothing was downloaded." in out
    assert MAY.token not in out + err


@pytest.mark.slow
def test_a_dry_run_show_fit_and_pair_write_nothing_to_the_cache(hub: FakeHub, localspec: Program):
    assert localspec("pull", LAYERSKIP, "--dry-run")[0] == 0
    assert localspec("show", LAYERSKIP)[0] == 0
    assert localspec("fit", LAYERSKIP, "--draft", "org/small")[0] == 0
    assert localspec("pair", LAYERSKIP, "org/small")[0] == 0
    assert not hub_cache.folder().exists()
    assert all(request.range and request.sent_bytes <= HEADER for request in hub.seen("cdn")), "headers alone"


@pytest.mark.slow
def test_fit_and_pair_before_a_download_are_those_after_it(hub: FakeHub, localspec: Program):
    """To the byte of the plan; what is free is another matter."""

    def judged() -> tuple[list[object], object]:
        report = json.loads(localspec("fit", LAYERSKIP, "--draft", "org/small", "--json")[1])
        (candidate,) = json.loads(localspec("pair", LAYERSKIP, "org/small", "--json")[1])
        return report["formats"], candidate["verdict"]

    before = judged()
    assert localspec("pull", LAYERSKIP, "--draft", "org/small", "--yes")[0] == 0
    hub.forget()
    assert judged() == before
    assert hub.log == ()


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_target_and_a_drafter_that_was_named_are_one_pull_under_one_key(localspec: Program):
    code, out, _ = localspec("pull", LAYERSKIP, "--draft", "org/small", "--as", "two", "--yes")
    assert code == 0
    assert out.endswith("Ready. localspec chat two\n")
    options = ("--max-tokens", "8", "--temperature", "0", "--stats", "--device", "cpu", "--quant", "fp32")
    code, _, err = localspec("run", "two", QUESTION, *options)
    assert (code, json.loads(err.strip().splitlines()[-1])["draft_kind"]) == (0, "model")


@pytest.mark.slow
@pytest.mark.usefixtures("hub")
def test_a_key_whose_drafter_was_taken_away_drafts_by_look_up_alone(localspec: Program):
    for draft, kind in (("org/small", "model"), ("none", "lookup")):
        assert localspec("pull", LAYERSKIP, "--draft", draft, "--as", "two", "--yes")[0] == 0
        options = ("--max-tokens", "8", "--temperature", "0", "--stats", "--device", "cpu", "--quant", "fp32")
        _, _, err = localspec("run", "two", QUESTION, *options)
        assert json.loads(err.strip().splitlines()[-1])["draft_kind"] == kind


@pytest.mark.usefixtures("hub")
def test_a_model_that_is_loaded_is_not_deleted(localspec: Program):
    import localspec as package

    localspec("pull", LAYERSKIP, "--yes")
    with package.load(LAYERSKIP, device="cpu", quant="fp32"):
        code, _, err = localspec("rm", LAYERSKIP, "--yes")
        assert (code, "is loaded by a running localspec" in err) == (2, True)
        (_, model) = json.loads(localspec("ls", "--json")[1])
        assert model["loaded"]
    assert localspec("rm", LAYERSKIP, "--yes")[0] == 0


SECRET = "a-secret-question"
ASKED = {"blobs", "securityStatus", "recursive", "expand"}
SEARCHED = {
    "search",
    "author",
    "filter",
    "pipeline_tag",
    "gated",
    "num_parameters",
    "sort",
    "limit",
    "expand",
    "cursor",
}


def ask_everything(localspec: Program) -> None:
    """Every command that asks the hub, and one that must not; the search of the Hub tab."""
    pages = [ask_hub(AskSearch(SearchRequest("draft"))), ask_hub(AskSearch(SearchRequest(drafter_for=LAYERSKIP)))]
    assert all(isinstance(page, SearchPage) for page in pages)
    fit, pair = ("fit", LAYERSKIP, "--draft", "org/small"), ("pair", LAYERSKIP, "org/small")
    for words in (("show", LAYERSKIP), fit, pair, ("pull", LAYERSKIP, "--yes")):
        assert localspec(*words)[0] == 0
    assert localspec("pair", LAYERSKIP, "--hub")[0] in (0, 6)
    assert localspec("run", LAYERSKIP, SECRET, "--max-tokens", "2", "--device", "cpu", "--quant", "fp32")[0] == 0


def ask_hub(question: AnyAsk) -> HubAnswer:
    with HubProcess() as process:
        return [*process.ask(question)][-1]


def test_only_names_and_the_token_leave_the_machine_and_the_token_goes_to_the_hub_alone(
    hub: FakeHub, localspec: Program
):
    """As SECURITY.md says: names of repositories and files, words searched for, who is logged in; nothing of a chat, no
    telemetry."""
    ask_everything(localspec)
    assert hub.seen("cdn")
    assert not any(request.has_authorization for request in hub.seen("cdn"))
    assert hub.seen("agent-harnesses") == ()
    name = rf"({LAYERSKIP}|org/small)"
    allowed = re.compile(rf"/(api/models/{name}(/.*)?|{name}/resolve/.*|[0-9a-f]{{64}}|api/whoami-v2|api/models)")
    for request in hub.log:
        assert allowed.fullmatch(request.path), request.path
        if request.server == "hub":  # the address on the CDN is the hub's own
            assert set(request.query) <= (SEARCHED if request.kind == "search" else ASKED), request.query
        words = " ".join([request.path, *map(str, request.query.values()), *request.headers.values()])
        assert "secret" not in words
        assert "torch" not in request.headers.get("user-agent", "")
    assert {"search", "whoami", "auth-check"} <= {request.kind for request in hub.log}


@pytest.mark.slow
def test_without_a_network_what_is_here_works_and_a_pull_says_why_it_cannot(
    hub: FakeHub, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    localspec("pull", LAYERSKIP, "--yes")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.forget()
    for words in (("ls",), ("show", LAYERSKIP), ("fit", LAYERSKIP), ("verify-files", LAYERSKIP)):
        assert localspec(*words)[0] == 0
    code, _, err = localspec("pull", "org/small", "--yes")
    assert (code, "HF_HUB_OFFLINE" in err) == (7, True)
    assert hub.log == ()


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # as it shall be
def test_in_the_background_it_goes_on_without_its_terminal_and_another_one_sees_it_end(
    hub: FakeHub, localspec: Program
):
    hub.switches.hold_after = 1_000_000
    assert localspec("pull", LAYERSKIP, "--yes", "--background")[0] == 0
    threading.Timer(0.5, lambda: (setattr(hub.switches, "hold_after", None), hub.release())).start()
    code, out, err = localspec("pull", LAYERSKIP)
    assert code == 0
    assert f"Another localspec is downloading {LAYERSKIP}." in err
    assert out.endswith(f"Ready. localspec chat {LAYERSKIP}\n")
    assert len([request for request in hub.seen("cdn") if request.sent_bytes > HEADER]) == 1, "fetched once"


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # as it shall be
def test_a_download_in_the_background_is_stopped_and_goes_on_from_what_came(hub: FakeHub, localspec: Program):
    hub.switches.hold_after = 1_000_000
    code, out, _ = localspec("pull", LAYERSKIP, "--yes", "--background", "--json")
    assert (code, json.loads(out.splitlines()[-1])["type"]) == (0, "background")
    assert [(one.repo, one.running) for one in unfinished()] == [(LAYERSKIP, True)], "listed at once"
    for _ in range(300):
        if any(one.running and one.done > 900_000 for one in unfinished()):  # bytes of the weights, which are held
            break
        time.sleep(0.05)
    code, _, err = localspec("rm", LAYERSKIP, "--yes")
    assert (code, f"is being downloaded. Stop it: localspec pull --stop {LAYERSKIP}" in err) == (2, True)
    code, _, err = localspec("pull", "--stop", LAYERSKIP)
    assert code == 0
    assert re.fullmatch(rf"Stopped\. Progress is kept: .* of 17 MB\. Go on: localspec pull {LAYERSKIP}\n", err)
    assert not any(one.running for one in unfinished())
    hub.switches.hold_after = None
    hub.release()
    hub.forget()
    assert localspec("pull", LAYERSKIP, "--yes")[0] == 0
    assert any(request.range and not request.range.startswith("bytes=0-") for request in hub.seen("cdn")), "resumed"


@pytest.mark.slow
def test_weights_that_are_gone_are_missing_and_fetched_again(hub: FakeHub, localspec: Program):
    localspec("pull", LAYERSKIP, "--yes")
    folder = hub_cache.snapshot(LAYERSKIP)
    assert folder is not None
    weights = Path(os.path.realpath(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    weights.unlink()
    code, out, err = localspec("verify-files", LAYERSKIP)
    assert code == 7
    assert re.search(r"^model\.safetensors +missing +it came with the download$", out, re.MULTILINE)
    assert "error: model.safetensors: missing. Fetch only these files again" in err
    hub.forget()
    assert localspec("verify-files", LAYERSKIP, "--fetch")[0] == 0
    assert weights.exists()
    assert localspec("verify-files", LAYERSKIP)[0] == 0


def test_a_drafter_that_is_not_here_is_a_notice_with_its_command_and_the_model_answers(
    hub: FakeHub, localspec: Program
):
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(
        f"schema_version = 1\n[models.k]\nrepo = '{LAYERSKIP}'\n[models.k.draft]\nkind = 'model'\nmodel = 'org/small'\n"
    )
    localspec("pull", LAYERSKIP, "--yes", "--draft", "none")
    hub.forget()
    options = ("--max-tokens", "4", "--device", "cpu", "--quant", "fp32")
    code, out, err = localspec("run", "k", QUESTION, *options)
    assert (code, bool(out.strip())) == (0, True)
    assert "warning: 'org/small' is not on this machine. Fetch it: localspec pull org/small" in err
    code, _, err = localspec("run", "k", QUESTION, "--draft", "org/small", *options)
    assert (code, "Fetch it: localspec pull org/small" in err) == (3, True), "asked for, so it is an error"
    assert hub.log == (), "neither asks the hub"


def test_python_pulls_in_the_same_words(hub: FakeHub):
    import localspec as package

    with pytest.raises(package.AccessDenied, match=r"allows no commercial use\..*accept_licence=True"):
        package.pull("layerskip-llama2-7b")
    assert hub.weight_bytes < HEADER * 2, "nothing but headers"
    folder = package.pull("layerskip-llama2-7b", accept_licence=True)
    assert folder == hub_cache.snapshot(LAYERSKIP)
    kinds = [event.type for event in package.pull_events(LAYERSKIP)]
    assert (kinds[0], kinds[-1]) == ("progress", "pulled")
    assert "plan" in kinds
    assert hub.weight_bytes > 15_000_000


@pytest.mark.usefixtures("hub")
def test_the_lines_of_json_are_pythons_records(localspec: Program):
    """Of a whole pull each line is a record; of the same pull again, the same ones as Python gets."""
    import localspec as package

    def lines() -> list[HubAnswer]:
        return [ANSWERS.decode(line) for line in localspec("pull", LAYERSKIP, "--yes", "--json")[1].splitlines()]

    assert {Progress, PullPlan, Fetched, Pulled} <= {type(event) for event in lines()}
    again, python = ([*map(timeless, events)] for events in (lines(), package.pull_events(LAYERSKIP)))
    assert [event for event in again if event] == [event for event in python if event]
    assert any(isinstance(event, PullPlan) for event in python)


def timeless(event: HubAnswer) -> HubAnswer | None:
    """An event without what differs from one moment to the next."""
    if isinstance(event, PullPlan):
        fit = event.fit and msgspec.structs.replace(event.fit, free_bytes=0)
        return msgspec.structs.replace(event, fit=fit, disk_free=0)
    return None if isinstance(event, Progress) else event


@pytest.mark.usefixtures("hub")
def test_pair_prints_the_records_of_python(localspec: Program):
    import localspec as package

    code, out, _ = localspec("pair", LAYERSKIP, "org/small", "--json")
    assert (code, json.loads(out)) == (0, [*msgspec.to_builtins(package.pair(LAYERSKIP, "org/small"))])


@pytest.mark.slow
def test_one_file_of_a_gguf_repository_is_pulled_by_its_quantisation_and_runs(
    hub: FakeHub, localspec: Program, tmp_path: Path
):
    from tests.support.gguf_files import save_pair  # imports torch

    file, _ = save_pair(tmp_path / "made", "Q8_0")
    hub.push(FakeRepository("org/tiny-GGUF", {"tiny-Q8_0.gguf": file, "tiny-Q4_0.gguf": file}))
    code, out, err = localspec("pull", "org/tiny-GGUF", "--yes")
    assert code == 2
    assert re.search(r"^.*Q8_0.* fits", out, re.MULTILINE)
    assert "Choose one: localspec pull org/tiny-GGUF:Q" in err
    code, out, _ = localspec("pull", "org/tiny-GGUF:Q8_0", "--yes", "--as", "tiny")
    assert (code, out.splitlines()[-1]) == (0, "Ready. localspec chat tiny")
    for name in ("tiny", "hf:org/tiny-GGUF/tiny-Q8_0", "org/tiny-GGUF:Q8_0", "org/tiny-GGUF"):
        code, out, err = localspec("run", name, "once", "--raw", "--max-tokens", "2", "--device", "cpu")
        assert (code, out != "") == (0, True), err
    assert [line.split()[0] for line in localspec("ls")[1].splitlines()] == ["NAME", "guide", "tiny"], "each once"
    stored = Path(os.path.realpath(next(hub_cache.folder().rglob("tiny-Q8_0.gguf"))))
    content = stored.read_bytes()
    stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert localspec("verify-files", "tiny")[0] == 7
    assert localspec("verify-files", "tiny", "--fetch")[0] == 0
    assert localspec("verify-files", "tiny")[0] == 0
    assert (
        localspec("pull", "org/tiny-GGUF:Q4_0", "--yes")[1].splitlines()[-1]
        == "Ready. localspec chat org/tiny-GGUF:Q4_0"
    )
    code, _, err = localspec("run", "org/tiny-GGUF", "once")
    assert (code, "Name one: org/tiny-GGUF:Q4_0, org/tiny-GGUF:Q8_0" in err) == (2, True)


def test_the_only_file_of_a_gguf_repository_needs_no_name(hub: FakeHub, localspec: Program, tmp_path: Path):
    from tests.support.gguf_files import save_pair  # imports torch

    file, _ = save_pair(tmp_path / "made", "Q8_0")
    hub.push(FakeRepository("org/one-GGUF", {"one-Q8_0.gguf": file}))
    code, out, _ = localspec("pull", "org/one-GGUF", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "Ready. localspec chat org/one-GGUF")
    assert localspec("run", "org/one-GGUF", "once", "--raw", "--max-tokens", "2", "--device", "cpu")[0] == 0


def test_a_tag_is_pulled_and_run_by_its_name_and_main_stays_as_it_was(hub: FakeHub, localspec: Program):
    hub.push(guide_draft("org/tagged"), "v1")
    code, out, _ = localspec("pull", "org/tagged@v1", "--yes")
    assert (code, out.splitlines()[-1]) == (0, "Ready. localspec chat org/tagged@v1")
    options = ("--max-tokens", "2", "--device", "cpu", "--quant", "fp32")
    assert localspec("run", "org/tagged@v1", QUESTION, *options)[0] == 0
    assert re.search(
        r"^1 version pulled as .*, of org/tagged, .* 3 MB\. .* rm org/tagged$", localspec("ls")[1], re.MULTILINE
    )
    code, _, err = localspec("run", "org/tagged", QUESTION, *options)
    assert (code, "Fetch it: localspec pull org/tagged" in err) == (3, True)
