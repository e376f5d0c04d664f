"""The library, unpatched and in a child process, takes the fake hub for the real one.

A child costs half a second before its first request, so each asks all that belongs together and prints what it got.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_hub import Account, Answer, Cut, FakeHub, FakeRepository, Flip
from tests.support.fake_hub.weights import safetensors
from tests.support.xet_storage import stored_by_xet

pytestmark = pytest.mark.heavy

MEBI = 1 << 20
SMALL = {"config.json": b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}', "deep/er/x.txt": b"x"}
ASKS = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from huggingface_hub import HfApi, hf_hub_download, scan_cache_dir, snapshot_download
GIVEN = json.loads(sys.argv[1])

def outcome(call, *args, **named):
    try:
        return call(*args, **named)
    except Exception as fault:
        return [type(fault).__name__, getattr(fault, "server_message", None)]
"""


WEIGHTS = safetensors(w=("BF16", 500, 256), n=("F32", 256))
BIG = safetensors(w=("BF16", 22, MEBI // 2))
MODEL = FakeRepository("org/model", {**SMALL, "model.safetensors": WEIGHTS}, licence="mit", downloads=5)
GATED = replace(MODEL, name="org/gated", gated="manual", licence="fair")
ANA = Account()


def ask(script: str, hub: FakeHub, home: Path, given: object = None) -> Any:
    """What a child prints that runs the script against the hub; without a warning."""
    environment = hub.environment(home) | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, "-c", ASKS + script, json.dumps(given)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""
    return json.loads(child.stdout)


DOWNLOADS = """
from huggingface_hub import constants
folder = snapshot_download("org/model")
cache, shown = scan_cache_dir(), io.StringIO()
(repository,) = cache.repos
got = {
    "files": {os.path.relpath(os.path.join(at, file), folder): os.path.getsize(os.path.join(at, file))
              for at, _, files in os.walk(folder) for file in files},
    "commit": os.path.basename(folder), "warnings": len(cache.warnings), "repository": repository.repo_id,
    "refs": sorted(one.commit_hash for one in repository.refs.values()),
    "again": snapshot_download("org/model", local_files_only=True) == folder,
    "one": os.path.getsize(hf_hub_download("org/model", "config.json")),
    "old": os.path.basename(snapshot_download("org/model", revision=GIVEN, allow_patterns="config.json")),
}
constants.HF_HUB_OFFLINE = True  # the command asks the hub which agent runs it, telemetry or not
from huggingface_hub.cli.hf import main
sys.argv = ["hf", "cache", "ls"]
with redirect_stdout(shown), redirect_stderr(io.StringIO()), suppress(SystemExit):
    main()
print(json.dumps(got | {"ls": shown.getvalue()}))
"""


def test_the_library_downloads_a_snapshot_and_lists_it_without_a_warning(tmp_path: Path):
    """The token goes to the hub and never to the CDN; nothing else is asked."""
    old = replace(MODEL, files=SMALL)
    with FakeHub(old, MODEL, account=ANA) as hub:
        got = ask(DOWNLOADS, hub, tmp_path, old.commit)
        log = hub.log
    assert got["files"] == {path: len(content) for path, content in MODEL.files.items()}  # type: ignore[arg-type]
    assert (got["commit"], got["old"]) == (MODEL.commit, old.commit)
    assert got["commit"] != got["old"]
    assert (got["warnings"], got["repository"], got["refs"]) == (0, "org/model", [MODEL.commit])
    assert "model/org/model" in got["ls"]
    assert got["again"]
    assert got["one"] == len(MODEL.files["config.json"])  # type: ignore[arg-type]
    assert {one.kind for one in log} == {"info", "tree", "resolve", "cdn"}
    assert all(one.has_authorization == (one.server == "hub") for one in log)
    assert not any(ANA.token in str(one.headers) for one in log if one.server == "cdn")


def test_the_library_downloads_by_xet_what_the_hub_offers_so(tmp_path: Path):
    """Unasked, and with no byte from the CDN; the storage is a folder, as hf_xet itself keeps one."""
    with FakeHub(MODEL, account=ANA) as hub:
        stored = stored_by_xet(hub, MODEL, tmp_path)
        script = "print(json.dumps(hf_hub_download('org/model', 'model.safetensors')))"
        file = Path(ask(script, hub, tmp_path / "home"))
        assert {one.kind for one in hub.log} == {"resolve", "xet-read-token"}
    assert file.read_bytes() == WEIGHTS
    assert stored.commit == MODEL.commit


FACTS = """
api = HfApi()
info = api.model_info("org/model", files_metadata=True, securityStatus=True)
old = outcome(lambda: api.model_info("org/model", revision="v1").sha)
brief = api.model_info("org/model", expand=["safetensors", "gated"])
def names(**query):
    return [one.id for one in api.list_models(**query)]
print(json.dumps({
    "info": [info.sha, info.gated, info.private, info.disabled, info.card_data.license, info.safetensors.parameters],
    "siblings": [[one.rfilename, one.size, one.lfs and one.lfs.sha256] for one in info.siblings],
    "security": info.security_repo_status, "tags": info.tags, "config": info.config, "v1": old,
    "brief": [brief.safetensors.total, brief.gated, brief.sha, brief.siblings],
    "tree": [[type(one).__name__, one.path] for one in api.list_repo_tree("org/model", recursive=True)],
    "flat": [one.path for one in api.list_repo_tree("org/model")],
    "below": [one.path for one in api.list_repo_tree("org/model", "deep", recursive=True)],
    "all": names(), "search": names(search="GATED"), "author": names(author="other"), "gated": names(gated=True),
    "open": names(gated=False, sort="downloads"), "filter": names(filter=["license:mit", "safetensors"]),
    "many": names(num_parameters="min:100K,max:1M"), "few": names(num_parameters="max:1K"), "two": names(limit=2),
    "rows": [one.safetensors and one.safetensors.total for one in api.list_models(expand=["safetensors"], limit=1)],
    "auth": outcome(api.auth_check, "org/model"), "name": api.whoami()["name"],
    "header": sorted(api.get_safetensors_metadata("org/model").parameter_count.items()),
    "missing": [
        outcome(api.model_info, "org/none")[0], outcome(api.model_info, "org/hidden")[0],
        outcome(api.model_info, "org/model", revision=info.sha[:7])[0],
        outcome(hf_hub_download, "org/model", "none.json")[0],
        outcome(api.model_info, "org/taken-down")[0], outcome(HfApi(token="hf_other").whoami)[0],
        outcome(HfApi(token=False).model_info, "org/none")[0],
    ],
}))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the library reads of six repositories."""
    more = [FakeRepository(f"other/m{number}", SMALL, downloads=10 + number) for number in range(2)]
    hidden = [replace(MODEL, name="org/hidden", private=True), replace(MODEL, name="org/taken-down", disabled=True)]
    with FakeHub(GATED, *more, *hidden, account=ANA) as hub:
        hub.push(replace(MODEL, files=SMALL), "v1")
        hub.push(MODEL)
        hub.switches.search_page = 2
        return ask(FACTS, hub, tmp_path_factory.mktemp("home"))


def test_the_library_reads_what_the_hub_knows_about_a_repository(facts: Any):
    assert facts["info"] == [MODEL.commit, False, False, False, "mit", {"BF16": 128_000, "F32": 256}]
    assert facts["siblings"] == [
        [path, len(content), MODEL.tree[path].sha256 if path == "model.safetensors" else None]
        for path, content in sorted({**SMALL, "model.safetensors": WEIGHTS}.items())
    ]
    assert facts["security"] == {"scansDone": True, "filesWithIssues": []}
    assert {"safetensors", "license:mit", "transformers"} <= {*facts["tags"]}
    assert facts["config"] == {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert facts["v1"] == replace(MODEL, files=SMALL).commit
    assert facts["brief"] == [128_256, False, None, None]
    assert facts["header"] == [["BF16", 128_000], ["F32", 256]]


def test_the_library_walks_the_tree(facts: Any):
    assert facts["tree"] == [
        ["RepoFile", "config.json"],
        ["RepoFolder", "deep"],
        ["RepoFolder", "deep/er"],
        ["RepoFile", "deep/er/x.txt"],
        ["RepoFile", "model.safetensors"],
    ]
    assert facts["flat"] == ["config.json", "deep", "model.safetensors"]
    assert facts["below"] == ["deep/er", "deep/er/x.txt"]


def test_the_library_searches_over_pages(facts: Any):
    assert sorted(facts["all"]) == ["org/gated", "org/model", "org/taken-down", "other/m0", "other/m1"]
    assert facts["search"] == facts["gated"] == ["org/gated"]
    assert sorted(facts["author"]) == ["other/m0", "other/m1"]
    assert facts["open"] == ["other/m1", "other/m0", "org/taken-down", "org/model"]
    assert sorted(facts["filter"]) == ["org/model", "org/taken-down"]
    assert sorted(facts["many"]) == ["org/gated", "org/model", "org/taken-down"]
    assert facts["few"] == []
    assert len(facts["two"]) == 2
    assert facts["rows"] == [128_256]


def test_the_library_is_let_in_and_names_what_is_missing(facts: Any):
    assert (facts["auth"], facts["name"]) == (None, "ana")
    assert facts["missing"] == [
        "RepositoryNotFoundError",
        "RepositoryNotFoundError",
        "RevisionNotFoundError",
        "RemoteEntryNotFoundError",
        "DisabledRepoError",
        "HfHubHTTPError",
        "RepositoryNotFoundError",
    ]


GATES = """
print(json.dumps([
    [outcome(call) for call in (
        lambda: api.auth_check("org/gated"),
        lambda: hf_hub_download("org/gated", "config.json", endpoint=endpoint, token=token or False, cache_dir=cache),
        lambda: api.model_info("org/gated").gated,
    )]
    for cache, endpoint, token in GIVEN for api in [HfApi(endpoint=endpoint, token=token or False)]
]))
"""


def test_a_gate_is_open_or_shut_in_four_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a gated repository is can be read without access, as on the hub."""
    monkeypatch.chdir(tmp_path)
    may_read = Account(may_read=frozenset({"org/gated"}))
    accounts = [None, ANA, replace(ANA, pending=may_read.may_read), replace(may_read, reads_gated=False), may_read]
    with ExitStack() as stack:
        hubs = [stack.enter_context(FakeHub(GATED, account=account)) for account in accounts]
        given = [(str(number), hub.endpoint, hub.account and hub.account.token) for number, hub in enumerate(hubs)]
        answers = ask(GATES, hubs[0], tmp_path, given)
    texts = ("must have access to it and be authenticated", "not in the authorized list", "awaiting a review")
    for (auth, file, gated), text in zip(answers[:3], texts, strict=True):
        assert auth[0] == file[0] == "GatedRepoError"
        assert text in auth[1]
        assert gated == "manual"
    (auth, file, _), opened = answers[3:]
    assert auth[0] == "HfHubHTTPError"
    assert "fine-grained" in auth[1]
    assert opened[0] is None
    assert Path(opened[1]).name == "config.json"


LINES = """
import hashlib, logging, time
time.sleep = lambda _: None
logging.disable()
def fetched(name, endpoint):
    file = hf_hub_download("org/big", "model.safetensors", endpoint=endpoint, cache_dir=name)
    with open(file, "rb") as opened:
        return hashlib.sha256(opened.read()).hexdigest()
print(json.dumps({name: outcome(fetched, name, endpoint) for name, endpoint in GIVEN.items()}))
"""


def test_what_the_library_makes_of_each_broken_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cut line is resumed where the last whole piece of 10 MiB ended; a flipped byte is taken for right."""
    monkeypatch.chdir(tmp_path)
    names = ("cut", "flip", "no range", "short", "long", "gone", "busy", "down", "elsewhere", "full")
    big = FakeRepository("org/big", {"model.safetensors": BIG})
    with ExitStack() as stack:
        hubs = {name: stack.enter_context(FakeHub(big)) for name in names}
        hubs["cut"].switches.cut = Cut(15 * MEBI)
        hubs["flip"].switches.flip = Flip(-1)
        hubs["no range"].switches.cut, hubs["no range"].switches.ignore_range = Cut(15 * MEBI), True
        hubs["short"].switches.length_off_by = -1
        hubs["long"].switches.length_off_by = 1
        hubs["gone"].switches.signature_uses = 0
        hubs["busy"].instead("cdn", Answer(429, {"Retry-After": "0"}), times=2)
        hubs["down"].always("resolve", Answer(503))
        hubs["elsewhere"].switches.location = lambda address: address.replace("http:", "gopher:")
        hubs["full"].instead("cdn", Answer(416))
        got = ask(LINES, hubs["cut"], tmp_path, {name: hub.endpoint for name, hub in hubs.items()})
    ranges = {name: [one.range for one in hub.seen("cdn")] for name, hub in hubs.items()}
    sent = {name: hub.weight_bytes for name, hub in hubs.items()}
    right = big.tree["model.safetensors"].sha256
    assert got["cut"] == got["no range"] == got["busy"] == right
    assert ranges["cut"] == ranges["no range"] == ["", f"bytes={10 * MEBI}-"]
    assert sent["cut"] == 15 * MEBI + len(BIG) - 10 * MEBI
    assert sent["no range"] == 15 * MEBI + len(BIG)
    assert len(got["flip"]) == 64
    assert got["flip"] != right
    assert {name: got[name][0] for name in names if isinstance(got[name], list)} == {
        "short": "OSError",
        "long": "RemoteProtocolError",
        "gone": "HfHubHTTPError",
        "down": "LocalEntryNotFoundError",
        "elsewhere": "UnsupportedProtocol",
        "full": "HfHubHTTPError",
    }
