"""The recipe: the corpus is sound, every exit learns, a training is repeatable, and the committed parts agree."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from jinja2 import Environment
from safetensors import safe_open
from tokenizers import Tokenizer

from localspec.errors import LocalspecError
from localspec.recipe import __main__ as recipe
from localspec.recipe import card, corpus, dialogue, evaluate, snapshot, tokenizer, train
from localspec.recipe.network import Network, Shape, drop_rates
from localspec.recipe.vary import vary

pytestmark = pytest.mark.heavy

GUIDE = Path(__file__).parents[1] / "assets" / "guide"
TINY = Shape(tokenizer.VOCAB_SIZE, 32, 48, 4, 4, 2, 8)


@pytest.fixture(scope="module")
def text() -> corpus.Corpus:
    return corpus.load()


@pytest.fixture(scope="module")
def words(text: corpus.Corpus) -> Tokenizer:
    return tokenizer.train(dialogue.tokenizer_texts(text))


def tiny_training(text: corpus.Corpus, words: Tokenizer, steps: int) -> tuple[Network, list[float]]:
    torch.manual_seed(0)
    network, losses = Network(TINY), list[float]()
    batches = dialogue.Author(text, words, 0).batches(256)
    train.train_target(network, batches, train.Schedule(steps, 1e-2, half=False), lambda _, loss: losses.append(loss))
    return network, losses


def test_the_corpus_asks_every_question_in_many_ways(text: corpus.Corpus):
    about_localspec = [entry for name in corpus.TOPICS if name != "talk.md" for entry in corpus._known(name)]
    assert len(about_localspec) >= 70
    assert all(len(entry.phrasings) >= corpus.MIN_PHRASINGS for entry in text.known)
    assert len(corpus.section(text.unknown, "topics").phrasings) >= 150


def test_no_question_has_two_answers(text: corpus.Corpus):
    asked = Counter(q.lower().rstrip("?!. ") for entry in (*text.known, text.unknown[-1]) for q in entry.phrasings)
    asked.update(q.lower().rstrip("?!. ") for entry in text.follow_ups.values() for q in entry.phrasings)
    assert [question for question, count in asked.items() if count > 1] == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("? a question\n# key\n", "test.md:1: text before the first '# key' heading."),
        ("# key\n\nAn answer.\n", "test.md:1: 'key' has no phrasing; write one as '? How does it work?'."),
        ("# key\n? a\n? A\n", "test.md:1: 'A' is already in 'key'."),
        ("# key\n? a\n# key\n? b\n", "test.md:3: '# key' is already in 'key'."),
        ("# key\n? a\n```sh\nls\n", "test.md:1: 'key' has a code fence that is never closed."),
        ("# key\n? a\n+ longer\nb\n", "test.md:1: 'key' has a second or unknown part '+ longer'."),
    ],
)
def test_a_malformed_corpus_file_gets_one_sentence_with_its_line(body: str, complaint: str):
    with pytest.raises(LocalspecError) as caught:
        corpus.parse(body, "test.md")
    assert str(caught.value) == complaint


def test_a_heading_inside_a_code_fence_belongs_to_the_answer():
    (entry,) = corpus.parse("# key\n? a\n```sh\n# comment\n```\n+ more\nb\n", "test.md")
    assert entry.answer == "```sh\n# comment\n```"
    assert entry.follow_up("more") == "b"


def test_variation_is_decided_by_the_seed_and_never_empty():
    asked = [vary("What is a draft?", Random(seed)) for seed in range(200)]
    assert asked == [vary("What is a draft?", Random(seed)) for seed in range(200)]
    assert all(asked)
    assert len(set(asked)) > 30


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


def test_twenty_steps_are_repeatable_and_reduce_the_loss(text: corpus.Corpus, words: Tokenizer):
    first, second = tiny_training(text, words, 20), tiny_training(text, words, 20)
    assert first[1] == second[1]
    assert all(torch.equal(a, b) for a, b in zip(first[0].parameters(), second[0].parameters(), strict=True))
    assert sum(first[1][-4:]) / 4 < first[1][0] - 1


def test_greedy_by_fixed_point_is_greedy_token_by_token(monkeypatch: pytest.MonkeyPatch):
    """A wrong guess of any length must not change the answer."""
    monkeypatch.setattr(evaluate, "MAX_ANSWER_TOKENS", 30)
    torch.manual_seed(3)
    network = Network(TINY)
    for parameter in network.parameters():
        parameter.data.mul_(3)  # untrained logits are nearly flat; make the choices clear
    prompt, slow = [5, 6, 7], list[int]()
    while len(slow) < evaluate.MAX_ANSWER_TOKENS:
        slow.append(int(network(torch.tensor([prompt + slow]), [4])[4][-1].argmax()))
    assert evaluate.greedy(network, prompt, [9] * 25, end=-1) == slow
    end = slow[10]
    assert evaluate.greedy(network, prompt, [], end) == slow[: slow.index(end) + 1]


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


def test_the_card_says_only_what_was_measured(text: corpus.Corpus):
    network = Network(TINY)
    exits = tuple(evaluate.ExitScore(layers, 1.0, 1 - 0.5**layers) for layers in range(1, 5))
    report = evaluate.Report(exits, 0.75, {"known": (3, 4)})
    training = card.Training("python -m localspec.recipe", 0, 1.5, 1000, 500, 2, "in a test")
    page = card.write(text, network, network, training, report)
    assert f"Best exit layer: **{card.best_exit(exits)}**" in page
    assert "| 3 | 1.000 | 0.875 |" in page
    assert "3 of 4 known" in page
    assert "minutes for everything\n  (in a test).\n" in page
    quiet = card.write(text, network, network, replace(training, context=""), report)
    assert "minutes for everything.\n" in quiet


def test_the_card_names_the_options_that_are_not_the_defaults():
    steps = (recipe.STEPS, recipe.DRAFT_STEPS)
    assert recipe.command(Path("out"), 1, steps, recipe.THREADS) == "python -m localspec.recipe --out out --seed 1"
    assert recipe.command(Path("out"), 1, (20, 7), 3).endswith("--seed 1 --steps 20 --draft-steps 7 --threads 3")


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
    assert sum(file.stat().st_size for file in GUIDE.rglob("*") if file.is_file()) < 18e6


@pytest.mark.slow
def test_a_short_training_learns_to_answer_and_its_exits_to_agree(text: corpus.Corpus, words: Tokenizer):
    """Guessing by how often each token comes costs 5.45; a batch is a conversation or two, so twenty are averaged."""
    network, losses = tiny_training(text, words, 1200)
    assert sum(losses[-20:]) / 20 < 3.5
    questions = evaluate.held_out(text, words, 0)[:5]
    report = evaluate.measure(network, network, questions, tokenizer.control_ids(words)[tokenizer.TURN_END])
    assert report.exits[-1].acceptance == 1
    assert report.draft_acceptance == 1
    assert report.exits[2].acceptance > 0.3
