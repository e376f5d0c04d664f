"""What a pull knows before its first weight byte, at the fake hub: fit, drafter, gate, licence, disk, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from localspec import load
from localspec.cli.download.preview import next_words
from localspec.core import paths
from localspec.core.disk import SPARE_BYTES
from localspec.core.errors import AccessDenied, CheckpointError, IncompatiblePair, NotDownloaded, UsageError
from localspec.core.requests import WeightOptions
from localspec.hub import blobs
from localspec.hub.gates import gate_lines
from localspec.hub.plan import prepare, template_for
from localspec.hub.plan_words import offer_words
from localspec.hub.records import Gate, PairRequest, Progress, PullPlan, PullRequest
from localspec.hub.remote_pair import answer_pair
from localspec.loading.fit import fit_report, request_here
from localspec.models import hub_cache
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import open_snapshot
from localspec.models.template_choice import template_of
from tests.support.fake_hub import HANG, Account, Answer, FakeHub, FakeRepository
from tests.support.hub_clients import (
    GUIDE,
    WAITS,
    client_of,
    guide,
    guide_draft,
    in_cache,
    in_shards,
    shallow_draft,
    small_model,
)

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("online")]
LAYERSKIP = "facebook/layerskip-llama2-7B"
NO_MODELS: dict[str, bytes | Path] = {"m-Q2_K.gguf": b"GGUF" + bytes(60), "m-Q3_K.gguf": b"GGUF" + bytes(70)}
PAIR = ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct")


def plan_of(hub: FakeHub, scratch: Path, repo: str, **asked: str) -> PullPlan:
    return prepare(client_of(hub), PullRequest(repo, **asked), scratch)


@pytest.mark.parametrize("sharded", [False, True])
def test_the_fit_before_a_download_is_the_fit_of_the_folder_after(tmp_path: Path, sharded: bool):
    """Check 13: to the byte of every part, for the guide pair and for shards."""
    folder = in_shards(GUIDE / "target", tmp_path / "shards") if sharded else GUIDE / "target"
    with FakeHub(FakeRepository.from_folder("org/guide", folder), guide_draft()) as hub:
        before = plan_of(hub, tmp_path / "scratch", "org/guide", draft="org/small").fit
    asked = request_here(WeightOptions(), drafter=open_snapshot(GUIDE / "draft", "org/small"))
    after = fit_report(open_snapshot(folder, "org/guide"), asked)
    assert before is not None
    assert (before.formats, before.chosen, before.word) == (after.formats, after.chosen, after.word)
    assert (before.context, before.num_bytes, before.drafter) == (after.context, after.num_bytes, "org/small")


PLAN = """
import sys
from pathlib import Path
from localspec.hub.client import Client
from localspec.hub.plan_words import offer_words
from localspec.hub.plan import prepare
from localspec.hub.records import PullRequest
plan = prepare(Client(sys.argv[1]), PullRequest("org/Guide-7B"), Path(sys.argv[2]))
assert plan.fit and plan.offer.verdict and plan.offer.verdict.ok, plan
print(*sorted({"torch", "transformers", "numba"} & sys.modules.keys()))
"""


def test_a_plan_needs_no_torch(tmp_path: Path):
    """Check 13: architecture, fit and the pair's verdict are judged before a download without it."""
    with FakeHub(guide("org/Guide-7B"), guide_draft("org/Guide-1B")) as hub:
        words = [sys.executable, "-c", PLAN, hub.endpoint, str(tmp_path / "scratch")]
        run = subprocess.run(words, env=hub.environment(tmp_path), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "\n", "")


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
    assert plan.disk_needed == plan.bytes_left + SPARE_BYTES


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
    assert (plan.target.commit, plan.target.parameters, plan.target.dtype) == (pushed.commit, 8_132_864, "BF16")
    assert (plan.target.licence.words, plan.target.model_type, plan.target.chat_template) == ("mit", "llama", True)
    assert plan.target.num_bytes == sum((GUIDE / "target" / file.path).stat().st_size for file in plan.target.files)
    assert "words.txt" not in {file.path for file in plan.target.files}
    assert (plan.offer.kind, plan.preset, plan.unloadable) == ("none", "", "")
    assert "localspec pair org/guide --hub" in plan.offer.detail
    assert [one.stage for one in heard][:2] == ["resolving", "headers"]


def test_a_name_in_another_case_is_the_hubs_own_from_then_on(tmp_path: Path):
    """So that the cache has one folder of it."""
    with FakeHub(guide()) as hub:
        plan = plan_of(hub, tmp_path, "ORG/Guide", draft="none")
    assert (plan.target.repo, plan.fit is not None) == ("org/guide", True)


@pytest.mark.parametrize(
    ("written", "of_base", "of_chat"),
    [
        ("", "none", ""),
        ("fallback_template = 'words'", "words", ""),
        ("fallback_template = 'auto'", "none", ""),
        ("template = 'auto'", "none", ""),
        ("template = 'chatml'", "chatml", "chatml"),
        ("template = 'chatml'\nfallback_template = 'words'", "chatml", "chatml"),
    ],
)
def test_the_template_that_a_plan_names_is_the_one_that_the_model_gets(
    written: str, of_base: str, of_chat: str, tmp_path: Path
):
    """A fallback, as the catalogue has it, is for a model without a template of its own."""
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(f"schema_version = 1\n[models.x]\nrepo = 'org/x'\n{written}\n")
    assert template_for("org/x", has_own=False) == of_base
    assert template_for("org/x", has_own=True) == of_chat
    table = Catalog.load().models["x"]
    base, chat = tmp_path / "base", GUIDE / "target"
    base.mkdir()
    for folder, said in ((base, of_base), (chat, of_chat)):
        entry = Entry("x", "x", folder, template=table.template, fallback_template=table.fallback_template)
        used = template_of(entry)
        assert (used.name if used else "") in (said, "" if said == "none" else said), "without one a text is completed"


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


def test_an_early_exit_without_a_layer_is_called_an_untested_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "models.toml").write_text(
        'schema_version = 1\n[models.mine]\nrepo = "org/guide"\n'
        '[models.mine.draft]\nkind = "early-exit"\nsource = "a page"\n'
    )
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    with FakeHub(guide()) as hub:
        offer = plan_of(hub, tmp_path, "org/guide").offer
    assert offer.kind == "early-exit"
    assert f"layers 1–{offer.exit_layer}, k auto (untested start" in offer_words(offer)


def test_a_drafter_without_a_model_needs_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "models.toml").write_text(
        'schema_version = 1\n[models.mine]\nrepo = "org/guide"\n[models.mine.draft]\nkind = "lookup"\n'
    )
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    with FakeHub(guide()) as hub:
        plan = plan_of(hub, tmp_path, "org/guide")
    assert (offer_words(plan.offer), plan.drafter) == ("none: look-up needs no download", None)


def test_the_catalogues_pair_comes_with_its_verdict(tmp_path: Path):
    """And both are fetched."""
    with FakeHub(guide(PAIR[0]), guide_draft(PAIR[1])) as hub:
        plan = plan_of(hub, tmp_path, PAIR[0])
    assert (plan.offer.kind, plan.offer.name, plan.drafter and plan.drafter.repo) == ("model", PAIR[1], PAIR[1])
    assert plan.offer.source
    assert plan.offer.verdict is not None
    assert (plan.offer.verdict.reason, plan.fit and plan.fit.drafter) == ("same", PAIR[1])


def with_free(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this machine's main memory, without a GPU."""
    for module in ("fit", "plan"):
        monkeypatch.setattr(f"localspec.loading.{module}.available_bytes", lambda: free)
    monkeypatch.setattr("localspec.hub.plan.usable_gpu_bytes", lambda: None)


def guides_word(free: int, monkeypatch: pytest.MonkeyPatch, drafter: Path | None = None) -> str:
    with_free(free, monkeypatch)
    small = open_snapshot(drafter, "small") if drafter else None
    return fit_report(open_snapshot(GUIDE / "target", "guide"), request_here(WeightOptions(), drafter=small)).word


@pytest.mark.parametrize("wanted", [("fits", "from disk"), ("from disk", "too large")], ids="-".join)
@pytest.mark.parametrize("place", ["the catalogue", "the hub", "this machine"])
def test_a_drafter_that_nobody_asked_for_never_costs_the_target_its_place(
    place: str, wanted: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where both are slower than the target alone, or too large, none is offered; the one asked for by name stays."""
    target, drafter = PAIR if place == "the catalogue" else (FAMILY, "org/Guide-first")
    if place == "this machine":
        in_cache(drafter, GUIDE / "draft")

    def words(free: int) -> tuple[str, str]:
        alone = guides_word(free, monkeypatch).partition(" in ")[0]
        return alone, guides_word(free, monkeypatch, GUIDE / "draft")

    free = next(one for one in range(40_000_000, 60_000_000, 250_000) if words(one) == wanted)
    with FakeHub(guide(target), guide_draft(drafter)) as hub:
        with_free(free, monkeypatch)
        plan = plan_of(hub, tmp_path, target)
        named = plan_of(hub, tmp_path, target, draft=drafter)
        with_free(10**9, monkeypatch)
        roomy = plan_of(hub, tmp_path, target)
    assert offer_words(plan.offer) == f"none: {drafter} could draft, but both do not fit"
    assert (plan.drafter, plan.bytes_left) == (None, plan.target.bytes_left)
    assert plan.fit is not None
    assert (plan.fit.word.startswith(wanted[0]), plan.fit.drafter) == (True, "")
    assert plan.fit.chosen, "so the question is the usual one"
    assert (named.offer.name, named.fit and named.fit.word) == (drafter, wanted[1])
    assert (roomy.offer.name, roomy.fit and roomy.fit.drafter) == (drafter, drafter)


def test_an_early_exit_that_nobody_asked_for_never_makes_the_target_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has no weights, but the layers that it runs through stay in memory, and others may be read from disk."""
    with_free(47_000_000, monkeypatch)
    with FakeHub(guide(LAYERSKIP)) as hub:
        plan = plan_of(hub, tmp_path, LAYERSKIP)
    assert offer_words(plan.offer) == ("none: layers 1–8 could draft, but they do not all fit in memory")
    assert plan.fit is not None
    assert (plan.fit.word, plan.fit.chosen) == ("from disk", "int4")


def test_a_catalogues_drafter_that_is_gone_is_none_with_the_reason(tmp_path: Path):
    with FakeHub(guide(PAIR[0])) as hub:
        plan = plan_of(hub, tmp_path, PAIR[0])
    assert (plan.offer.kind, plan.drafter) == ("none", None)
    assert PAIR[1] in plan.offer.detail


FAMILY = "org/Guide-7B"


def other_tokens(name: str, **facts: Any) -> FakeRepository:
    from tests.support.tokenizers import wordpiece_like

    return FakeRepository(name, {**guide_draft().files, "tokenizer.json": wordpiece_like().to_str().encode()}, **facts)


def test_without_the_catalogue_auto_is_the_best_draft_model_of_the_hub(tmp_path: Path):
    """By verdict, size, then downloads, as `pair --hub` and the screen's `d` rank them: with its verdict, fetched with
    the target, and in its fit. The parent hears that something is done before each one."""
    family = [
        guide(FAMILY),
        guide_draft("org/Guide-gated", gated="auto", downloads=9),
        other_tokens("org/Guide-other", downloads=8),
        guide_draft("org/Guide-large", downloads=7),
        shallow_draft("org/Guide-tenth", 2, downloads=6),
        shallow_draft("org/Guide-again", 2, downloads=5),
    ]
    heard: list[Progress] = []
    with FakeHub(*family, account=Account()) as hub:
        ranked = answer_pair(client_of(hub), PairRequest(FAMILY, hub=True), tmp_path / "pair").candidates
        plan = prepare(client_of(hub), PullRequest(FAMILY), tmp_path / "plan", report=heard.append)
    assert [one.name.rpartition("-")[2] for one in ranked] == ["tenth", "again", "large", "other"]
    assert (plan.offer.kind, plan.offer.name) == ("model", "org/Guide-tenth")
    assert (plan.drafter and plan.drafter.repo, plan.fit and plan.fit.drafter) == ("org/Guide-tenth",) * 2
    assert plan.offer.verdict is not None
    assert (plan.offer.verdict.ok, plan.offer.verdict.reason) == (True, "same")
    assert sum(one.stage == "checking" for one in heard) == 1 + 5


def test_a_draft_model_on_disk_goes_before_those_of_the_hub(tmp_path: Path):
    """Nothing is searched, and nothing more is fetched."""
    in_cache("org/small", GUIDE / "draft")
    with FakeHub(guide(FAMILY), guide_draft("org/Guide-first")) as hub:
        plan = plan_of(hub, tmp_path, FAMILY)
        assert not hub.seen("search")
    assert (plan.offer.kind, plan.offer.name, plan.drafter) == ("model", "org/small", None)
    assert (plan.offer.verdict and plan.offer.verdict.ok, plan.fit and plan.fit.drafter) == (True, "org/small")
    assert plan.bytes_left == plan.target.bytes_left


def test_at_most_five_models_are_compared(tmp_path: Path):
    """The sixth might draft; `pair --hub` would list it."""
    others = [other_tokens(f"org/Guide-{number}", downloads=9 - number) for number in range(5)]
    with FakeHub(guide(FAMILY), *others, guide_draft("org/Guide-sixth")) as hub:
        plan = plan_of(hub, tmp_path, FAMILY)
        asked = {one.path.rpartition("/")[2] for one in hub.seen("info")}
    assert asked == {"Guide-7B", *(f"Guide-{number}" for number in range(5))}
    assert (plan.offer.kind, plan.drafter) == ("none", None)
    assert f"localspec pair {FAMILY} --hub" in plan.offer.detail


FAULTS = {
    "silent at the search": ("search", HANG, "The hub stopped answering"),
    "down at the search": ("search", Answer(503), "a problem of its own"),
    "silent at a candidate": ("info", HANG, "The hub stopped answering"),
    "down at a candidate": ("info", Answer(500), "a problem of its own"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_drafter_is_looked_for_is_none_with_the_reason(tmp_path: Path, fault: str):
    """The plan is whole but for that, and one repository is asked about: the next would fare no better."""
    kind, answer, words = FAULTS[fault]
    tries = 1 if answer is HANG else 1 + len(WAITS)
    with FakeHub(guide(FAMILY), *(guide_draft(f"org/Guide-{number}") for number in range(3))) as hub:
        before = {"search": 0, "info": 2}[kind]  # the target is asked about for the plan, and for the search
        hub.switches.instead[kind] = chain([None] * before, repeat(answer))  # type: ignore[index]
        plan = prepare(client_of(hub, seconds=0.3), PullRequest(FAMILY), tmp_path)
        asked = [one.path for one in hub.seen(kind)][before:]  # type: ignore[arg-type]
        assert (len(asked), len(set(asked))) == (tries, 1)
    assert (plan.offer.kind, plan.drafter) == ("none", None)
    assert words in plan.offer.detail
    assert plan.fit is not None


def test_a_gguf_target_is_compared_by_the_tokenizer_in_its_header(tmp_path: Path):
    from tests.support.gguf_files import save_pair

    file, _ = save_pair(tmp_path / "large", num_hidden_layers=12, intermediate_size=512)
    _, folder = save_pair(tmp_path / "small", num_hidden_layers=1)
    small = FakeRepository.from_folder("org/Guide-draft", folder)
    other = {**small.files, "tokenizer.json": GUIDE / "draft" / "tokenizer.json"}
    with FakeHub(FakeRepository("org/Guide-GGUF", {"m-F32.gguf": file}), small) as hub:
        plan = plan_of(hub, tmp_path / "scratch", "org/Guide-GGUF")
        hub.push(FakeRepository(small.name, other))
        none = plan_of(hub, tmp_path / "scratch", "org/Guide-GGUF")
    assert (plan.offer.kind, plan.offer.name) == ("model", "org/Guide-draft")
    assert (none.offer.kind, none.drafter) == ("none", None)


@pytest.mark.parametrize("smallest", ["m.imatrix.gguf", "broken-Q2_K.gguf"])
def test_a_gguf_file_that_is_no_model_hides_no_other(smallest: str, tmp_path: Path):
    """Quantisers publish what they measured, too; and a file may be broken."""
    from tests.support.gguf_files import save_pair

    files: dict[str, bytes | Path] = {
        "m-Q4_0.gguf": save_pair(tmp_path / "first")[0],
        "m-Q4_1.gguf": save_pair(tmp_path / "second", num_hidden_layers=4)[0],
        smallest: b"GGUF" + bytes(60),
    }
    with FakeHub(FakeRepository("org/m-GGUF", files), FakeRepository("org/none-GGUF", NO_MODELS)) as hub:
        plan = plan_of(hub, tmp_path / "scratch", "org/m-GGUF")
        none = plan_of(hub, tmp_path / "scratch", "org/none-GGUF")
    listed = [one.name for one in plan.variants]
    assert listed == (["Q4_0", "Q4_1"] if "imatrix" in smallest else ["Q2_K", "Q4_0", "Q4_1"])
    assert {one.word for one in plan.variants} == {"fits"}
    assert [(one.name, one.word, one.num_bytes) for one in none.variants] == [("Q2_K", "", 64), ("Q3_K", "", 74)]
    assert next_words("org/none-GGUF", none).endswith("Choose one: localspec pull org/none-GGUF:Q2_K")


def test_behind_a_closed_gate_no_drafter_is_looked_for(tmp_path: Path):
    """There are no tokens to compare with."""
    with FakeHub(guide(FAMILY, gated="manual"), guide_draft("org/Guide-first"), account=Account()) as hub:
        plan = plan_of(hub, tmp_path, FAMILY)
        assert not hub.seen("search")
    assert (plan.offer.kind, plan.fit) == ("none", None)
    assert "its tokens cannot be read yet" in plan.offer.detail


def test_a_named_drafter_that_speaks_other_tokens_is_refused(tmp_path: Path):
    with (
        FakeHub(guide(), other_tokens("org/other")) as hub,
        pytest.raises(IncompatiblePair, match="org/other"),
    ):
        plan_of(hub, tmp_path, "org/guide", draft="org/other")


def test_a_model_is_not_its_own_drafter(tmp_path: Path):
    """By whatever name, and in another repository; it would be loaded twice, and draft as slowly as it answers."""
    same = "cannot draft for org/guide: it is the same model"
    with FakeHub(guide(), guide("org/copy")) as hub:
        for name in ("org/guide", "ORG/Guide", "org/guide@main", "org/copy"):
            with pytest.raises(IncompatiblePair, match=same) as fault:
                plan_of(hub, tmp_path, "org/guide", draft=name)
            assert "--draft none" in fault.value.hint


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


def test_a_pair_that_is_on_this_machine_is_chatted_with_meanwhile(tmp_path: Path):
    """A pair of which a file is missing is still to be fetched."""
    repositories = guide(LAYERSKIP, gated="manual"), guide(PAIR[0]), guide_draft(PAIR[1])
    with FakeHub(*repositories) as hub:
        for name, repository in zip(PAIR, repositories[1:], strict=True):
            plan = plan_of(hub, tmp_path, name, draft="none")
            for file in plan.target.files:
                blob = blobs.blob(name, file)
                blob.parent.mkdir(parents=True, exist_ok=True)
                blob.write_bytes(Path(repository.files[file.path]).read_bytes())
                link = blobs.snapshot_dir(name, plan.target.commit) / file.path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(blob)
            (main := blobs.reference(name, "main")).parent.mkdir()
            main.write_text(plan.target.commit)
        lines = [meanwhile_line(plan_of(hub, tmp_path, LAYERSKIP))]
        link.unlink()
        lines.append(meanwhile_line(plan_of(hub, tmp_path, LAYERSKIP)))
    assert lines == [
        f"Meanwhile, on this machine: localspec chat {PAIR[0]} (fits)",
        f"Meanwhile, without a gate: localspec pull {PAIR[0]} --draft {PAIR[1]} (fits)",
    ]


def meanwhile_line(plan: PullPlan) -> str:
    return gate_lines(plan.target.repo, plan.target.access, plan.meanwhile)[2]


def test_a_hub_that_goes_silent_behind_a_gate_keeps_its_screen(tmp_path: Path):
    """The account is not known then, and nothing is suggested; the silent hub is asked once, not for each pair."""
    account = Account(pending=frozenset({LAYERSKIP}))
    with FakeHub(guide(LAYERSKIP, gated="manual"), account=account) as hub:
        hub.switches.instead["info"] = chain([None], repeat(HANG))
        hub.always("whoami", HANG)
        plan = prepare(client_of(hub, seconds=0.3), PullRequest(LAYERSKIP), tmp_path)
        assert len(hub.seen("info")) == 2
    assert (plan.target.access.gate, plan.target.access.account, plan.meanwhile) == ("awaiting", "", None)
    assert gate_lines(LAYERSKIP, plan.target.access)[0].startswith("Awaiting review")


class Claiming(FakeRepository):
    """A repository of which the hub says that it has so many parameters."""

    claimed = 0

    @cached_property
    def parameters(self) -> dict[str, int]:
        return {"BF16": self.claimed}


def claiming(repository: FakeRepository, parameters: int) -> FakeRepository:
    made = Claiming(repository.name, repository.files)
    object.__setattr__(made, "claimed", parameters)
    return made


def test_a_small_machine_hears_of_the_largest_pair_that_fits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In whatever order the catalogue has them: with 3 GB free one of its last; headers of the larger are not read."""
    tables = [one for one in Catalog.load().models.values() if one.repo and one.draft and not one.gated]
    repos = [one.repo for one in tables if one.repo]
    sizes = dict.fromkeys(repos, 30 * 10**9) | {"EleutherAI/pythia-1.4b-deduped": 14 * 10**8}
    sizes["HuggingFaceTB/SmolLM2-1.7B-Instruct"] = 17 * 10**8
    drafters = {one.draft.model for one in tables if one.draft and one.draft.model}
    assert repos.index("HuggingFaceTB/SmolLM2-1.7B-Instruct") > 6
    pairs = [*(claiming(guide(repo), size) for repo, size in sizes.items()), *map(guide_draft, drafters)]
    for module in ("hub.alternatives", "loading.fit"):
        monkeypatch.setattr(f"localspec.{module}.available_bytes", lambda: 3 * 10**9)
    with FakeHub(guide(LAYERSKIP, gated="manual"), *pairs) as hub:
        plan = plan_of(hub, tmp_path, LAYERSKIP)
        read = {one.path.split("/resolve/")[0].strip("/") for one in hub.seen("resolve")}
    assert plan.meanwhile is not None
    assert plan.meanwhile.target == "HuggingFaceTB/SmolLM2-1.7B-Instruct"
    assert read == {plan.meanwhile.target, plan.meanwhile.drafter}


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
    "no number of layers": (small_model(config={"num_hidden_layers": "two"}), "num_hidden_layers"),
    "no JSON": (small_model(**{"config.json": b"{"}), "config.json"),
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
    assert "Download the model again" not in plan.unloadable
    assert (plan.fit, plan.offer.kind) == (None, "none")


def other_tensors(change: Callable[[dict[str, Any]], object]) -> FakeRepository:
    """The guide's draft model with other tensors."""
    from safetensors.torch import load, save

    tensors = load((GUIDE / "draft" / "model.safetensors").read_bytes())
    change(tensors)
    return FakeRepository("org/bad", {**guide_draft().files, "model.safetensors": save(tensors)})


def without_bodies(tensors: dict[str, Any]) -> None:
    for name in list(tensors):
        tensors[name.removeprefix("model.")] = tensors.pop(name)


UP, NORM = "model.layers.3.mlp.up_proj.weight", "model.norm.weight"
OTHER_TENSORS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "one is missing": (lambda found: found.pop(UP), f"The checkpoint has no tensor '{UP}'."),
    "one is too short": (
        lambda found: found.update({NORM: found[NORM][:64]}),
        f"The checkpoint's '{NORM}' is (64,), and its config says (128,).",
    ),
    "one is too many": (
        lambda found: found.update({f"{UP}.lora": found[NORM] + 1}),
        f"The checkpoint has a tensor that its config does not explain: '{UP}.lora'.",
    ),
    "a layer is missing": (
        lambda found: [found.pop(name) for name in list(found) if ".layers.3." in name],
        "The config says num_hidden_layers = 4, and the checkpoint has 3.",
    ),
    "it makes embeddings": (without_bodies, "This is an embedding model and writes no text"),
}


@pytest.mark.parametrize("what", OTHER_TENSORS)
def test_tensors_that_are_not_the_configurations_are_said_before_a_download(what: str, tmp_path: Path):
    """Gigabytes came, and the loader said to download them again; which is what it says now of a folder."""
    change, sentence = OTHER_TENSORS[what]
    with FakeHub(bad := other_tensors(change)) as hub:
        plan = plan_of(hub, tmp_path / "scratch", "org/bad")
        assert hub.weight_bytes <= 100_000, "headers"
    assert plan.unloadable.startswith(sentence)
    assert plan.unloadable.endswith("Choose another copy of the model.")
    assert "ownload" not in plan.unloadable
    (folder := tmp_path / "bad").mkdir()
    for path, content in bad.files.items():
        (folder / path).write_bytes(content.read_bytes() if isinstance(content, Path) else content)
    with pytest.raises(CheckpointError) as refused:
        load(str(folder))
    assert refused.value.message.startswith(sentence)


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
