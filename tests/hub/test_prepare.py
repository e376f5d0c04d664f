"""What a pull knows before its first weight byte, at the fake hub: fit, drafter, gate, licence, disk, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.core.errors import AccessDenied, CheckpointError, IncompatiblePair, NotDownloaded, UsageError
from localspec.core.requests import WeightOptions
from localspec.hub import prepare as preparing
from localspec.hub.gates import gate_lines
from localspec.hub.prepare import prepare
from localspec.hub.records import Gate, Progress, PullPlan, PullRequest
from localspec.loading.fit import fit_report, request_here
from localspec.models import hub_cache
from localspec.models.checkpoint import open_snapshot
from tests.support.fake_hub import Account, Answer, FakeHub, FakeRepository
from tests.support.hub_clients import GUIDE, client_of, guide, guide_draft, in_shards, small_model

pytestmark = pytest.mark.usefixtures("online")
LAYERSKIP = "facebook/layerskip-llama2-7B"
PAIR = ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct")


def plan_of(hub: FakeHub, scratch: Path, repo: str, **asked: str) -> PullPlan:
    return prepare(client_of(hub), PullRequest(repo, **asked), scratch)


@pytest.mark.parametrize("sharded", [False, True])
def test_the_fit_before_a_download_is_the_fit_of_the_folder_after(tmp_path: Path, sharded: bool):
    """Check 13: to the byte of every part, for the guide pair and for shards; not even torch is imported for it."""
    folder = in_shards(GUIDE / "target", tmp_path / "shards") if sharded else GUIDE / "target"
    with FakeHub(FakeRepository.from_folder("org/guide", folder), guide_draft()) as hub:
        before = plan_of(hub, tmp_path / "scratch", "org/guide", draft="org/small").fit
    asked = request_here(WeightOptions(), drafter=open_snapshot(GUIDE / "draft", "org/small"))
    after = fit_report(open_snapshot(folder, "org/guide"), asked)
    assert before is not None
    assert (before.formats, before.chosen, before.word) == (after.formats, after.chosen, after.word)
    assert (before.context, before.num_bytes, before.drafter) == (after.context, after.num_bytes, "org/small")


def test_only_headers_are_read_and_nothing_is_written_to_the_cache(tmp_path: Path):
    """Check 3: the shared cache stays as it was; the weights' files are sparse in the scratch folder."""
    with FakeHub(guide()) as hub:
        plan = plan_of(hub, tmp_path / "scratch", "org/guide", draft="none")
        assert hub.weight_bytes == 100_000
        assert {one.range for one in hub.seen("cdn")} == {"bytes=0-99999"}
    assert not hub_cache.folder().exists()
    (sparse,) = (tmp_path / "scratch").rglob("model.safetensors")
    assert sparse.stat().st_size == (GUIDE / "target" / "model.safetensors").stat().st_size
    assert sparse.stat().st_blocks * 512 < 1 << 20
    assert plan.disk_needed == plan.bytes_left + preparing.SPARE_BYTES


def test_a_second_plan_reads_the_headers_from_the_disk(tmp_path: Path):
    """They are kept by commit."""
    with FakeHub(guide()) as hub:
        first = plan_of(hub, tmp_path, "org/guide", draft="none")
        hub.forget()
        again = plan_of(hub, tmp_path, "org/guide", draft="none")
        assert [one.kind for one in hub.log] == ["info"]
    assert again.target == first.target


def test_what_a_person_wants_to_know(tmp_path: Path):
    """Commit, sizes, parameters, licence, template: the headers' and the hub's word."""
    heard: list[Progress] = []
    with FakeHub(pushed := guide(licence="mit")) as hub:
        plan = prepare(client_of(hub), PullRequest("org/guide"), tmp_path, report=heard.append)
    assert (plan.target.commit, plan.target.parameters, plan.target.dtype) == (pushed.commit, 7_608_576, "BF16")
    assert (plan.target.licence.words, plan.target.model_type, plan.target.chat_template) == ("mit", "llama", True)
    assert plan.target.num_bytes == sum((GUIDE / "target" / file.path).stat().st_size for file in plan.target.files)
    assert "words.txt" not in {file.path for file in plan.target.files}
    assert (plan.offer.kind, plan.preset, plan.unloadable) == ("none", "", "")
    assert "localspec pair org/guide --hub" in plan.offer.detail
    assert [one.stage for one in heard][:2] == ["resolving", "headers"]


def test_what_is_here_already_is_counted(tmp_path: Path):
    """Complete blobs and our own parts, in the shared cache."""
    with FakeHub(pushed := guide()) as hub:
        blobs = hub_cache.kept("org/guide") / "blobs"
        blobs.mkdir(parents=True)
        weights, config = pushed.tree["model.safetensors"], pushed.tree["config.json"]
        (blobs / f"{weights.sha256}.localspec.incomplete").write_bytes(bytes(1000))
        (blobs / config.oid).write_bytes(bytes(config.size))
        plan = plan_of(hub, tmp_path, "org/guide", draft="none")
    here = {file.path: file.here for file in plan.target.files if file.here}
    assert here == {"model.safetensors": 1000, "config.json": config.size}
    assert plan.bytes_left == plan.num_bytes - 1000 - config.size


def test_the_catalogues_early_exit_comes_with_its_source(tmp_path: Path):
    """And with no second model; where its layer is beyond the model's, the offer says so instead."""
    with FakeHub(guide(LAYERSKIP)) as hub:
        plan = plan_of(hub, tmp_path, LAYERSKIP)
        hub.push(guide_draft(LAYERSKIP))
        shallow = plan_of(hub, tmp_path, LAYERSKIP).offer
    assert (plan.offer.kind, plan.offer.exit_layer, plan.offer.k) == ("early-exit", 8, 6)
    assert (plan.offer.source, plan.drafter) == ("LayerSkip's README", None)
    assert shallow.kind == "none"
    assert "exit layer 8 is beyond" in shallow.detail


def test_the_catalogues_pair_comes_with_its_verdict(tmp_path: Path):
    """And both are fetched."""
    with FakeHub(guide(PAIR[0]), guide_draft(PAIR[1])) as hub:
        plan = plan_of(hub, tmp_path, PAIR[0])
    assert (plan.offer.kind, plan.offer.name, plan.drafter and plan.drafter.repo) == ("model", PAIR[1], PAIR[1])
    assert plan.offer.source
    assert plan.offer.verdict is not None
    assert (plan.offer.verdict.reason, plan.fit and plan.fit.drafter) == ("same", PAIR[1])


def test_a_catalogues_drafter_that_is_gone_is_none_with_the_reason(tmp_path: Path):
    with FakeHub(guide(PAIR[0])) as hub:
        plan = plan_of(hub, tmp_path, PAIR[0])
    assert (plan.offer.kind, plan.drafter) == ("none", None)
    assert PAIR[1] in plan.offer.detail


def test_a_named_drafter_that_speaks_other_tokens_is_refused(tmp_path: Path):
    from tests.support.tokenizers import gpt2_like

    other = {**guide_draft().files, "tokenizer.json": gpt2_like().to_str().encode()}
    with (
        FakeHub(guide(), FakeRepository("org/other", other)) as hub,
        pytest.raises(IncompatiblePair, match="org/other"),
    ):
        plan_of(hub, tmp_path, "org/guide", draft="org/other")


GATES: dict[Gate, tuple[Account | None, str]] = {
    "logged-out": (None, "Not logged in"),
    "no-request": (Account(), "No request yet: logged in as ana"),
    "awaiting": (Account(pending=frozenset({LAYERSKIP})), "Awaiting review: ana has asked"),
    "scope": (Account(reads_gated=False), "This token may not read gated repositories."),
}


@pytest.mark.parametrize("gate", GATES)
def test_each_gate_is_a_state_with_its_sentence_and_next_step(tmp_path: Path, gate: Gate):
    """Check 7: no weight byte, and what to run meanwhile is checked; the token is in nothing that is shown."""
    account, sentence = GATES[gate]
    repositories = guide(LAYERSKIP, gated="manual", licence="fair"), guide(PAIR[0]), guide_draft(PAIR[1])
    with FakeHub(*repositories, account=account) as hub:
        plan = plan_of(hub, tmp_path, LAYERSKIP)
        asked = [one for one in hub.log if LAYERSKIP in one.path]
        assert [one.kind for one in asked] == ["info", "auth-check"]
        page = f"{hub.endpoint}/{LAYERSKIP}"
    lines = gate_lines(LAYERSKIP, plan.target.access, plan.meanwhile)
    assert (plan.target.access.gate, plan.fit, plan.target.access.by_hand) == (gate, None, True)
    assert lines[0].startswith(sentence)
    assert page in lines[1] or gate == "scope"
    assert lines[2] == f"Meanwhile, without a gate: localspec pull {PAIR[0]} --draft {PAIR[1]} (fits)"
    assert lines[-1] == "Nothing was downloaded."
    assert (plan.offer.kind, plan.offer.exit_layer, plan.target.licence.non_commercial) == ("early-exit", 8, True)
    assert "hf_fake" not in f"{plan}{lines}"
    others = {GATES[other][1] for other in GATES if other != gate}
    assert not any(other in line for other in others for line in lines)


def test_a_gate_that_is_open_for_this_account_is_granted(tmp_path: Path):
    with FakeHub(guide(LAYERSKIP, gated="auto"), account=Account(may_read=frozenset({LAYERSKIP}))) as hub:
        plan = plan_of(hub, tmp_path, LAYERSKIP)
    assert (plan.target.access.gate, plan.target.access.account) == ("granted", "ana")
    assert gate_lines(LAYERSKIP, plan.target.access) == ()
    assert plan.fit is not None


def test_a_token_that_hides_the_saved_login_is_named(tmp_path: Path):
    with FakeHub(guide(LAYERSKIP, gated="manual"), account=Account()) as hub:
        plan = prepare(client_of(hub, hides_saved=True), PullRequest(LAYERSKIP), tmp_path)
    lines = gate_lines(LAYERSKIP, plan.target.access)
    assert any("HF_TOKEN overrides the saved login" in line for line in lines)


def test_a_drafter_behind_a_gate_is_in_the_plan_where_it_was_asked_for(tmp_path: Path):
    """Its state can be shown as the target's is; the catalogue's own drafter becomes none, with the reason."""
    gated = guide_draft(PAIR[1], gated="manual")
    with FakeHub(guide(PAIR[0]), gated, account=Account()) as hub:
        named = plan_of(hub, tmp_path, PAIR[0], draft=PAIR[1])
        auto = plan_of(hub, tmp_path, PAIR[0])
    assert named.drafter is not None
    assert (named.drafter.access.gate, named.fit is not None) == ("no-request", True)
    assert (auto.drafter, auto.offer.kind) == (None, "none")
    assert "No request yet" in auto.offer.detail


UNLOADABLE = {
    "an unknown architecture": (small_model(config={"model_type": "vampire"}), "Models of type 'vampire' are not supp"),
    "foreign code": (
        small_model(config={"auto_map": {"AutoConfig": "x--y.Z"}, "rope": {"auto_map": "a.py"}}),
        "org/bad/config.json has the field 'auto_map'",
    ),
    "MLX's weights": (small_model(config={"quantization": {"bits": 4}}), "quantised already, by MLX"),
    "a reward model": (
        small_model(config={"architectures": ["LlamaForSequenceClassification"]}),
        "does not generate text",
    ),
}


@pytest.mark.parametrize("what", UNLOADABLE)
def test_what_could_not_be_loaded_is_said_with_the_loaders_sentence(tmp_path: Path, what: str):
    """Check 11: before a single byte of weights."""
    files, sentence = UNLOADABLE[what]
    with FakeHub(FakeRepository("org/bad", files)) as hub:
        plan = plan_of(hub, tmp_path, "org/bad")
        assert hub.weight_bytes == 0
    assert sentence in plan.unloadable
    assert str(tmp_path) not in plan.unloadable
    assert (plan.fit, plan.offer.kind) == (None, "none")


REFUSED = {
    "only pickles": (small_model(**{"model.safetensors": None, "pytorch_model.bin": b"x"}), "only pickle weights"),
    "no tokenizer.json": (small_model(**{"tokenizer.json": None}), "has no tokenizer.json"),
    "no weights": (small_model(**{"model.safetensors": None}), "has no weights"),
    "no config": (small_model(**{"config.json": None}), "has no config.json"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_model_is_refused_before_a_byte(tmp_path: Path, what: str):
    """Check 11."""
    files, sentence = REFUSED[what]
    with FakeHub(FakeRepository("org/bad", files)) as hub:
        with pytest.raises(CheckpointError, match=sentence):
            plan_of(hub, tmp_path, "org/bad")
        assert [one.kind for one in hub.log] == ["info"]


def test_what_the_hub_does_not_have_is_said(tmp_path: Path):
    with FakeHub(guide(), replace(guide("org/off"), disabled=True), account=Account()) as hub:
        for repo, kind, words in (
            ("org/none", NotDownloaded, "no model 'org/none'"),
            ("org/off", AccessDenied, "disabled"),
            ("org/../x", UsageError, "not the name of a repository"),
        ):
            with pytest.raises(kind, match=words):
                plan_of(hub, tmp_path, repo)
        with pytest.raises(NotDownloaded, match="no such revision of org/guide"):
            plan_of(hub, tmp_path, "org/guide", revision="v9")


def test_files_that_the_hubs_scanners_report_are_named(tmp_path: Path):
    """Of those that would be fetched; whatever else stands in the report."""
    with FakeHub(pushed := guide()) as hub:
        issues = [{"path": "model.safetensors"}, {"path": "other.bin"}, {"path": 7}, "x"]
        facts = {"id": "org/guide", "sha": pushed.commit, "securityRepoStatus": {"filesWithIssues": issues}}
        facts["siblings"] = [file.sibling for file in pushed.tree.values()]
        hub.instead("info", Answer(200, {}, json.dumps(facts).encode()))
        plan = plan_of(hub, tmp_path, "org/guide", draft="none")
        assert plan.target.flagged == ("model.safetensors",)
        assert plan_of(hub, tmp_path, "org/guide", draft="none").target.flagged == ()
