"""A plan's sentences: one wording, which the command's screen and the chat's question show alike."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localspec.cli.download.screens import plan_text
from localspec.hub.plan_words import offer_words, template_words
from localspec.hub.records import DraftOffer
from localspec.runtime.pairs import PairVerdict
from localspec.tui.chat.plan_lines import plan_lines
from localspec.tui.control.downloads import drafter_name
from tests.support.scripted_hub import a_plan, a_repository

VERDICT = PairVerdict("org/model", "org/small", True, "same", "the same tokens")
OFFERS = {
    "layers 1–8, k 6 (LayerSkip's README); no second model": DraftOffer(
        "early-exit", exit_layer=8, k=6, source="LayerSkip's README"
    ),
    "org/small drafts (the catalogue); the same tokens": DraftOffer(
        "model", "org/small", source="the catalogue", verdict=VERDICT
    ),
    "none: no drafter is known for it": DraftOffer("none", detail="no drafter is known for it"),
    "none": DraftOffer("none"),
}
TEMPLATES = {
    'none in it (a base model); "plain" will be used': "plain",
    "none in it (a base model); it completes text": "",
}


@pytest.mark.parametrize(("words", "offer"), OFFERS.items())
def test_how_it_drafts(words: str, offer: DraftOffer):
    plan = a_plan(offer=offer)
    assert offer_words(offer) == words
    assert f"speculation: {words}\n" in plan_text(plan)
    assert f"Speculation: {words}" in plan_lines(plan)


@pytest.mark.parametrize(("words", "preset"), TEMPLATES.items())
def test_which_template_a_base_model_gets(words: str, preset: str):
    plan = a_plan(a_repository(chat_template=False), preset=preset)
    assert template_words(plan) == words
    assert plan_text(plan).endswith(f"chat template: {words}")
    assert plan_lines(plan)[-1] == f"Chat template: {words}"
    own = replace(plan, target=a_repository(), preset="")
    assert template_words(own) == "its own"
    assert template_words(replace(own, preset="words")) == '"words", which models.toml names in place of its own'


def test_of_what_cannot_be_loaded_no_template_is_named():
    """Nothing of it was read."""
    plan = replace(a_plan(a_repository(chat_template=False)), unloadable="It has only pickles.", fit=None)
    assert "template" not in "".join((plan_text(plan), *plan_lines(plan)))


def test_what_the_scanners_report_is_in_the_question():
    plan = replace(a_plan(), target=replace(a_plan().target, flagged=("tokenizer.pickle", "tokenizer.pickle")))
    assert "The hub's scanners report tokenizer.pickle." in plan_lines(plan)
    assert not any("scanners" in line for line in plan_lines(a_plan()))


@pytest.mark.parametrize(
    ("name", "drafter", "asked"),
    [
        ("", None, "none"),
        ("org/small", "org/small", "org/small"),
        ("org/small-GGUF:Q4_K_M", "org/small-GGUF", "org/small-GGUF:Q4_K_M"),
        ("qwen3-8b", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
    ],
)
def test_a_drafter_is_queued_as_the_file_that_was_planned(name: str, drafter: str | None, asked: str):
    repository = a_repository(drafter) if drafter else None
    assert drafter_name(replace(a_plan(), drafter=repository, offer=DraftOffer("model", name))) == asked
