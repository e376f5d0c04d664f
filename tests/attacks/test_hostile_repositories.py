"""What a stranger who publishes a repository may do before anything of it is downloaded: to paths, terminals, the
token, the disk and memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.core.errors import AccessDenied, LocalspecError, PullError
from localspec.hub.gates import gate_lines
from localspec.hub.plan import prepare
from localspec.hub.records import PullPlan, PullRequest
from localspec.models import hub_cache
from tests.support.fake_hub import Account, Answer, FakeHub, FakeRepository, refused
from tests.support.hub_clients import client_of, guide, library_online, small_model

pytestmark = pytest.mark.heavy

DRIVES = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"  # a title, a cleared screen, a turned line
GATED = "org/gated"


@pytest.fixture(autouse=True)
def online() -> Iterator[None]:
    with library_online():
        yield


def plan_of(hub: FakeHub, scratch: Path, repo: str, **asked: str) -> PullPlan:
    return prepare(client_of(hub), PullRequest(repo, **asked), scratch)


def is_safe(text: str) -> bool:
    return not any(ord(sign) < 32 or 0x7F <= ord(sign) < 0xA0 or sign == "\u202e" for sign in text)


def written(folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*") if file.is_file()}


PATHS = (
    "../evil.json",
    "/tmp/evil.json",
    "a\\..\\evil.json",
    "sub/../../evil.json",
    f"evil{DRIVES}.json",
    "evil\n.json",
)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_leads_elsewhere_refuses_the_repository(tmp_path: Path, path: str):
    """Check 10: nothing of it is fetched, and nothing written."""
    bad = replace(guide("org/bad"), files={**guide().files, path: b"x"})
    with FakeHub(bad) as hub:
        with pytest.raises(PullError, match="not a name inside its folder") as raised:
            plan_of(hub, tmp_path / "scratch", "org/bad")
        assert [one.kind for one in hub.log] == ["info"]
    assert is_safe(str(raised.value))
    assert written(tmp_path) == set()


@pytest.mark.parametrize("name", ["../evil.safetensors", "/evil.safetensors", f"evil{DRIVES}.safetensors"])
def test_an_index_that_names_another_folder_is_refused(tmp_path: Path, name: str):
    """Check 10: before a weight byte, and nothing is written outside of the repository's own folder."""
    index = json.dumps({"weight_map": {"w": name}}).encode()
    files = small_model(**{"model.safetensors": None, "model.safetensors.index.json": index})
    with FakeHub(FakeRepository("org/bad", files)) as hub:
        with pytest.raises(LocalspecError, match="not a file of this folder") as raised:
            plan_of(hub, tmp_path / "scratch", "org/bad")
        assert hub.weight_bytes == 0
    assert is_safe(str(raised.value))
    assert written(tmp_path) <= {"model.safetensors.index.json"}
    assert all(file.is_relative_to(tmp_path / "scratch" / "org--bad") for file in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("sha", ["../../evil", f"{DRIVES}", "A" * 64, "", "main"])
def test_a_commit_that_is_none_names_no_folder(tmp_path: Path, sha: str):
    with FakeHub(guide()) as hub:
        hub.instead("info", Answer(200, {}, json.dumps({"id": "org/guide", "sha": sha}).encode()))
        with pytest.raises(PullError, match="gave no commit"):
            plan_of(hub, tmp_path / "scratch", "org/guide")
    assert written(tmp_path) == set()


def test_a_hash_that_is_a_path_looks_nowhere(tmp_path: Path):
    """What is here already is looked up by the hub's hashes."""
    (tmp_path / "secret").write_bytes(bytes(10))
    up = "../" * 12 + str(tmp_path / "secret")[1:]
    with FakeHub(pushed := guide()) as hub:
        facts: dict[str, Any] = {"id": "org/guide", "sha": pushed.commit}
        facts["siblings"] = [{**file.sibling, "blobId": up} for file in pushed.tree.values()]
        hub.instead("info", Answer(200, {}, json.dumps(facts).encode()))
        with pytest.raises(LocalspecError):
            plan_of(hub, tmp_path / "scratch", "org/guide")
    assert not hub_cache.folder().exists()


def test_words_of_the_hub_cannot_drive_a_terminal(tmp_path: Path):
    """Licence, card, account, page: all that a screen shows of a repository is made safe where it is read."""
    bad = guide(GATED, gated="manual", licence=f"fair{DRIVES}", licence_name=DRIVES, licence_link=f"https://x{DRIVES}")
    with FakeHub(bad, account=Account(name=f"ana{DRIVES}")) as hub:
        plan = plan_of(hub, tmp_path, GATED)
    shown = [plan.target.licence.words, plan.target.licence.link, plan.target.access.account, plan.offer.detail]
    assert all(map(is_safe, (*shown, *gate_lines(GATED, plan.target.access))))


def test_fields_of_a_config_cannot_drive_a_terminal(tmp_path: Path):
    bad = small_model(
        config={"model_type": f"vampire{DRIVES}", "architectures": [f"x{DRIVES}ForSequenceClassification"]}
    )
    with FakeHub(FakeRepository("org/bad", bad)) as hub:
        plan = plan_of(hub, tmp_path, "org/bad")
    assert plan.unloadable
    assert is_safe(plan.unloadable + plan.target.model_type)


def test_a_refusal_with_line_breaks_in_its_header_is_one_line(tmp_path: Path):
    """CRLF in X-Error-Message ends the header on the wire, and what follows is not believed to be ours."""
    with FakeHub(guide(GATED, gated="manual"), account=Account()) as hub:
        hub.instead("auth-check", refused(403, f"no{chr(13)}{chr(10)}X-Error-Code: GatedRepo"))
        plan = plan_of(hub, tmp_path, GATED)
    assert not plan.target.access.may_read
    assert all(map(is_safe, gate_lines(GATED, plan.target.access)))


def test_an_error_with_a_body_that_is_no_object_is_a_sentence(tmp_path: Path):
    """The library itself stumbles over some of these."""
    for body in (b"[1]", b'"x"', b"\xff", b'{"errors": 7}'):
        with FakeHub(guide()) as hub:
            hub.instead("info", Answer(403, {"Content-Type": "application/json"}, body))
            with pytest.raises((AccessDenied, PullError)) as raised:
                plan_of(hub, tmp_path, "org/guide")
        assert is_safe(str(raised.value))


def test_a_template_is_no_program_before_a_chat(tmp_path: Path):
    """It is kept as text; its length is bounded."""
    files = {**guide().files, "chat_template.jinja": b"{{ ''.__class__.__mro__ }}" + b" " * (1 << 20)}
    with FakeHub(FakeRepository("org/bad", files)) as hub:
        plan = plan_of(hub, tmp_path, "org/bad")
    assert "chat_template.jinja is too large" in plan.unloadable


def test_a_file_that_claims_more_than_a_disk_holds_takes_none_of_it(tmp_path: Path):
    """Files are sparse; what is needed is said before a byte of them."""
    with FakeHub(pushed := guide()) as hub:
        for size in (1 << 43, 1 << 62):
            siblings = [
                {**file.sibling, "lfs": {**file.sibling["lfs"], "size": size}} if file.is_lfs else file.sibling
                for file in pushed.tree.values()
            ]
            facts = {"id": "org/guide", "sha": pushed.commit, "siblings": siblings}
            hub.instead("info", Answer(200, {}, json.dumps(facts).encode()))
            try:
                plan = plan_of(hub, tmp_path / str(size), "org/guide")
            except LocalspecError:
                continue
            assert plan.unloadable
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*") if file.is_file()) < 4 << 20
