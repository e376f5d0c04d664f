"""Pages of a search, estimates in its rows, and what in it is not for localspec."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.core import paths
from localspec.hub import search as searching
from localspec.hub.records import SearchRequest
from localspec.hub.search import family, search
from localspec.tui.panels.hub_rows import Listing
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.fake_hub.weights import safetensors
from tests.support.hub_clients import client_of, guide, guide_draft

pytestmark = pytest.mark.usefixtures("online")
BIG = safetensors(w=("BF16", 1000, 1000), n=("F32", 10))


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(searching, "usable_gpu_bytes", lambda: None)


def test_a_row_has_size_fit_licence_gate_and_pair():
    """Estimates, by the number of parameters; the pair is the catalogue's."""
    big = FakeRepository("Qwen/Qwen2.5-7B-Instruct", {"model.safetensors": BIG}, licence="apache-2.0", downloads=7)
    exits = guide("facebook/layerskip-llama2-7B", gated="manual", licence="fair")
    with FakeHub(big, exits) as hub:
        rows = {row.repo: row for row in search(client_of(hub), SearchRequest()).rows}
        (asked,) = hub.log
    first, second = rows[big.name], rows[exits.name]
    assert (first.num_bytes, first.parameters, first.dtype) == (2_000_040, 1_000_010, "BF16")
    assert (first.fit, first.licence.tag, first.gated, first.downloads) == ("fits in int4", "apache-2.0", "", 7)
    assert (first.pair, first.note) == ("Qwen/Qwen2.5-0.5B-Instruct", "")
    assert (second.pair, second.gated, second.licence.non_commercial) == ("early exit", "manual", True)
    assert second.fit == "too large"
    assert asked.query["pipeline_tag"] == ["text-generation"]


@pytest.mark.parametrize(("kind", "pair"), [("lookup", "look-up"), ("off", "")])
def test_a_drafter_without_a_model_is_named_as_its_row_in_drafters(kind: str, pair: str):
    """A pull without a draft model writes "lookup"."""
    paths.models_file().parent.mkdir(parents=True)
    table = f"[models.mine]\nrepo = 'org/guide'\n[models.mine.draft]\nkind = '{kind}'\n"
    paths.models_file().write_text(f"schema_version = 1\n{table}")
    with FakeHub(guide()) as hub:
        (row,) = search(client_of(hub), SearchRequest()).rows
    assert row.pair == Listing(row).pair == pair


NOTES = {
    "org/Qwen3-8B_eagle3": ({"model.safetensors": BIG}, {}, "head for vLLM"),
    "org/lora": ({"adapter_model.safetensors": BIG}, {"library": "peft"}, "adapter"),
    "org/m-mlx": ({"model.safetensors": BIG}, {"library": "mlx"}, "MLX"),
    "org/m-gguf": ({"m-Q8_0.gguf": b"GGUF"}, {}, "GGUF"),
    "org/old": ({"pytorch_model.bin": b"x"}, {}, "pickle only"),
}


def test_what_is_not_for_localspec_says_why():
    repositories = [FakeRepository(name, files, **facts) for name, (files, facts, _) in NOTES.items()]
    with FakeHub(*repositories, guide()) as hub:
        rows = search(client_of(hub), SearchRequest()).rows
    assert {row.repo: row.note for row in rows} == {
        **{name: note for name, (_, _, note) in NOTES.items()},
        "org/guide": "",
    }


def test_words_gate_and_kind_are_the_hubs_to_filter():
    repositories = [guide("ana/qwen3-x"), guide("bob/qwen3-y", gated="auto"), guide("bob/llama")]
    with FakeHub(*repositories) as hub:
        client = client_of(hub)

        def found(**asked: object) -> set[str]:
            return {row.repo for row in search(client, SearchRequest(**asked)).rows}  # type: ignore[arg-type]

        assert found(words="qwen3") == {"ana/qwen3-x", "bob/qwen3-y"}
        assert found(gated=False) == {"ana/qwen3-x", "bob/llama"}
        assert found(words="qwen3", gated=True) == {"bob/qwen3-y"}
        assert found(gguf=True) == set()


def test_pages_follow_each_other_to_the_last():
    with FakeHub(*[guide(f"org/m{number}") for number in range(5)]) as hub:
        client, seen, cursor = client_of(hub), set[str](), ""
        for _ in range(3):
            page = search(client, SearchRequest(limit=2, cursor=cursor))
            seen |= {row.repo for row in page.rows}
            cursor = page.cursor
    assert (len(seen), cursor) == (5, "")


def test_drafters_are_looked_for_in_the_family_and_are_small():
    """A fifth of the target's parameters at most."""
    target, other = guide("org/Guide-7B"), guide_draft("org/Else-0.5B")
    near, alike = guide_draft("org/Guide-0.5B"), guide("org/Guide-8B")
    with FakeHub(target, other, near, alike) as hub:
        rows = search(client_of(hub), SearchRequest(drafter_for="org/Guide-7B")).rows
    assert [row.repo for row in rows] == ["org/Guide-0.5B"]


@pytest.mark.parametrize(
    ("repo", "words"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1"),
        ("HuggingFaceTB/SmolLM2-1.7B", "SmolLM2"),
        ("EleutherAI/pythia-1.4b", "pythia"),
        ("org/guide", "guide"),
        ("org/7B", "7B"),
        ("bartowski/SmolLM2-1.7B-Instruct-GGUF", "SmolLM2"),
        ("org/Phi-3-mini-4k-instruct-gguf", "Phi-3-mini-4k-instruct"),
    ],
)
def test_the_familys_name_ends_where_the_size_begins(repo: str, words: str):
    assert family(repo) == words


def test_hostile_rows_are_made_safe_or_left_as_they_are():
    """Names and licences with escape codes; counts that cannot be."""
    bad = replace(guide("org/\x1b[2Jx\u202e"), licence="m\x1b]0;t\x07it")
    with FakeHub(bad) as hub:
        (row,) = search(client_of(hub), SearchRequest()).rows
    assert not any(ord(sign) < 32 or sign == "\u202e" for sign in row.repo + row.licence.words)
