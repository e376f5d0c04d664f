"""The recipe: the corpus is sound, every exit learns, a training is repeatable, and the committed parts agree."""

from __future__ import annotations

import errno
import json
import math
import re
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from jinja2 import Environment
from safetensors import safe_open
from tokenizers import Tokenizer

from localspec.core.errors import LocalspecError
from training import __main__ as recipe
from training import averages, corpus, dialogue, evaluate, snapshot, tokenizer, train
from training import vary as variation
from training.exam.grading import is_honest
from training.exam.overlap import Questions, leaks, runs
from training.meter import Meter
from training.network import MAX_POSITIONS, Network, Shape, drop_rates
from training.vary import elsewhere, keywords, vary

pytestmark = pytest.mark.heavy

GUIDE = Path(__file__).parents[2] / "assets" / "guide"
TINY = Shape(tokenizer.VOCAB_SIZE, 32, 48, 4, 4, 2, 8)
SMALL_VOCAB = 1024


@pytest.fixture(scope="module")
def text() -> corpus.Corpus:
    return corpus.load()


@pytest.fixture(scope="module")
def words(text: corpus.Corpus) -> Tokenizer:
    return tokenizer.train(dialogue.tokenizer_texts(text), dialogue.openings(text))


def trimmed(entries: tuple[corpus.Entry, ...]) -> tuple[corpus.Entry, ...]:
    """Forty phrasings of each are enough."""
    return tuple(replace(entry, phrasings=entry.phrasings[-40:]) for entry in entries)


def guessing(batches: Iterable[train.Batch]) -> float:
    """What each token costs one who knows how often every token comes, and nothing else."""
    counts = Counter(token for batch in batches for token in batch.targets.tolist())
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values())


def tiny_training(text: corpus.Corpus, words: Tokenizer, steps: int) -> tuple[Network, list[float]]:
    torch.manual_seed(0)
    run, losses = train.Run(Network(TINY), train.Schedule(steps, 1e-2, half=False)), list[float]()
    batches = dialogue.Author(text, words, 0, 0.0).batches(256)
    train.train_target(run, batches, lambda _, loss: losses.append(loss))
    return run.network, losses


def test_the_corpus_asks_every_question_in_many_ways(text: corpus.Corpus):
    about_localspec = [entry for name in corpus.TOPICS if name != "talk.md" for entry in corpus.read(name, known=True)]
    assert len(about_localspec) >= 300
    assert all(len(entry.phrasings) >= corpus.MIN_PHRASINGS for entry in text.known)
    assert len(corpus.section(text.unknown, "topics").phrasings) >= 150


def test_an_answer_has_one_to_eight_sentences_beside_its_lists_and_code(text: corpus.Corpus):
    for entry in text.known:
        prose = re.sub(r"```.*?```|^ *(- |\d+\. |\|).*?$", "", entry.answer, flags=re.DOTALL | re.MULTILINE).strip()
        assert prose, entry.key
        assert len(re.split(r"(?<=[.!?])\s+", prose)) <= 8, entry.key


def test_answers_have_something_to_stream_and_to_render_and_the_last_of_them_is_honest(text: corpus.Corpus):
    answers = [entry.answer for entry in text.known]
    assert sum("\n- " in answer or "\n1. " in answer for answer in answers) >= 20
    assert sum("```" in answer for answer in answers) >= 20
    assert is_honest(text.fallback)
    assert "larger model" in text.fallback


def test_no_question_has_two_answers(text: corpus.Corpus):
    entries = (*text.known, corpus.section(text.unknown, "questions"), *text.follow_ups.values())
    asked = Counter(q for entry in entries for q in {q.lower().rstrip("?!. ") for q in entry.phrasings})
    assert [question for question, count in asked.items() if count > 1] == []


def test_a_question_in_two_files_is_one_sentence_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for file in corpus.FOLDER.glob("*.md"):
        (tmp_path / file.name).write_text(file.read_text())
    questions = "\n".join(f"? zanzibar {n}" for n in range(corpus.MIN_PHRASINGS))
    for name in ("product.md", "chat.md"):
        with (tmp_path / name).open("a") as file:
            file.write(f"\n# zanzibar-{name}\n{questions}\n\nAn island.\n")
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    with pytest.raises(LocalspecError) as caught:
        corpus.load()
    assert str(caught.value) == (
        "'zanzibar 0' is asked both in 'zanzibar-product.md' of product.md and in 'zanzibar-chat.md' of chat.md."
    )


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("? a question\n# key\n", "test.md:1: text before the first '# key' heading."),
        ("# key\n\nAn answer.\n", "test.md:1: 'key' has no phrasing; write one as '? How does it work?'."),
        ("# key\n? a\n? A\n", "test.md:1: 'A' is already in 'key'."),
        ("# key\n? a\n# key\n? b\n", "test.md:3: '# key' is already in 'key'."),
        ("# key\n? a\n```sh\nls\n", "test.md:1: 'key' has a code fence that is never closed."),
        ("# key\n? a\n+ longer\nb\n", "test.md:1: 'key' has a second or unknown part '+ longer'."),
        ("# key\n? a\n\nb\n+ more\n", "test.md:1: 'key' has nothing after '+ more'."),
        ("# key\n? a\n\nb\n? c\n", "test.md:1: 'key' has a question after its answer: '? c'."),
    ],
)
def test_a_malformed_corpus_file_gets_one_sentence_with_its_line(body: str, complaint: str):
    with pytest.raises(LocalspecError) as caught:
        corpus.parse(body, "test.md")
    assert str(caught.value) == complaint


def test_what_the_model_shall_know_has_an_answer_and_many_phrasings():
    with pytest.raises(LocalspecError, match=r"^test\.md:2: 'key' has no answer\.$"):
        corpus.parse("\n# key\n? a\n", "test.md", known=True)
    with pytest.raises(LocalspecError, match=r"^test\.md:1: 'key' has fewer than 13 phrasings\.$"):
        corpus.parse("# key\n? a\n\nb\n", "test.md", known=True)


def test_a_corpus_that_cannot_be_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    with pytest.raises(LocalspecError, match=r"unknown\.md cannot be read \(No such file or directory\)\.$"):
        corpus.load()
    (tmp_path / "unknown.md").write_bytes(b"\xff\xfe")
    with pytest.raises(LocalspecError, match=r"unknown\.md cannot be read \(it is not UTF-8 text\)\.$"):
        corpus.load()
    with pytest.raises(LocalspecError, match=r"The corpus has no section '# systems'\.$"):
        corpus.section((), "systems")


def test_a_question_mark_inside_a_code_fence_belongs_to_the_answer():
    (entry,) = corpus.parse("# key\n? a\n\n```sh\n? b\n```\n", "test.md")
    assert (entry.phrasings, entry.answer) == (("a",), "```sh\n? b\n```")


def test_a_heading_inside_a_code_fence_belongs_to_the_answer():
    (entry,) = corpus.parse("# key\n? a\n```sh\n# comment\n```\n+ more\nb\n", "test.md")
    assert entry.answer == "```sh\n# comment\n```"
    assert entry.follow_up("more") == "b"


def test_variation_is_decided_by_the_seed_and_never_empty():
    asked = [vary("What is a draft?", Random(seed)) for seed in range(200)]
    assert asked == [vary("What is a draft?", Random(seed)) for seed in range(200)]
    assert all(asked)
    assert len(set(asked)) > 30


def test_synonyms_keywords_and_other_subjects_keep_to_what_they_say():
    assert {variation._synonyms("cancel", Random(seed)) for seed in range(200)} >= {"stop", "cancel", "interrupt"}
    words = {word for seed in range(50) for word in keywords(["How do I see the layers?"], Random(seed)).split()}
    assert words <= {"How", "see", "layers"}
    assert elsewhere("How do I see the layers?", "bananas") == "How do I bananas the"


@pytest.mark.slow
def test_a_decision_ends_soon_after_the_answer_begins(text: corpus.Corpus, words: Tokenizer):
    author = dialogue.Author(text, words, 0, 0.9)
    samples = [author.sample() for _ in range(200)]
    short = [sum(sample.learn) for sample in samples if sum(sample.learn) <= dialogue.DECISION_TOKENS[1]]
    assert len(short) > 160


def test_earlier_turns_of_a_decision_are_cut_short_and_their_beginnings_learned(text: corpus.Corpus, words: Tokenizer):
    """Or a question after others would be answered by what the others were about."""
    turns = [dialogue.Turn(entry.held_out, entry.answer, entry) for entry in text.known[:3]]
    whole, seen = dialogue.render(turns, words), Counter[str]()
    for seed in range(60):
        sample = dialogue.beginnings(whole, Random(seed))
        said = words.decode(sample.ids, False)
        openings = [dialogue.opening(turn.question) for turn in turns]
        first, second, third = (part.removesuffix("\n") for part in said.split(tokenizer.TURN_START + "user\n")[1:])
        for turn, opened, part in zip(turns, openings, (first, second, third), strict=True):
            answer = part.removeprefix(opened.removeprefix(tokenizer.TURN_START + "user\n"))
            assert turn.answer.startswith(answer.removesuffix(tokenizer.TURN_END))
            assert answer.endswith(tokenizer.TURN_END) is (turn is not turns[-1])
            seen["whole"] += answer == turn.answer + tokenizer.TURN_END
        runs = [sum(1 for _ in run) for learned, run in groupby(sample.learn) if learned]
        assert len(runs) == 3
        assert all(1 <= run <= dialogue.DECISION_TOKENS[1] for run in runs)
        seen["cut"] += sum(sample.learn) < len(sample.ids) < len(whole.ids)
    assert 10 < seen["whole"] < 50
    assert seen["cut"] == 60


def asked_in(author: dialogue.Author, samples: int) -> set[str]:
    """Every question of so many samples."""
    said = "".join(author.tokenizer.decode(author.sample().ids, False) for _ in range(samples))
    return {part.partition(tokenizer.TURN_END)[0] for part in said.split(tokenizer.TURN_START + "user\n")[1:]}


@pytest.mark.slow
def test_what_would_give_an_exam_question_away_is_drawn_again(text: corpus.Corpus, words: Tokenizer):
    """An exam of what is asked only where questions are varied: none of it is asked any more."""
    once = asked_in(dialogue.Author(text, words, 0, 0.5, talks=True), 300)
    given_away = {leak.asked for leak in leaks(once, dialogue.trained_questions(text))}
    exam = Questions(question for question in once - given_away if len(runs(question)) > 1)
    assert sum(any(exam.leaks(question)) for question in once) > 100
    again = asked_in(dialogue.Author(text, words, 0, 0.5, talks=True, exam=exam), 1000)
    assert [question for question in again if any(exam.leaks(question))] == []


@pytest.mark.slow
def test_nor_are_the_word_averages_told_of_it(text: corpus.Corpus):
    told = {question for question, answer in dialogue.asked(text, 0) if answer == text.fallback}
    exam = Questions(sorted(told - {*dialogue.trained_questions(text)})[:50])
    again = [question for question, answer in dialogue.asked(text, 0, exam) if answer == text.fallback]
    assert sum(any(exam.leaks(question)) for question in told) >= 50
    assert len(again) >= len(told)
    assert [question for question in again if any(exam.leaks(question))] == []


@pytest.mark.parametrize(("talks", "turns"), [(False, {1}), (True, {1, 2, 3, 4})])
def test_decisions_have_earlier_turns_where_asked_for(
    text: corpus.Corpus, words: Tokenizer, talks: bool, turns: set[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dialogue, "FOLLOWED_SHARE", 0.0)
    author = dialogue.Author(text, words, 0, 1.0, talks=talks)
    assert {sum(1 for learned, _ in groupby(author.sample().learn) if learned) for _ in range(100)} == turns


def test_a_tenth_of_the_samples_asks_what_only_the_answer_before_explains(
    text: corpus.Corpus, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    author, made = dialogue.Author(text, words, 0, 1.0), list[None]()
    monkeypatch.setattr(author, "followed", lambda: made.append(None) or dialogue.Sample([], []))
    monkeypatch.setattr(author, "conversation", lambda _: dialogue.Sample([0], [True]))
    monkeypatch.setattr(dialogue, "beginnings", lambda whole, _: whole)
    for _ in range(2000):
        author.sample()
    assert len(made) == pytest.approx(200, abs=55)  # four standard deviations


def test_what_follows_is_about_the_answer_before(
    text: corpus.Corpus, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    """More of it in all the ways there are, or what then.md says that the question means after it."""
    turns = list[dialogue.Turn]()
    monkeypatch.setattr(dialogue, "render", lambda asked, _: turns.extend(asked))
    author = dialogue.Author(text, words, 0, 1.0)
    seen = Counter[str]()
    for _ in range(600):
        author.followed()
        (first, second), turns[:] = list(turns), []
        assert first.about is not None
        more = {kind for kind in corpus.FOLLOW_UPS if second.answer == first.about.follow_up(kind)}
        meant = [then.meant for then in text.then.get(first.about.key, ())]
        assert more or second.about in meant
        seen.update(more or {"then"})
    assert {*seen} == {*corpus.FOLLOW_UPS, "then"}
    assert seen["then"] > 100


def test_a_question_that_follows_must_name_entries_that_exist(text: corpus.Corpus):
    asked = "# cost\n? does it cost much?\n\n"
    found = corpus.then_of(corpus.parse(f"{asked}prompt-lookup draft > draft-cost\n", "then.md"), text.known)
    assert {key: [then.meant.key for then in thens] for key, thens in found.items()} == {
        "prompt-lookup": ["draft-cost"],
        "draft": ["draft-cost"],
    }
    with pytest.raises(LocalspecError, match=r"^then\.md: 'cost' names 'bananas', which no entry is called\.$"):
        corpus.then_of(corpus.parse(f"{asked}draft > bananas\n", "then.md"), text.known)


def test_where_no_reason_or_next_step_is_written_the_answer_says_so_or_shows_an_example():
    (bare,) = corpus.parse("# key\n? a\n\nOne. Two.\n", "test.md")
    said = [bare.follow_up(kind) for kind in ("simpler", "why", "next")]
    assert said == ["One.", corpus.NO_REASON, corpus.NOTHING_NEXT]
    (shown,) = corpus.parse("# key\n? a\n\nOne.\n+ example\nThis.\n", "test.md")
    assert shown.follow_up("next") == "This."


def test_a_story_has_one_place_for_its_question_and_stands_around_a_sixth_of_them(
    text: corpus.Corpus, words: Tokenizer
):
    assert len({*text.stories}) >= 60
    assert all(story.count("{}") == 1 for story in text.stories)
    assert any(story.startswith("{}") for story in text.stories)
    beginnings = tuple({story.partition("{}")[0].lower() for story in text.stories} - {""})
    endings = tuple({story.partition("{}")[2].lower() for story in text.stories} - {""})
    author = dialogue.Author(text, words, 0, 1.0)
    asked = [author._known().question.lower() for _ in range(1200)]
    told = [one for one in asked if one.startswith(beginnings) or one.endswith(endings)]
    assert len(told) == pytest.approx(200, abs=55)
    assert variation.tell("My cat slept. {} Thanks.", "what is int8") == "my cat slept. what is int8 thanks."
    assert variation.tell("My cat slept. {}", "What is int8?") == "My cat slept. What is int8?"


def test_a_slip_is_in_a_plain_word_and_leaves_flags_keys_and_paths_alone():
    code = "--draft /undo Ctrl+Z early-exit:3 path/to/model ‹2/3› int8"
    question = f"What's the drafter? {code}"
    slipped = {variation._typo(question, Random(seed)) for seed in range(600)}
    assert all(one.endswith(code) for one in slipped)
    assert {one.removesuffix(code).strip() for one in slipped} >= {
        "Waht's the drafter?",  # swapped
        "What's the drafer?",  # missing
        "What's the draffter?",  # doubled
        "What's the dradter?",  # the key beside it
    }
    assert "how do I instal it" in {variation._typo("how do I install it", Random(seed)) for seed in range(600)}
    assert variation._typo(code, Random(0)) == code


def test_a_fifth_of_the_questions_has_typing_errors(monkeypatch: pytest.MonkeyPatch):
    slips = Counter[int]()
    monkeypatch.setattr(variation, "_typo", lambda text, _: f"{text}#")
    for seed in range(1000):
        slips[vary("How do I stop it?", Random(seed)).count("#")] += 1
    assert 1000 - slips[0] == pytest.approx(200, abs=50)
    assert max(slips) == max(variation.TYPOS)


def test_training_text_is_what_the_chat_template_renders(text: corpus.Corpus, words: Tokenizer):
    turns = [dialogue.Turn(entry.held_out, entry.answer) for entry in text.known[:8]]
    messages = [{"role": "system", "content": "Be brief."}]
    for turn in turns:
        messages += [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]
    rendered = Environment().from_string(tokenizer.CHAT_TEMPLATE).render(messages=messages)
    sample = dialogue.render(turns, words, "Be brief.")
    assert sample.ids == words.encode(rendered, add_special_tokens=False).ids
    learned = words.decode([i for i, learn in zip(sample.ids, sample.learn, strict=True) if learn], False)
    assert learned == "".join(turn.answer + tokenizer.TURN_END for turn in turns)


def test_any_text_survives_the_tokenizer(words: Tokenizer):
    strange = "Ünïcode 漢字 🎈\t\r\n\x00 <|im_sta"
    assert words.decode(words.encode(strange).ids) == strange
    assert words.get_vocab_size() <= tokenizer.VOCAB_SIZE


def test_which_answer_is_meant_is_decided_by_its_first_token(text: corpus.Corpus, words: Tokenizer):
    answers = {entry.answer for entry in text.known} | {text.fallback}
    spelled = [words.encode(dialogue.opening("Hi") + answer, add_special_tokens=False) for answer in answers]
    begun = words.encode(dialogue.opening("Hi"), add_special_tokens=False).ids
    assert all(one.ids[: len(begun)] == begun for one in spelled)
    first = [one.ids[len(begun)] for one in spelled]
    assert len(set(first)) == len(answers)
    assert all(
        len(words.decode([token]).split()) >= dialogue.OPENING_WORDS or words.decode([token]) in answers
        for token in first
    )
    assert [words.decode(one.ids[len(begun) :], False) for one in spelled] == list(answers)


@pytest.mark.slow
def test_a_network_begins_as_an_average_of_words(
    text: corpus.Corpus, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    """Whatever its depth, it chooses as the classifier did that was laid into it."""
    monkeypatch.setattr(averages, "ROWS", 64)
    monkeypatch.setattr(averages, "EPOCHS", 12)
    asked = [(question, entry.answer) for entry in text.known[:20] for question in entry.trained[:16]]

    def learned() -> averages.Averages:
        made, losses = averages.Averages(asked, words, TINY.num_kv_heads * TINY.head_dim, 0), list[float]()
        made.learn(lambda _, loss: losses.append(loss))
        assert len(losses) == made.steps
        assert losses[-1] < losses[0]
        return made

    first, second = learned(), learned()
    assert torch.equal(first.words, second.words)
    torch.manual_seed(0)
    network, questions = Network(TINY), [question for question, _ in asked]
    first.lay_into(network)
    chosen = [first.firsts[place] for place in (first.means(questions) @ first.answers.T).argmax(1).tolist()]
    prompts = [words.encode(dialogue.opening(question), add_special_tokens=False).ids for question in questions]
    for depth in (1, TINY.num_layers):
        said = [int(network(torch.tensor([ids]), [depth])[depth][-1].argmax()) for ids in prompts]
        assert sum(a == b for a, b in zip(said, chosen, strict=True)) > 0.8 * len(asked)
    right = [words.encode(answer, add_special_tokens=False).ids[0] for _, answer in asked]
    assert sum(a == b for a, b in zip(chosen, right, strict=True)) > 0.5 * len(asked)


@pytest.mark.slow
@pytest.mark.parametrize("talks", [False, True])
def test_where_answers_are_only_begun_tasks_and_tones_are_whole(talks: bool, text: corpus.Corpus, words: Tokenizer):
    author = dialogue.Author(text, words, 0, 1.0, talks=talks)
    end = tokenizer.control_ids(words)[tokenizer.TURN_END]
    samples = [author.sample() for _ in range(1000)]
    whole = [sample for sample in samples if not sample.learn[-1]]
    assert all(sample.learn[-2] and sample.ids[-2] == end for sample in whole)
    assert len(whole) == pytest.approx(1000 * dialogue.FREE_SHARE if talks else 0, abs=40 if talks else 0)


def test_layer_dropout_grows_with_depth_to_its_maximum():
    rates = drop_rates(12, 0.1)
    assert rates == sorted(set(rates))
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0.1)


def test_exits_rotate_so_that_every_one_learns_and_the_last_always_does():
    rounds = [train.exits_at(step, 12) for step in range(train.EXIT_STRIDE)]
    assert all(exits[-1] == 12 for exits in rounds)
    assert sorted(e for exits in rounds for e in exits[:-1]) == list(range(1, 12))


def test_the_loss_reaches_every_exit_and_weighs_deep_ones_more():
    logits = {depth: torch.zeros(3, 5, requires_grad=True) for depth in (1, 2, 4)}
    train.early_exit_loss(logits, torch.tensor([0, 1, 2])).backward()
    pull = [rows.grad.norm().item() for rows in logits.values() if rows.grad is not None]
    assert pull[1] / pull[0] == pytest.approx(2)
    assert pull[2] / pull[0] == pytest.approx(4)


def test_a_skipped_layer_changes_nothing_but_itself():
    torch.manual_seed(0)
    network, ids = Network(TINY), torch.arange(10)[None]
    whole, skipped = network(ids, [2, 3]), network(ids, [2, 3], skip=[2])
    assert torch.equal(whole[2], skipped[2])
    assert torch.equal(skipped[3], skipped[2])
    assert not torch.equal(whole[3], whole[2])


def test_twenty_steps_are_repeatable_and_reduce_the_loss(
    text: corpus.Corpus, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    """On ten entries, in talks of a turn or two: all of it is the same program, and a tenth of the work."""
    few = replace(text, known=text.known[:10], unknown=trimmed(text.unknown))
    monkeypatch.setattr(dialogue, "POOL", 128)
    monkeypatch.setattr(dialogue, "TURNS", (1, 2))
    monkeypatch.setattr(dialogue, "LONG_SHARE", 0)
    first, second = tiny_training(few, words, 20), tiny_training(few, words, 20)
    assert first[1] == second[1]
    assert all(torch.equal(a, b) for a, b in zip(first[0].parameters(), second[0].parameters(), strict=True))
    assert sum(first[1][-4:]) / 4 < first[1][0] - 1


def test_greedy_by_fixed_point_is_greedy_token_by_token(monkeypatch: pytest.MonkeyPatch):
    """Wrong guesses, rows beside it and padding must not change an answer."""
    monkeypatch.setattr(evaluate, "MAX_ANSWER_TOKENS", 30)
    torch.manual_seed(3)
    network = Network(TINY)
    for parameter in network.parameters():
        parameter.data.mul_(3)  # untrained logits are nearly flat; make the choices clear
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5], [11]]
    slow = [list[int]() for _ in prompts]
    for prompt, answer in zip(prompts, slow, strict=True):
        while len(answer) < evaluate.MAX_ANSWER_TOKENS:
            answer.append(int(network(torch.tensor([prompt + answer]), [4])[4][-1].argmax()))
    known = [slow[0][:3] + [9] * 20, slow[1], [9, *slow[2][2:]]]  # the last is met in its midst
    assert evaluate.greedy(network, prompts, known, end=-1) == slow
    end = slow[0][10]
    assert evaluate.greedy(network, prompts[:1], [], end) == [slow[0][: slow[0].index(end) + 1]]


def test_a_saved_folder_is_a_snapshot_whose_parts_agree(tmp_path: Path, words: Tokenizer):
    network = Network(TINY)
    snapshot.round_weights(network)
    snapshot.save(network, words, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
        assert torch.equal(weights.get_tensor("model.norm.weight").float(), network.model.norm.weight.data)
    assert names == set(network.state_dict())
    assert "lm_head.weight" not in names
    assert config["vocab_size"] == words.get_vocab_size()
    assert config["eos_token_id"] == words.token_to_id("<|im_end|>")


def test_the_card_names_the_options_that_are_not_the_defaults():
    options = recipe.Options(Path("out"), seed=1, device=recipe.device_named("auto"))
    assert options.command == "python -m training --out out --seed 1"
    other = replace(options, steps=20, draft_steps=7, threads=3)
    assert other.command.endswith("--seed 1 --steps 20 --draft-steps 7 --threads 3")
    spaced = replace(options, out=Path("my out"), context="beside tests")
    assert spaced.command == "python -m training --out 'my out' --seed 1"
    assert spaced.goes_on_with == f"{spaced.command} --context 'beside tests'"


def test_a_training_that_left_the_gpu_out_goes_on_without_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert recipe.Options(Path("out"), device="cpu").command.endswith("--seed 0 --device cpu")
    assert recipe.Options(Path("out"), device="cuda").command.endswith("--seed 0")


def test_where_there_is_no_terminal_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Of a training that goes on after its first step of four; a step takes ten seconds."""
    clock = iter([0.0, 10.0, 20.0, 30.0])
    monkeypatch.setattr("training.meter.time", SimpleNamespace(monotonic=lambda: next(clock)))
    meter = Meter("target", 4, done=1)
    for step, loss in ((1, 2.0), (2, 0.0), (3, 0.0)):
        meter.report(step, loss)
    assert capsys.readouterr().err.splitlines() == [
        "target 3/4  loss 1.900  10 s left",
        "target 4/4  loss 1.805  0 s left",
    ]


@pytest.fixture
def small(text: corpus.Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> recipe.Options:
    """A training of a second, on a fortieth of the corpus, with everything a whole one has but the exam's length."""
    few = replace(text, known=trimmed(text.known[::40]), unknown=trimmed(text.unknown))
    shape = replace(TINY, vocab_size=SMALL_VOCAB)
    monkeypatch.setattr(corpus, "load", lambda: few)
    monkeypatch.setattr(tokenizer, "VOCAB_SIZE", SMALL_VOCAB)
    monkeypatch.setattr(recipe, "TARGET", shape)
    monkeypatch.setattr(recipe, "DRAFT", replace(shape, num_layers=2))
    monkeypatch.setattr(recipe, "BATCH_TOKENS", 128)
    monkeypatch.setattr(dialogue, "POOL", 24)
    monkeypatch.setattr(dialogue, "TURNS", (1, 2))
    monkeypatch.setattr(dialogue, "LONG_SHARE", 0)
    monkeypatch.setattr(evaluate, "MAX_ANSWER_TOKENS", 3)
    monkeypatch.setattr(averages, "ROWS", 64)
    whole, asked = evaluate.held_out, dialogue.asked
    monkeypatch.setattr(dialogue, "asked", lambda *args: asked(*args)[::40])
    monkeypatch.setattr(evaluate, "held_out", lambda *args: whole(*args)[::9])
    monkeypatch.setattr(recipe.exam, "load", lambda: recipe.exam.Exam((), ()))
    return recipe.Options(tmp_path / "out", first_steps=4, steps=6, draft_steps=4)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, name: str, step: int) -> None:
    """Ctrl+C in that step."""
    report = Meter.report

    def interrupting(meter: Meter, done: int, loss: float) -> None:
        report(meter, done, loss)
        if (meter.name, done) == (name, step):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Meter, "report", interrupting)


def weights(options: recipe.Options) -> list[bytes]:
    return [(options.out / name / "model.safetensors").read_bytes() for name in ("target", "draft")]


def test_a_training_interrupted_in_every_part_and_resumed_gives_the_same_weights(
    small: recipe.Options, monkeypatch: pytest.MonkeyPatch
):
    recipe.run(replace(small, out=small.out / "whole"))
    for name, step in (
        ("first layers", 2),
        ("first layers again", 1),
        ("first layers once more", 0),
        ("target", 3),
        ("draft", 1),
    ):
        with monkeypatch.context() as patched:
            interrupt_at(patched, name, step)
            with pytest.raises(
                recipe.Stopped, match=f"step {step + 1} of . of the {name}; go on with: python -m training"
            ):
                recipe.run(small)
    recipe.run(small)
    assert weights(small) == weights(replace(small, out=small.out / "whole"))
    assert not (small.out / "training.pt").exists()
    assert "Seed 0" in (small.out / "README.md").read_text()


@pytest.mark.slow
def test_what_the_first_layers_learned_alone_stays_as_it_was(small: recipe.Options):
    training = recipe.Training(small, corpus.load())
    target, _ = recipe.train_both(training)
    alone = recipe.mean_of(*(training.state[go]["network"] for go in recipe.GOES.values()))
    changed = {name for name, values in target.state_dict().items() if not values.equal(alone[name].bfloat16().float())}
    learned = training.state[recipe.PARTS["whole"]]["network"]
    for part in ("model.layers.2.mlp.down_proj.weight", "model.layers.3.self_attn.o_proj.weight"):
        assert torch.equal(target.state_dict()[part], train.SOFTENED * learned[part].bfloat16().float())
    assert changed >= {f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (2, 3)}
    assert all(name.startswith(("model.layers.2.", "model.layers.3.")) for name in changed)


@pytest.mark.slow
def test_stopped_while_it_is_measured_it_says_what_is_kept(small: recipe.Options, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "measure", interrupted)
        with pytest.raises(recipe.Stopped, match=r"training\.pt keeps .* step 4 of 4 of the draft; go on with: python"):
            recipe.run(small)
    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.Muon, "step", interrupted)  # nothing is trained again
        recipe.run(small)
    assert not (small.out / "training.pt").exists()


@pytest.mark.slow
def test_a_state_of_another_training_is_refused(small: recipe.Options, monkeypatch: pytest.MonkeyPatch):
    interrupt_at(monkeypatch, "target", 1)
    with pytest.raises(recipe.Stopped):
        recipe.run(small)
    with pytest.raises(LocalspecError, match="is the state of another training"):
        recipe.run(replace(small, seed=1))
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "recipe_code", lambda: ["RATE = 1"])
        with pytest.raises(LocalspecError, match="is the state of another training"):
            recipe.run(small)
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "wordings", dict)
        with pytest.raises(LocalspecError, match="is the state of another training"):
            recipe.run(small)
    with monkeypatch.context() as patched:
        asked = recipe.exam.Question("a/b", ("Is this drawn again?",))
        patched.setattr(recipe.exam, "load", lambda: recipe.exam.Exam((asked,), ()))
        with pytest.raises(LocalspecError, match="is the state of another training"):
            recipe.run(small)
    (small.out / "training.pt").write_bytes(b"half of it")
    with pytest.raises(LocalspecError, match="cannot be read"):
        recipe.run(small)


def test_an_out_that_can_be_no_folder_is_said_before_anything_is_trained(small: recipe.Options):
    small.out.write_text("a file")
    with pytest.raises(LocalspecError, match=r"out cannot be written to \(File exists\)\. Give another --out\."):
        recipe.run(small)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that nobody may write to")
def test_an_out_that_takes_no_files_is_said_too(small: recipe.Options):
    with pytest.raises(LocalspecError, match=r"/proc cannot be written to \(.*\)\. Give another --out\."):
        recipe.run(replace(small, out=Path("/proc")))


@pytest.mark.parametrize(("option", "few"), [("--first-steps", "1"), ("--steps", "0"), ("--threads", "0")])
def test_too_few_steps_or_threads_are_refused(option: str, few: str, tmp_path: Path):
    refused = CliRunner().invoke(recipe.main, ["--out", str(tmp_path), option, few])
    assert (refused.exit_code, f"'{option}'" in refused.output) == (2, True)


def test_a_conversation_is_as_long_as_the_network_has_places_for():
    longest = dialogue.fitting(dialogue.Sample(list(range(2126)), [True] * 2126))
    assert (longest.ids, longest.learn) == (list(range(MAX_POSITIONS)), [True] * MAX_POSITIONS)


def test_every_batch_fits_the_network(text: corpus.Corpus, words: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dialogue, "POOL", 12)
    monkeypatch.setattr(dialogue, "LONG_SHARE", 1.0)
    monkeypatch.setattr(dialogue, "LONG_TURNS", 60)
    author = dialogue.Author(text, words, seed=0, decisions=0.0)
    lengths = [batch.ids.shape[1] for batch in islice(author.batches(4096), 12)]
    assert max(lengths) == MAX_POSITIONS


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", ["training.pt", "model.safetensors"])
def test_a_full_disk_is_waited_for_and_nothing_trained_is_lost(
    small: recipe.Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
):
    write_bytes, refused = Path.write_bytes, list[Path]()

    def full(part: Path, content: bytes) -> int:
        if part.name.startswith(file) and len(refused) < 3:
            refused.append(part)
            write_bytes(part, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(part, content)

    recipe.run(replace(small, out=small.out / "whole"))
    steps, step = list[int](), train.Run.state
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        patched.setattr("training.resume.time.sleep", lambda _seconds: None)
        patched.setattr(train.Run, "state", lambda run: steps.append(run.step) or step(run))
        recipe.run(small)
    assert capsys.readouterr().err.count("No space left on device. ") == len(refused) == 3
    assert len(steps) == len(recipe.PARTS)  # none was trained again
    assert weights(small) == weights(replace(small, out=small.out / "whole"))
    assert list(small.out.rglob("*.part")) == []


def test_what_cannot_be_written_for_another_reason_is_one_sentence(
    small: recipe.Options, monkeypatch: pytest.MonkeyPatch
):
    def refused(_part: Path, _path: Path) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("localspec.core.whole_file.os.replace", refused)
        with pytest.raises(
            LocalspecError,
            match=r"Cannot write .*: Permission denied\. .* keeps .*; mend that and go on",
        ):
            recipe.run(small)
    assert list(small.out.rglob("*.part")) == []


@pytest.mark.skipif(not (GUIDE / "target" / "model.safetensors").exists(), reason="the guide is not in this checkout")
def test_the_committed_guide_is_small_and_its_two_models_speak_the_same_tokens():
    counts = {}
    for name in ("target", "draft"):
        config = json.loads((GUIDE / name / "config.json").read_text())
        words = Tokenizer.from_file(str(GUIDE / name / "tokenizer.json"))
        assert config["vocab_size"] == words.get_vocab_size()
        assert config["eos_token_id"] == words.token_to_id(tokenizer.TURN_END)
        with safe_open(GUIDE / name / "model.safetensors", "pt") as weights:
            shapes = [weights.get_slice(key).get_shape() for key in weights.keys()]  # noqa: SIM118
        counts[name] = sum(torch.Size(shape).numel() for shape in shapes)
    assert counts["draft"] <= counts["target"] / 5
    assert (GUIDE / "target/tokenizer.json").read_bytes() == (GUIDE / "draft/tokenizer.json").read_bytes()
    assert sum(file.stat().st_size for file in GUIDE.rglob("*") if file.is_file()) < 20e6


@pytest.mark.slow
def test_a_short_training_learns_to_answer_and_its_exits_to_agree(text: corpus.Corpus, words: Tokenizer):
    """With 541 answers known, guessing costs 5.98 a token, and the last hundred batches 3.32. A batch is a conversation
    or two: of the last two hundred, twenty in a row cost from 3.12 to 3.54, and a hundred from 3.28 to 3.36."""
    network, losses = tiny_training(text, words, 1200)
    assert sum(losses[-100:]) / 100 < guessing(islice(dialogue.Author(text, words, 0, 0.0).batches(256), 1200)) - 2
    questions, known = evaluate.held_out(text, words, 0)[:5], evaluate.known_answers(text, words)
    report = evaluate.measure(network, network, questions, known, tokenizer.control_ids(words)[tokenizer.TURN_END])
    assert report.exits[-1].acceptance == 1
    assert report.draft_acceptance == 1
    assert report.exits[2].acceptance > 0.3
