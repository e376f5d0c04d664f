"""ls, show, rm, verify-files, fit and pair: what they print of models that are here, and of what the hub answers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import HubAway
from localspec.core.locks import lock
from localspec.core.sizes import size_words
from localspec.history.text.columns import hanging
from localspec.hub import blobs, manifests, pulls
from localspec.hub.licences import remember
from localspec.hub.older import older_of
from localspec.hub.records import (
    AskDelete,
    AskFit,
    AskPair,
    AskPull,
    Deleted,
    DeletePlan,
    FitFound,
    FitRequest,
    Go,
    Licence,
    ModelFiles,
    PairFound,
    PairRequest,
    Progress,
    PullPlan,
    PullRequest,
    RemoteFile,
)
from localspec.loading.packed_files import named_after
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.runtime import load_marks
from localspec.runtime.pairs import DrafterCandidate, PairVerdict
from tests.conftest import Program
from tests.support.models import save_snapshot
from tests.support.scripted_hub import GB, ScriptedHub, a_fit, a_plan, a_repository, gated
from tests.support.tokenizers import CHATML, byte_level, llama2_like, wordpiece_like

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
COMMIT = "0123456789abcdef" * 2 + "01234567"
CARD = "---\nlicense: cc-by-nc-4.0\nlicense_link: https://x.y\n---\n# A model\n"
GUIDE = paths.packaged("assets/guide")


@pytest.fixture
def fetched() -> Path:
    """A model as huggingface_hub leaves it in its cache."""
    kept = hub_cache.kept("maker/tiny")
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    folder = kept / "snapshots" / COMMIT
    save_snapshot(folder, byte_level(*SPECIALS), template=CHATML, eos="<|im_end|>", hidden_size=64)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.mark.usefixtures("fetched")
def test_ls_lists_what_is_here_with_licence_drafter_and_fit(localspec: Program):
    code, out, err = localspec("ls")
    assert (code, err) == (0, "")
    head, guide, tiny = out.splitlines()
    assert head.split() == ["NAME", "FORMAT", "SIZE", "FIT", "DRAFTER", "LICENCE", "LAST", "USED"]
    assert re.match(r"guide +bf16 +16 MB +fits +layers 1–2 +apache-2\.0 +–", guide)
    assert re.match(r"maker/tiny +fp32 .* fits +look-up +cc-by-nc-4\.0, non-commercial +–", tiny)


@pytest.mark.usefixtures("fetched")
def test_show_names_the_layer_of_an_early_exit_its_k_and_where_that_was_read(localspec: Program):
    paths.models_file().parent.mkdir(parents=True)
    draft = "kind = 'early-exit'\nexit_layer = 1\nk = 6\nsource = 'a paper'"
    paths.models_file().write_text(
        f"schema_version = 1\n[models.tiny]\nrepo = 'maker/tiny'\n[models.tiny.draft]\n{draft}\n"
    )
    for name in ("tiny", "maker/tiny"):
        assert re.search(r"^early exit +after layer 1, k 6 \(a paper\)$", localspec("show", name)[1], re.MULTILINE)
    assert json.loads(localspec("show", "tiny", "--json")[1])["early_exit"]["source"] == "a paper"


def test_show_knows_the_licence_of_the_built_in_model_and_of_what_was_pulled(fetched: Path, localspec: Program):
    assert re.search(r"^licence +apache-2\.0$", localspec("show", "guide")[1], re.MULTILINE)
    (fetched / "README.md").unlink()
    assert re.search(r"^licence +not named$", localspec("show", "maker/tiny")[1], re.MULTILINE)
    remember("maker/tiny", Licence("mit"))
    assert re.search(r"^licence +mit$", localspec("show", "maker/tiny")[1], re.MULTILINE)
    assert re.search(r"^maker/tiny .* mit +–$", localspec("ls")[1], re.MULTILINE)


@pytest.mark.usefixtures("fetched")
def test_ls_as_json_is_what_python_gives(localspec: Program):
    import msgspec

    import localspec as package

    code, out, _ = localspec("ls", "--json")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(out) == json.loads(msgspec.json.encode(package.list_models()))
    assert [model["name"] for model in json.loads(out)] == ["guide", "maker/tiny"]
    assert json.loads(out)[1]["commit"] == COMMIT


def test_ls_counts_the_versions_that_it_does_not_list_and_rm_frees_them(fetched: Path, localspec: Program):
    """Pulled as REPO@REV: by a tag, or by a commit; not those of main, of a key, or that a newer pull has replaced."""
    kept = fetched.parents[1]
    for commit in "abcd":
        shutil.copytree(fetched, fetched.with_name(commit * 40))
    (kept / "refs" / "v1").write_text("a" * 40)
    manifests.replaced("maker/tiny", "c" * 40)
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(f"schema_version = 1\n[models.mine]\nrepo = 'maker/tiny'\nrevision = '{'d' * 40}'\n")
    size = sum(file.stat().st_size for file in fetched.iterdir())
    line = (
        f"2 versions pulled as ORG/NAME@REV, of maker/tiny, are not listed and take {size_words(2 * size)}. "
        "Delete all versions of a repository: localspec rm maker/tiny"
    )
    assert line in localspec("ls")[1].splitlines()
    assert "not listed" not in localspec("ls", "--unfinished")[1]
    found = {one["name"]: one["unlisted"] for one in json.loads(localspec("ls", "--json")[1])}
    assert found["mine"] == {"repo": "maker/tiny", "commits": ["a" * 40, "b" * 40], "num_bytes": 2 * size}
    assert found["guide"] is None
    for commit in ("a", "b"):
        code, _, err = localspec("rm", f"maker/tiny@{commit * 40}", "--yes")
        assert (code, "Delete the whole repository: localspec rm maker/tiny" in err) == (2, True)
    shutil.rmtree(fetched.with_name("a" * 40))
    assert (
        f"1 version pulled as ORG/NAME@REV, of maker/tiny, is not listed and takes {size_words(size)}."
        in (localspec("ls")[1])
    )
    assert localspec("rm", "maker/tiny", "--yes")[0] == 0
    assert "not listed" not in localspec("ls")[1]


def test_unfinished_downloads_are_listed_behind_the_models(localspec: Program):
    part = hub_cache.kept("maker/large") / "blobs" / ("a" * 64 + ".12345678.incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(2_000_000))
    _, out, _ = localspec("ls")
    assert re.search(r"^maker/large +2 MB +begun by another program$", out, re.MULTILINE)
    _, out, _ = localspec("ls", "--unfinished", "--json")
    assert [one["repo"] for one in json.loads(out)] == ["maker/large"]


def test_show_prints_the_card_of_a_model(fetched: Path, localspec: Program):
    code, out, _ = localspec("show", "maker/tiny")
    assert code == 0
    for line in (
        rf"repository +maker/tiny @ {COMMIT[:7]}",
        rf"path +{re.escape(str(fetched))}",
        r"licence +cc-by-nc-4\.0, non-commercial",
        r"architecture +llama, \d+ layers, context 512, vocabulary [\d,]+",
        r"chat template +its own",
        r"drafters +auto: look-up",
        r" +off: decode plain",
        rf"files +README\.md, {len(CARD)} bytes",
    ):
        assert re.search(rf"^{line}$", out, re.MULTILINE), line
    assert localspec("show", "maker/tiny", "--template")[1] == CHATML
    assert localspec("show", "maker/tiny", "--license")[1] == "cc-by-nc-4.0, non-commercial https://x.y\n"
    (fetched / "LICENSE").write_text("You may.\n")
    assert localspec("show", "maker/tiny", "--license")[1] == "You may.\n"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("fallback_template = 'none'", "its own"),
        ("template = 'none'", '"none", which models.toml names in place of its own'),
    ],
)
@pytest.mark.usefixtures("fetched")
def test_show_says_which_template_is_used(written: str, said: str, localspec: Program):
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(f"schema_version = 1\n[models.mine]\nrepo = 'maker/tiny'\n{written}\n")
    assert re.search(rf"^chat template +{said}$", localspec("show", "mine")[1], re.MULTILINE)


def test_show_says_that_a_newer_version_is_there_than_the_one_that_was_pulled(fetched: Path, localspec: Program):
    older = fetched.with_name("f" * 40)
    fetched.rename(older)
    fetched.mkdir()
    paths.models_file().parent.mkdir(parents=True)
    text = f"schema_version = 1\n[models.mine]\nrepo = 'maker/tiny'\nrevision = '{older.name}'\n"
    paths.models_file().write_text(text)
    _, out, _ = localspec("show", "mine")
    assert f"maker/tiny @ {older.name[:7]}\n" in out
    assert "a newer version is there; models.toml fixes this one" in out


@pytest.mark.parametrize(
    "command",
    [("show", "nobody/x"), ("verify-files", "nobody/x"), ("show", "gide"), ("fit", "gide")],
)
def test_what_is_not_here_ends_with_3_and_the_next_command(command: tuple[str, ...], localspec: Program):
    code, out, err = localspec(*command)
    assert (code, out) == (3, "")
    assert "Fetch it: localspec pull nobody/x" in err or "did you mean 'guide'" in err


@pytest.mark.parametrize(
    "command", [("show", "nobody/x"), ("fit", "nobody/x"), ("pair", "nobody/x"), ("pair", "guide", "nobody/x")]
)
def test_without_a_network_what_is_not_here_is_one_sentence_and_the_next_command(
    command: tuple[str, ...], localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    code, out, err = localspec(*command)
    off = "the network is switched off: unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE."
    said = f"error: 'nobody/x' is not on this machine, and {off} Fetch it: localspec pull nobody/x\n"
    assert (code, out, " ".join(err.split())) == (3, "", said.strip())
    away = HubAway("Hugging Face (huggingface.co) cannot be reached.", hint="Check the connection.")
    asks = (AskPull, AskFit, AskPair)
    ScriptedHub({kind: [[away]] for kind in asks}).install(monkeypatch)
    code, out, err = localspec(*command)
    gone = "Hugging Face (huggingface.co) cannot be reached. Check the connection."
    said = f"error: 'nobody/x' is not on this machine, and {gone}"
    assert (code, out, " ".join(err.split())) == (7, "", said)


def planned(monkeypatch: pytest.MonkeyPatch, plan: PullPlan) -> ScriptedHub:
    """A hub that answers a pull with this plan, and never begins it."""
    progress = Progress(plan.target.repo, "resolving", 0, 0)
    return ScriptedHub({AskPull: [[progress, plan]]}).install(monkeypatch)


def test_show_of_what_is_not_here_is_the_plan_of_its_pull(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    import msgspec

    plan = a_plan()
    hub = planned(monkeypatch, plan)
    code, out, _ = localspec("show", "org/model")
    assert (code, out) == (
        0,
        localspec("pull", "org/model", "--dry-run")[1]
        + "Not on this machine. Fetch the rest: localspec pull org/model\n",
    )
    assert hub.asked == [AskPull(PullRequest("org/model"))] * 2
    code, out, _ = localspec("show", "org/model@v1", "--json")
    assert (code, json.loads(out)) == (0, json.loads(msgspec.json.encode(plan)))
    assert hub.asked[-1] == AskPull(PullRequest("org/model", "v1"))
    assert localspec("show", "qwen3-8b", "--license")[:2] == (0, "apache-2.0\n")
    assert hub.asked[-1] == AskPull(PullRequest("Qwen/Qwen3-8B"))


def test_show_says_what_stands_between_a_user_and_a_model_that_is_not_here(
    localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """A gate, files that could not be loaded, several GGUF files; a template is read only from what is here."""
    planned(monkeypatch, a_plan(gated(a_repository(), "awaiting"), fit=None))
    code, out, _ = localspec("show", "org/model")
    assert (code, "Awaiting review: ana has asked" in out, "--wait" in out) == (4, True, True)
    assert localspec("show", "org/model", "--json")[0] == 4
    planned(monkeypatch, a_plan(unloadable="org/model is a mixture of experts."))
    code, out, _ = localspec("show", "org/model")
    assert (code, out.endswith("\nNot on this machine.\n")) == (1, True)
    assert "cannot load it: org/model is a mixture of experts." in out
    several = (replace(a_fit("Q4_K_M"), num_bytes=GB), replace(a_fit("Q8_0"), num_bytes=2 * GB))
    planned(monkeypatch, a_plan(a_repository(files=()), fit=None, variants=several))
    code, out, _ = localspec("show", "org/model")
    assert (code, out.endswith("\nNot on this machine. Choose one: localspec pull org/model:Q4_K_M\n")) == (0, True)
    hub = planned(monkeypatch, a_plan())
    code, _, err = localspec("show", "org/model", "--template")
    assert (code, "'org/model' is not on this machine. Fetch it: localspec pull org/model" in err) == (3, True)
    assert hub.asked == []


def test_verify_files_of_a_begun_download_says_that_the_rest_is_missing(localspec: Program):
    pulls.begin(a_repository("org/model"), PullRequest("org/model"))
    code, _, err = localspec("verify-files", "org/model")
    said = "'org/model' is not complete on this machine. Fetch the rest: localspec pull org/model"
    assert (code, said in err) == (3, True)
    assert "Fetch it: localspec pull org/other" in localspec("verify-files", "org/other")[2]


@pytest.mark.parametrize("name", ["nobody/x", "qwen3-8b"])
def test_rm_of_what_is_not_here_advises_no_download(name: str, localspec: Program):
    code, _, err = localspec("rm", name, "--yes")
    assert (code, "is not on this machine. List the models on this machine: localspec ls" in err) == (3, True)
    assert "pull" not in err


def deleting(monkeypatch: pytest.MonkeyPatch) -> ScriptedHub:
    plan = DeletePlan(("maker/tiny",), 13 * GB, 2 * GB, GB)
    scripts = {AskDelete: [[plan]], Go: [[Deleted(("maker/tiny",), 13 * GB)]]}
    return ScriptedHub(scripts).install(monkeypatch)


@pytest.mark.usefixtures("fetched")
def test_rm_says_what_it_frees_before_it_asks(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    hub, asked = deleting(monkeypatch), []
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("localspec.cli.questions.answered", lambda question, **_: bool(asked.append(question)))
    code, out, err = localspec("rm", "maker/tiny")
    freed = "Deleting maker/tiny frees 13.0 GB; 2.0 GB of it unfinished; 1.0 GB stay, since other models share them.\n"
    assert (code, out, err, asked) == (130, freed, "Nothing was deleted.\n", ["Delete?"])
    assert localspec("rm", "maker/tiny", "maker/tiny", "--yes")[1] == freed + "Freed 13.0 GB.\n"
    assert hub.asked == [AskDelete(("maker/tiny",)), AskDelete(("maker/tiny",)), Go()]


def replaced(fetched: Path) -> Path:
    """An older version, which a pull has replaced by the one that is there."""
    folder = fetched.with_name("f" * 40)
    save_snapshot(folder, byte_level(*SPECIALS), template=CHATML, eos="<|im_end|>", hidden_size=32)
    manifests.replaced("maker/tiny", folder.name)
    return folder


def test_ls_show_and_rm_say_what_older_versions_take_and_how_it_is_freed(
    fetched: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    size = size_words(sum(file.stat().st_size for file in replaced(fetched).iterdir()))
    line = f"Older versions of maker/tiny take {size}. Free it: localspec rm --older"
    assert localspec("ls")[1].splitlines()[-1] == line
    assert localspec("ls", "--unfinished")[1] == ""
    assert (
        f"older versions  1, {size}. Free it: localspec rm --older maker/tiny\n" in localspec("show", "maker/tiny")[1]
    )
    assert json.loads(localspec("show", "maker/tiny", "--json")[1])["older"]["commits"] == ["f" * 40]
    plan = DeletePlan((), GB, older=("maker/tiny",), older_bytes=GB)
    scripts = {AskDelete: [[plan]], Go: [[Deleted((), GB, ("maker/tiny",))]]}
    hub = ScriptedHub(scripts).install(monkeypatch)
    freed = "Deleting older versions of maker/tiny frees 1.0 GB.\nFreed 1.0 GB.\n"
    assert localspec("rm", "--older", "--yes")[:2] == (0, freed)
    assert localspec("rm", "--older", "maker/tiny", "--yes")[:2] == (0, freed)
    assert hub.asked == [AskDelete((), ("maker/tiny",)), Go()] * 2


def test_older_versions_that_take_nothing_are_not_offered(fetched: Path, localspec: Program):
    """All their files are the newer one's, too; `rm --older` by name still deletes them."""
    blob = hub_cache.kept("maker/tiny") / "blobs" / ("a" * 64)
    blob.parent.mkdir()
    blob.write_bytes(bytes(4000))
    older = fetched.with_name("f" * 40)
    older.mkdir()
    for folder in (fetched, older):
        (folder / "vocab.bin").symlink_to(os.path.relpath(blob, folder))
    manifests.replaced("maker/tiny", older.name)
    assert older_of("maker/tiny").commits == (older.name,)
    assert "lder versions" not in localspec("ls")[1] + localspec("show", "maker/tiny")[1]


@pytest.mark.usefixtures("fetched")
def test_rm_of_older_versions_where_there_are_none_asks_nothing(localspec: Program):
    assert localspec("rm", "--older")[::2] == (0, "There are no older versions.\n")
    assert localspec("rm", "--older", "maker/tiny")[::2] == (0, "There are no older versions of maker/tiny.\n")
    assert localspec("rm", "--yes")[0] == 2


def test_rm_drops_a_download_of_which_no_byte_came(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    """As of a drafter, which is noted when its target's download begins."""
    hub = deleting(monkeypatch)
    pulls.begin(a_repository("org/small"), PullRequest("org/model"))
    assert "org/small" in localspec("ls", "--unfinished")[1]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(pulls, "running", lambda _: True)
        code, _, err = localspec("rm", "org/small", "--yes")
    assert (code, "error: org/small is being downloaded. Stop it: " in err) == (2, True)
    dropped = "Nothing of it is on this machine; the unfinished download of org/small is dropped.\n"
    assert localspec("rm", "org/small", "--yes") == (0, dropped, "")
    assert (pulls.unfinished(), hub.asked) == ([], [])
    assert localspec("rm", "org/small", "--yes")[0] == 3


def gguf_files(commit: str = COMMIT, **files: bytes) -> Path:
    """A GGUF repository as huggingface_hub leaves it: a link to a blob for each file."""
    kept = hub_cache.kept("maker/tiny-GGUF")
    folder = kept / "snapshots" / commit
    for made in (kept / "refs", kept / "blobs", folder):
        made.mkdir(parents=True, exist_ok=True)
    (kept / "refs" / "main").write_text(commit)
    for name, content in {"README.md": b"# A card", **files}.items():
        blob = kept / "blobs" / sha256(content).hexdigest()
        blob.write_bytes(content)
        (folder / name).symlink_to(os.path.relpath(blob, folder))
    return folder


def test_rm_of_one_gguf_file_among_several_deletes_that_file_alone(localspec: Program):
    """In every version, with its prepared weights; the others stay as they are, and so do their keys."""
    older = gguf_files("f" * 40, **{"m-Q4_0.gguf": bytes(4000)})
    split = {f"m-Q8_0-0000{part}-of-00002.gguf": bytes([part]) * 3000 for part in (1, 2)}
    folder = gguf_files(**{"m-Q4_0.gguf": bytes(4000), "m-F16.gguf": b"f" * 5000, "m-F32.gguf": b"f" * 5000}, **split)
    made = [paths.packed_dir() / f"{named_after(folder / name)}-int8-{'0' * 16}.safetensors" for name in split]
    made[0].write_bytes(bytes(7000))
    manifests.write("maker/tiny-GGUF", COMMIT, manifests.Manifest(tuple(sorted({*split, "m-F16.gguf"}))))
    paths.models_file().parent.mkdir(parents=True)
    tables = {"eight": next(iter(split)), "four": "m-Q4_0.gguf"}
    entries = (f"[models.{key}]\nrepo = 'maker/tiny-GGUF'\nfile = '{file}'\n" for key, file in tables.items())
    paths.models_file().write_text("schema_version = 1\n" + "".join(entries))
    mark = load_marks.mark(folder / "m-Q4_0.gguf")
    assert mark is not None
    code, out, err = localspec("rm", "maker/tiny-GGUF:Q8_0", "--yes")
    also = "; 7 kB of it in prepared weights; also removes the key eight from models.toml.\nFreed 13 kB.\n"
    assert (code, out, err) == (0, f"Deleting maker/tiny-GGUF:Q8_0 frees 13 kB{also}", "")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "m-F16.gguf", "m-F32.gguf", "m-Q4_0.gguf"]
    assert not made[0].exists()
    assert manifests.files_of("maker/tiny-GGUF", COMMIT) == ("m-F16.gguf",)
    assert [*Catalog.load().models][-1] == "four"
    code, _, err = localspec("rm", "four", "--yes")
    assert (code, "maker/tiny-GGUF:Q4_0 is loaded by a running localspec." in err) == (2, True)
    mark.close()
    assert localspec("rm", "maker/tiny-GGUF:F16", "--yes")[1].endswith("Freed 0 kB.\n"), "F32 is the same file"
    assert (folder / "m-F32.gguf").read_bytes() == b"f" * 5000
    assert localspec("rm", "four", "--yes")[1].endswith("Freed 4 kB.\n")
    assert [path.name for path in older.iterdir()] == ["README.md"]
    assert Catalog.load().resolve("maker/tiny-GGUF").path == folder / "m-F32.gguf"
    assert localspec("rm", "maker/tiny-GGUF:F32", "--yes")[0] == 0, "the last one is all of it"
    assert not hub_cache.kept("maker/tiny-GGUF").exists()


def test_rm_of_all_gguf_files_is_of_their_repository(localspec: Program):
    gguf_files(**{"m-Q4_0.gguf": bytes(40), "m-Q8_0.gguf": bytes(80), "mmproj-F16.gguf": b"p"})
    assert localspec("rm", "maker/tiny-GGUF:Q4_0", "maker/tiny-GGUF:Q8_0", "--yes")[0] == 0
    assert not hub_cache.kept("maker/tiny-GGUF").exists()


def test_rm_of_a_gguf_file_that_is_not_complete_leaves_the_others(localspec: Program):
    gguf_files(**{"m-Q4_0.gguf": bytes(4000)})
    begun = RemoteFile("m-Q8_0.gguf", 8000, "a" * 64)
    repository = a_repository("maker/tiny-GGUF", files=(begun,))
    pulls.begin(repository, PullRequest("maker/tiny-GGUF", variant="Q8_0"))
    pulls.stop(repository, "interrupted")
    (part := blobs.part("maker/tiny-GGUF", begun)).write_bytes(bytes(3000))
    assert "maker/tiny-GGUF:Q8_0" in localspec("ls", "--unfinished")[1]
    freed = "Deleting maker/tiny-GGUF:Q8_0 frees 3 kB; 3 kB of it unfinished.\nFreed 3 kB.\n"
    assert localspec("rm", "maker/tiny-GGUF:Q8_0", "--yes") == (0, freed, "")
    assert (part.exists(), pulls.unfinished()) == (False, [])
    assert Catalog.load().resolve("maker/tiny-GGUF").path.name == "m-Q4_0.gguf"


@pytest.mark.usefixtures("fetched")
def test_rm_without_a_terminal_needs_a_yes(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    deleting(monkeypatch)
    code, _, err = localspec("rm", "maker/tiny")
    assert (code, "Not a terminal: add --yes to delete" in err) == (2, True)


def test_rm_refuses_a_model_that_is_loaded(fetched: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    hub = deleting(monkeypatch)
    mark = load_marks.mark(fetched)
    assert mark is not None
    code, _, err = localspec("rm", "maker/tiny", "--yes")
    assert (code, "maker/tiny is loaded by a running localspec." in err) == (2, True)
    assert hub.asked == []
    mark.close()
    assert localspec("rm", "maker/tiny", "--yes")[0] == 0


OWN = f"""# mine
schema_version = 1
[models.first]  # one
path = "/x"

# about smol
[models.smol]
repo = "maker/tiny"
revision = "{COMMIT}"  # fixed
[models.smol.draft]
kind = "off"

# about the last
[models.last]
path = "/y"
[models.qwen3-8b]
quant = "int4"
"""
LEFT = """# mine
schema_version = 1
[models.first]  # one
path = "/x"

# about smol

# about the last
[models.last]
path = "/y"
[models.qwen3-8b]
quant = "int4"
"""


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("name", ["smol", "maker/tiny"])
def test_rm_says_that_a_key_goes_with_it_and_removes_it_alone(
    name: str, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    hub = deleting(monkeypatch)
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(OWN)
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert "; also removes the key smol from models.toml.\n" in localspec("rm", name)[1]
    assert paths.models_file().read_text() == OWN
    assert localspec("rm", name, "--yes")[0] == 0
    assert hub.asked[-1] == Go()
    assert paths.models_file().read_text() == LEFT


def test_rm_of_a_key_whose_files_are_gone_removes_the_key(localspec: Program):
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(OWN)
    code, out, _ = localspec("rm", "smol", "--yes")
    assert (code, out) == (0, "Nothing of it is on this machine; also removes the key smol from models.toml.\n")
    assert paths.models_file().read_text() == LEFT
    assert localspec("rm", "first", "--yes")[0] == 2
    assert localspec("rm", "qwen3-8b", "--yes")[0] == 3, "no key of the user's own names a repository"


def test_rm_of_the_only_gguf_file_is_of_the_repository_and_of_one_of_several_is_not(
    localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    kept = hub_cache.kept("maker/tiny")
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    (folder := kept / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "m-Q8_0.gguf").write_text("")
    hub = deleting(monkeypatch)
    assert localspec("rm", "maker/tiny:Q8_0", "--yes")[0] == 0
    (folder / "m-Q4_0.gguf").write_text("")
    assert localspec("rm", "maker/tiny:Q8_0", "hf:maker/tiny/m-Q8_0", "--yes")[0] == 0
    alone = ModelFiles("maker/tiny", "maker/tiny:Q8_0", ("m-Q8_0.gguf",))
    assert hub.asked == [AskDelete(("maker/tiny",)), Go(), AskDelete((), models=(alone,)), Go()]
    localspec("rm", "maker/tiny:Q8_0", "maker/tiny", "--yes")
    assert hub.asked[-2] == AskDelete(("maker/tiny",)), "all of it is more than a part"


@pytest.mark.usefixtures("fetched")
def test_rm_deletes_no_single_revision(localspec: Program):
    code, _, err = localspec("rm", f"maker/tiny@{COMMIT}", "--yes")
    assert (code, "localspec rm maker/tiny" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "why"), [("guide", "comes with localspec"), ("./mine", "is not in the Hugging Face cache")]
)
def test_rm_deletes_nothing_that_localspec_did_not_fetch(
    name: str, why: str, localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    code, _, err = localspec("rm", name, "--yes")
    assert (code, why in err) == (2, True)
    assert (tmp_path / "mine").is_dir()


def test_marks_of_several_processes_are_shared_and_end_with_them(tmp_path: Path):
    first, second = load_marks.mark(tmp_path / "a"), load_marks.mark(tmp_path / "a")
    assert first is not None
    assert second is not None
    assert load_marks.loaded() == [tmp_path / "a"]
    first.close()
    assert load_marks.is_loaded(tmp_path)
    second.close()
    assert load_marks.loaded() == []


def test_a_lock_is_one_process_or_several_that_share(tmp_path: Path):
    alone = lock(tmp_path / "x")
    assert alone is not None
    assert lock(tmp_path / "x") is None
    assert lock(tmp_path / "x", shared=True) is None
    alone.close()
    alone.close()
    shared = [lock(tmp_path / "x", shared=True) for _ in range(2)]
    assert None not in shared
    assert lock(tmp_path / "x") is None


def test_verify_files_names_the_file_that_is_wrong(localspec: Program, fetched: Path):
    """As the hub has it: a blob is named by its hash."""
    from hashlib import sha256

    blobs = hub_cache.kept("maker/tiny") / "blobs"
    blobs.mkdir()
    weights = fetched / "model.safetensors"
    blob = blobs / sha256(weights.read_bytes()).hexdigest()
    weights.rename(blob)
    weights.symlink_to(os.path.relpath(blob, fetched))
    code, out, _ = localspec("verify-files", "maker/tiny")
    assert (code, "maker/tiny: 1 of" in out) == (0, True)
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x00\x01"[-1:])
    code, out, err = localspec("verify-files", "maker/tiny")
    assert code == 7
    assert re.search(r"^model\.safetensors +wrong", out, re.MULTILINE)
    assert "error: model.safetensors: not the bytes that the hub has." in err
    assert localspec("verify-files", "maker/tiny", "--json")[0] == 7


def test_fit_is_a_table_of_formats_with_what_each_part_takes(localspec: Program):
    code, out, _ = localspec("fit", str(GUIDE / "target"), "--draft", str(GUIDE / "draft"), "--ctx", "512")
    assert code == 0
    head, columns, *rows = out.splitlines()
    assert head == f"{GUIDE / 'target'} with {GUIDE / 'draft'}: memory in each weight format"
    assert re.fullmatch(r"format +model +drafter +512 tokens +work +sum +of [\d.]+ GB", columns)
    assert [row.split()[0] for row in rows] == ["int8", "int4", "fp32", "bf16", "nf4", "fp4"]
    assert sum("← localspec takes this" in row for row in rows) == 1
    assert "← localspec takes this" in rows[0]


def test_fit_as_json_is_what_python_gives(localspec: Program):
    import msgspec

    import localspec as package

    report = json.loads(localspec("fit", "guide", "--json")[1])
    assert report["formats"] == json.loads(msgspec.json.encode(package.fit("guide")))["formats"]
    assert report["chosen"] == "int8"


def test_fit_of_what_is_not_here_is_asked_of_the_hub_and_5_is_its_no(
    localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    fits, large = FitFound(a_fit("Qwen/Qwen3-8B"), 23_000_000), FitFound(a_fit("a/b", chosen="", word="too large"))
    hub = ScriptedHub({AskFit: [[fits], [large]]}).install(monkeypatch)
    code, out, _ = localspec("fit", "qwen3-8b", "--draft", "Qwen/Qwen3-0.6B", "--quant", "int8")
    assert code == 0
    head = "Qwen/Qwen3-8B (not downloaded: 23 MB of headers were read): memory in each weight format"
    assert out.splitlines()[0] == head
    parts = r"13\.0 GB +– +2\.0 GB +1\.0 GB +16\.0 GB"
    assert re.search(rf"^bf16 +{parts} +too large, 4\.0 GB too little$", out, re.MULTILINE)
    assert re.search(r"^int8 .* 10\.0 GB +fits, 2\.0 GB left +← localspec takes this$", out, re.MULTILINE)
    assert localspec("fit", "a/b:Q4_K_M", "--json")[0] == 5
    first, second = (asked.request for asked in hub.asked if isinstance(asked, AskFit))
    assert (first.repo, first.drafter, first.weights.weight_format) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "int8")
    assert second == FitRequest("a/b", variant="Q4_K_M")


@pytest.mark.usefixtures("fetched")
def test_python_finds_a_model_that_is_here_in_any_case():
    """And asks no hub for it."""
    import localspec as package

    assert package.fit("Maker/Tiny/").name == package.fit("maker/tiny").name
    assert [one.verdict and one.verdict.ok for one in package.pair("MAKER/tiny", "maker/TINY")] == [True]


@pytest.mark.heavy
def test_a_gguf_file_on_this_machine_is_a_model_for_each_of_these_commands(localspec: Program, tmp_path: Path):
    from localspec.models.checkpoint import open_snapshot
    from tests.support.gguf_files import save_pair

    file, folder = save_pair(tmp_path, "Q8_0")
    code, out, _ = localspec("show", str(file))
    assert (code, out.splitlines()[0]) == (0, str(file))
    assert re.search(r"^weights +Q8_0, ", out, re.MULTILINE)
    assert re.search(r"^files +tiny-Q8_0\.gguf, ", out, re.MULTILINE)
    code, out, _ = localspec("fit", str(file), "--draft", str(file), "--json")
    assert (code, json.loads(out)["num_bytes"]) == (0, open_snapshot(file).total_bytes)
    for names in ((str(folder), str(file)), (str(file), str(folder))):
        code, out, _ = localspec("pair", *names)
        assert (code, out.endswith(f" {names[1]} can draft for {names[0]}.\n")) == (0, True)
    assert localspec("verify-files", str(file))[0] == 0


def test_pair_says_whether_and_why(localspec: Program, tmp_path: Path):
    save_snapshot(tmp_path / "other", llama2_like(), seed=2)
    code, out, _ = localspec("pair", "guide", str(GUIDE / "draft"))
    assert (code, out) == (0, f"The same 4,096 tokens. {GUIDE / 'draft'} can draft for guide.\n")
    code, out, _ = localspec("pair", "guide", str(tmp_path / "other"))
    assert code == 0
    assert out.startswith("Translate: tokenizers differ (id ")
    said = "can draft for guide. It has another tokenizer, so its text is translated; the answer stays the same.\n"
    assert out.endswith(said)
    found = json.loads(localspec("pair", "guide", str(tmp_path / "other"), "--json")[1])
    assert (found[0]["verdict"]["ok"], found[0]["verdict"]["reason"]) == (True, "translate")
    save_snapshot(tmp_path / "lossy", wordpiece_like(), seed=2)
    code, out, _ = localspec("pair", "guide", str(tmp_path / "lossy"))
    assert code == 6
    assert out.startswith("untranslatable: tokenizers differ")
    assert out.endswith("cannot draft for guide.\n")


@pytest.mark.usefixtures("fetched")
def test_without_a_drafter_pair_lists_what_is_here_or_on_the_hub(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    code, out, err = localspec("pair", "maker/tiny")
    assert (code, out) == (6, "")
    assert "Look on the hub: localspec pair maker/tiny --hub" in err
    verdict = PairVerdict("maker/tiny", "maker/mini", True, "padding", "same 7 tokens, padding differs: compatible")
    found = PairFound(
        (DrafterCandidate("maker/mini", 2 * GB, False, verdict), DrafterCandidate("maker/micro", 0, False))
    )
    hub = ScriptedHub({AskPair: [[found]]}).install(monkeypatch)
    code, out, _ = localspec("pair", "maker/tiny", "--hub")
    assert code == 0
    assert re.search(r"^maker/mini +2\.0 GB +hub +padding: same 7 tokens", out, re.MULTILINE)
    assert re.search(r"^maker/micro +– +hub +not compared$", out, re.MULTILINE)
    assert hub.asked == [AskPair(PairRequest("maker/tiny", hub=True))]


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize(
    ("target", "words"), [("maker/tiny", "tiny"), ("org/Second-7B-Chat", "Second"), ("guide", "guide")]
)
def test_where_a_search_by_name_finds_none_it_says_what_was_searched(
    target: str, words: str, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """Another of the hub may draft for it all the same."""
    no = PairVerdict(target, "maker/mini", False, "untranslatable", "tokenizers differ")
    for found in ((), (DrafterCandidate("maker/mini", GB, False, no), DrafterCandidate("maker/micro", 0, False))):
        ScriptedHub({AskPair: [[PairFound(found)]]}).install(monkeypatch)
        code, _, err = localspec("pair", target, "--hub")
        assert (code, " ".join(err.split())) == (
            6,
            f"The hub was searched for small models named like '{words}', and none that was compared can draft for"
            f" {target}. Try any other: localspec pair {target} ORG/NAME",
        )


def test_write_makes_the_pair_the_models_own(localspec: Program, fetched: Path):
    draft = str(GUIDE / "draft")
    code, _, err = localspec("pair", "guide", draft, "--write")
    assert (code, str(paths.models_file()) in err) == (0, True)
    written = Catalog.load().models["guide"].draft
    assert written is not None
    assert (written.kind, written.model, written.exit_layer) == ("model", draft, None)
    assert Catalog.load().models["guide"].path == "assets/guide/target"
    assert localspec("pair", "maker/tiny", "maker/tiny", "--write")[0] == 0
    table = Catalog.load().models["tiny"]
    assert (table.repo, table.draft and table.draft.model) == ("maker/tiny", "maker/tiny")
    assert Catalog.load().resolve("tiny").path == fetched


def test_a_revision_and_a_file_of_a_repository_are_written_whole(
    localspec: Program, fetched: Path, monkeypatch: pytest.MonkeyPatch
):
    """The drafter by the name that loads it, the target by its commit; one that is not here is pulled first."""
    refs = hub_cache.kept("maker/tiny") / "refs"
    (refs / "v1").write_text(COMMIT)
    (refs / "main").write_text("f" * 40)
    assert localspec("pair", "maker/tiny@v1", "maker/tiny@v1", "--write")[0] == 0
    table = Catalog.load().models["tiny-v1"]
    assert (table.repo, table.revision, table.draft and table.draft.model) == ("maker/tiny", COMMIT, "maker/tiny@v1")
    assert Catalog.load().resolve("tiny-v1").path == fetched
    verdict = PairVerdict("a", "b", True, "same", "same 7 tokens")
    found = PairFound((DrafterCandidate("org/x-GGUF:Q4_0", GB, False, verdict),))
    ScriptedHub({AskPair: [[found]]}).install(monkeypatch)
    assert localspec("pair", "guide", "org/x-GGUF:Q4_0", "--write")[0] == 0
    draft = Catalog.load().models["guide"].draft
    assert (draft and draft.model) == "org/x-GGUF:Q4_0"
    code, _, err = localspec("pair", "org/x-GGUF:Q8_0", "org/x-GGUF:Q4_0", "--write")
    assert (code, "Fetch it: localspec pull org/x-GGUF:Q8_0" in err) == (3, True)


def test_another_programs_command_for_a_pair(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    verdict = PairVerdict("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", True, "padding", "…")
    found = PairFound((DrafterCandidate("Qwen/Qwen2.5-0.5B-Instruct", GB, False, verdict),))
    ScriptedHub({AskPair: [[found]]}).install(monkeypatch)
    code, out, _ = localspec("pair", "qwen2.5-7b", "--print", "vllm")
    assert code == 0
    (config,) = re.findall(r"--speculative-config '(.*)'", out)
    assert json.loads(config) == {
        "method": "draft_model",
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "num_speculative_tokens": 5,
        "use_heterogeneous_vocab": True,
    }
    assert "--spec-type draft-simple" in localspec("pair", "qwen2.5-7b", "--print", "llama-server")[1]
    assert "--spec-type ngram-mod" in localspec("pair", "guide", "lookup", "--print", "llama-server")[1]
    _, command, note = localspec("pair", "guide", "lookup", "--print", "llama-server")
    assert " -c 2048 " in command  # all that guide has
    assert "T.gguf stands for a GGUF file of " in note
    _, command, note = localspec("pair", "guide", "lookup", "--print", "vllm")
    assert Path(shlex.split(command)[2], "config.json").is_file()  # a key is a name here only
    assert note == ""
    assert "--max-model-len" not in out  # it is not here: its own context is not known
    code, _, err = localspec("pair", "layerskip-llama2-7b", "--print", "vllm")
    assert (code, "Only localspec drafts for facebook/layerskip-llama2-7B by early exit" in err) == (2, True)


def test_another_programs_command_drafts_as_many_as_the_catalogue_says(localspec: Program):
    draft = f'[models.mine.draft]\nkind = "model"\nmodel = "{GUIDE / "draft"}"\nk = 3\n'
    paths.models_file().parent.mkdir(parents=True, exist_ok=True)
    paths.models_file().write_text(f'schema_version = 1\n[models.mine]\npath = "{GUIDE / "target"}"\n{draft}')
    code, out, err = localspec("pair", "mine", "--print", "llama-server")
    assert (code, "--spec-draft-n-max 3 -c 2048 " in out) == (0, True), err


def test_a_licence_and_a_name_from_a_card_cannot_drive_the_terminal(fetched: Path, localspec: Program):
    (fetched / "README.md").write_text("---\nlicense: mit\x1b[2J\x9b\u202e\n---\n")
    _, out, _ = localspec("ls")
    _, more, _ = localspec("show", "maker/tiny")
    assert not set("\x1b\x9b\u202e") & {*out, *more}
    assert "mit" in out


def test_a_card_is_wrapped_between_words_on_a_terminal():
    """`80 % o / f drafts accepted` was to be read before."""
    text = "3 answers int8 with look-up + early exit 2: 1,234.5 tokens/s, 80 % of drafts accepted"
    lines = hanging([("answers", text), ("path", "/a-long/" * 9)], 60).splitlines()
    assert lines[:2] == [
        "answers  3 answers int8 with look-up + early exit 2: 1,234.5",
        "         tokens/s, 80 % of drafts accepted",
    ]
    assert lines[2:] == ["path     " + "/a-long/" * 9], "a path is copied whole"
    assert hanging([("answers", text)], None) == f"answers  {text}"
