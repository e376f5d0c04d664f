"""What the next question is asked with, and how it is said: options, limits, and whence the rest comes. No screen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localspec.config.tables import ChatTable, Config
from localspec.core.errors import UsageError
from localspec.core.requests import SAMPLING_FIELDS, SamplingOptions
from localspec.history import History, OpenChat
from localspec.models.catalog import Entry
from localspec.tui.chat import chosen_formats
from localspec.tui.chat.conversation import Conversation
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.screens.sampling_form import fault
from tests.support.chats import answer, chat


def test_a_value_that_nobody_set_is_shown_as_it_will_be_and_whence_it_comes():
    tuning = Tuning()
    assert tuning.unset_words("temperature", None) == "the model's", "nothing is loaded"
    tuning.own = SamplingOptions()
    assert tuning.unset_words("temperature", None) == "0.7 · balanced"
    assert tuning.unset_words("top_p", None) == "0.95 · balanced"
    assert tuning.unset_words("top_k", None) == "off"
    assert tuning.unset_words("temperature", "precise") == "0 · greedy · preset"
    assert tuning.unset_words("top_p", "precise") == "off", "balanced is set aside as a whole"
    tuning.own = SamplingOptions(temperature=0.6, top_k=20)
    assert tuning.unset_words("temperature", None) == "0.6 · the model's own"
    assert tuning.unset_words("top_p", None) == "off"
    tuning.own = SamplingOptions(temperature=0.0)
    assert tuning.unset_words("temperature", None) == "0 · greedy · the model's own"
    tuning.config = Config(sampling=SamplingOptions(temperature=0.3), chat=ChatTable(max_tokens=99))
    assert tuning.unset_words("temperature", None) == "0.3 · config.toml"
    assert tuning.unset_words("max_tokens", None) == "99 · config.toml"
    assert (tuning.unset_words("seed", None), tuning.unset_words("stop", None)) == ("another each time", "none")


def test_none_takes_any_option_back_and_a_seed_may_be_another_each_time():
    tuning = Tuning(Config(sampling=SamplingOptions(seed=3)), own=SamplingOptions(temperature=0.6))
    tuning.set("temperature=0.2 top_k=7 max_tokens=9")
    tuning.set("temperature=none top_k=none max_tokens=none")
    assert (tuning.sampling.temperature, tuning.sampling.top_k, tuning.max_tokens) == (0.6, None, None)
    for typed in ("random", "none", "-1"):
        tuning.set(f"seed={typed}")
        assert tuning.sampling.fixed_seed is None
        assert "seed another each time" in tuning.words
    tuning.set("seed=")
    assert tuning.sampling.fixed_seed == 3
    tuning.set("seed=123456789")
    assert "seed 123456789" in tuning.words
    assert [fault(name, "none") for name in SAMPLING_FIELDS] == [""] * len(SAMPLING_FIELDS)
    with pytest.raises(UsageError, match=r"There is no option 'tempo'"):
        tuning.set("tempo=none")
    with pytest.raises(UsageError, match=r"\(-1: another each time\), not 'x'"):
        tuning.set("seed=x")


def test_a_format_that_was_chosen_in_a_chat_is_there_at_the_next_start_until_it_is_taken_back():
    def quant(**load: str) -> str:
        return begin(Config(), "guide", load=load, sampling=SamplingOptions()).load.weights.weight_format

    usual = quant()
    chosen_formats.keep("guide", "int4")
    assert quant() == "int4"
    assert quant(quant="fp32") == "fp32", "a flag comes first"
    tuning = begin(Config(), "guide", load={"quant": "fp32"}, sampling=SamplingOptions())
    assert tuning.choice("guide", "off").load.weights.weight_format == "fp32", "and holds for the whole chat"
    chosen_formats.keep("guide", "")
    assert quant() == "int4", "nothing was chosen"
    chosen_formats.keep("guide", "auto")
    assert quant() == usual == "auto"


def test_the_words_say_which_temperature_holds_and_whence():
    tuning = Tuning(own=SamplingOptions())
    assert tuning.words == "temperature 0.7 (balanced) · top_p 0.95"
    tuning.set('temperature=0 max_tokens=5 stop="\\n#"')
    assert tuning.words == 'temperature 0 · top_p 0.95 · max_tokens 5 · stop "\\n#"'
    assert tuning.params == {
        "max_tokens": 5,
        "stop": '"\\n#"',
        "temperature": 0.0,
        "top_p": 0.95,
        "set": 'temperature=0.0 max_tokens=5 stop="\\n#"',
    }


def test_a_limit_and_stop_texts_go_with_every_question_until_they_are_taken_away():
    tuning = Tuning(config=Config(chat=ChatTable(max_tokens=99)))
    conversation = Conversation(tuning=tuning)
    question = conversation.ask("Hello")

    def limits() -> tuple[int | None, tuple[str, ...]]:
        request = conversation.request(question)
        return request.max_tokens, request.stop

    assert limits() == (99, ())
    tuning.set('max_tokens=5 stop="###" stop=User: stop="###"')
    assert limits() == (5, ("###", "User:"))
    tuning.set("stop=end")
    assert limits() == (5, ("end",)), "what is set replaces what there was"
    tuning.set("max_tokens=none stop=none")
    assert limits() == (None, ())
    tuning.set("max_tokens= stop=")
    assert limits() == (99, ()), "config.toml's again"
    tuning.set("max_tokens=5")
    tuning.use_preset("precise")
    assert limits() == (5, ()), "a preset is of sampling"


@pytest.mark.parametrize("typed", ["temperature=1 max_tokens=x", "stop=a top_k=x", 'stop="a', "stop=a nothing"])
def test_what_cannot_be_set_sets_nothing(typed: str):
    tuning = Tuning()
    with pytest.raises(UsageError):
        tuning.set(typed)
    assert (tuning.chosen, tuning.max_tokens, tuning.stop) == (SamplingOptions(), None, ())


def test_a_comparison_is_greedy_unless_a_temperature_was_asked_for():
    """Two answers that are sampled differ by chance, which would say nothing of speculation."""
    tuning = Tuning(own=SamplingOptions())
    assert (tuning.sampling.temperature, tuning.asked.temperature) == (0.7, None)
    tuning.set("temperature=0.4")
    assert tuning.asked.temperature == 0.4


def test_the_built_in_model_is_greedy_by_its_entry():
    from localspec.models.catalog import Catalog

    entry: Entry = Catalog.load().resolve("guide")
    tuning = Tuning(entry=entry, own=entry.sampling)
    assert tuning.sampling == SamplingOptions(temperature=0)
    assert tuning.unset_words("temperature", None) == "0 · greedy · models.toml"


def past(draft: str | None) -> OpenChat:
    """A chat whose answer was asked to have this drafter."""
    with History() as history:
        given, last = answer(), chat(history, "Once?", "")[-1]
        made = replace(given.generation, params={"draft": draft} if draft else {})
        history.save(last.id, replace(given, generation=made))
        return history.open(last.chat_id)


@pytest.mark.parametrize(
    ("draft", "said", "goes_on_with"),
    [
        ("early-exit:3", {}, "early-exit:3"),
        ("off", {}, "off"),
        (None, {}, "auto"),
        ("early-exit:3", {"draft": "off"}, "off"),
        ("no such model", {}, "auto"),
    ],
)
def test_a_chat_goes_on_with_the_drafter_that_was_chosen_in_it(
    draft: str | None, said: dict[str, str], goes_on_with: str
):
    tuning = begin(Config(), "guide", load=said, sampling=SamplingOptions())
    tuning.begin_draft(past(draft))
    assert tuning.load.draft == goes_on_with
    assert tuning.params.get("draft") == (goes_on_with if goes_on_with != "auto" else None)


@pytest.mark.parametrize(
    ("flags", "model", "draft", "drafts_in"),
    [
        ({"draft": "other", "draft_quant": "int4"}, "third", None, "auto"),
        ({"draft": "other", "draft_quant": "int4"}, "third", "early-exit:2", "auto"),
        ({"draft": "other", "draft_quant": "int4"}, "third", "off", "auto"),
        ({"draft": "other", "draft_quant": "int4"}, "third", "other", "int4"),
        ({"draft": "other", "draft_quant": "int4"}, "fourth", "other", "int4"),
        ({"draft_quant": "int4"}, "guide", "auto", "int4"),
        ({"draft_quant": "int4"}, "guide", "other", "auto"),
        ({"draft_quant": "int4"}, "third", "auto", "auto"),
    ],
)
def test_a_drafts_format_is_for_the_draft_that_it_was_named_with(
    flags: dict[str, str], model: str, draft: str | None, drafts_in: str
):
    tuning = begin(Config(), "guide", load=flags, sampling=SamplingOptions())
    assert tuning.load.weights.draft_format == "int4"
    assert tuning.request(model, draft).weights.draft_format == drafts_in


def test_a_chat_with_an_early_exit_can_be_loaded_after_a_draft_model_in_a_format_of_its_own():
    tuning = begin(Config(), "guide", load={"draft": "other", "draft_quant": "int4"}, sampling=SamplingOptions())
    for draft in (None, "off", "early-exit:2"):
        assert tuning.choice("guide", draft).load.weights.draft_format == "auto"


def test_a_default_model_in_another_case_is_the_one_that_is_known():
    tuning = begin(Config(), "GUIDE", load={}, sampling=SamplingOptions())
    assert (tuning.load.model, tuning.name) == ("guide", "guide")


@pytest.mark.parametrize(
    ("kept", "preset", "flags", "holds"),
    [
        ("seed=3 max_tokens=9", None, {}, (0, 3, 9)),
        ("temperature=0.2 seed=3", None, {"temperature": 0.9}, (0.9, 3, None)),
        ("temperature=0.2 seed=3", "precise", {}, (0.0, None, None)),
        ("temperature=0.2 no_such_option=1", None, {}, (0, None, None)),
        ("temperature=nan", None, {"seed": 4}, (0, 4, None)),
        (7, None, {}, (0, None, None)),
    ],
)
def test_a_chat_goes_on_with_what_was_set_in_it_but_for_what_the_command_says(
    kept: object, preset: str | None, flags: dict[str, float], holds: tuple[float | None, int | None, int | None]
):
    with History() as history:
        given, last = answer(), chat(history, "Once?", "")[-1]
        history.save(last.id, replace(given, generation=replace(given.generation, params={"set": kept})))
        opened = history.open(last.chat_id)
    tuning = begin(Config(), "guide", load={}, sampling=SamplingOptions(**flags))
    tuning.begin_chat(preset, opened)
    assert (tuning.sampling.temperature, tuning.sampling.seed, tuning.max_tokens) == holds
