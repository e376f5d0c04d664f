"""Chats are kept as they were said: branches, answers in the making, every round; deleted means gone."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import NoSuchChat
from localspec.core.events import DrafterSums
from localspec.history import (
    Attachment,
    Generation,
    History,
    NewChat,
    SavedAnswer,
    StoredMessage,
    Tree,
    first_line,
)
from localspec.history.database import connect
from localspec.history.export import all_steps
from localspec.history.open_file import beside, copy, dated
from localspec.history.records import STATUS_OF
from tests.support.chats import ROUNDS, answer, chat, contents, deepen, partial, reply, stats

HOSTILE = (
    "[/nope]",
    "\x1b]52;c;cm0gLXJm\x07",
    "a\0b",
    "\u202egnp.exe",
    "<|im_end|>",
    "'; DROP TABLE message; --",
    "\r\n\r\n",
    "\ufeffmark",
    "👩‍👩‍👧 e\u0301 \U0010ffff",
    "",
)


@pytest.fixture
def queries(history: History) -> list[str]:
    """What the history asks SQLite from now on."""
    asked: list[str] = []
    history._database._db.set_trace_callback(asked.append)
    return asked


def said(history: History, chat_id: str) -> list[str]:
    return [message.content for message in history.open(chat_id).branch]


# --- chats


def test_a_history_lives_in_the_data_folder_and_is_for_the_user_alone(history: History):
    chat(history, "mine")
    assert history.path == paths.history_file()
    assert history.notices == ()
    assert stat.S_IMODE(history.path.parent.stat().st_mode) == 0o700
    files = list(history.path.parent.iterdir())
    assert history.path.with_name("history.db-wal") in files
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_that_others_could_read_is_theirs_no_longer():
    History().close()
    os.chmod(paths.history_file(), 0o644)
    History().close()
    assert stat.S_IMODE(paths.history_file().stat().st_mode) == 0o600


def test_a_chat_that_was_kept_is_opened_as_it_was(history: History):
    file = Attachment(path="notes.txt", mime="text/plain", sha256="00", text="remember")
    question = history.begin(NewChat("guide", "Tale", "balanced", "Be brief."), "Once?", attachments=(file,))
    made = Generation(
        "guide", "sha", "int8", "cpu", "early-exit:2", {"temperature": 0.5, "stop": ("\n",)}, {"torch": "2.11"}
    )
    whole = SavedAnswer("Upon a time.", msgspec.structs.replace(made, stats=stats(*ROUNDS)), ROUNDS)
    written = reply(history, question, "")
    history.save(written.id, whole)
    with History() as again:
        opened = again.open(question.chat_id)
        assert (opened.chat.title, opened.chat.preset, opened.chat.system) == ("Tale", "balanced", "Be brief.")
        assert (opened.chat.head_id, opened.chat.num_messages) == (written.id, 2)
        assert opened.branch[0] == question
        assert opened.branch[0].attachments == (file,)
        assert opened.branch[1].content == "Upon a time."
        assert opened.branch[1].status == "done"
        assert opened.branch[1].generation == whole.generation
        assert again.steps(written.id) == ROUNDS


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_come_back_as_they_were_said(history: History, text: str):
    question = history.begin(NewChat(text, text, text, text), text)
    written = reply(history, question, "")
    history.save(written.id, answer(text))
    opened = history.open(question.chat_id)
    assert [message.content for message in opened.branch] == [text, text]
    assert (opened.chat.title, opened.chat.model_key, opened.chat.system) == (text, text, text)


def test_half_a_character_is_kept_as_a_replacement_and_not_refused(history: History):
    question = history.begin(NewChat("guide"), "ab\ud83dc, \ud83d\ude00")
    assert said(history, question.chat_id) == ["ab\ufffdc, 😀"]


def test_chats_are_listed_pinned_first_then_used_last(history: History):
    first, second, _ = (chat(history, text)[0] for text in ("one", "two", "three"))
    reply(history, first, "again")
    history.change(second.chat_id, pinned=True)
    assert [each.title for each in history.chats()] == ["two", "one", "three"]
    assert [each.title for each in history.chats(limit=1)] == ["two"]


def test_the_latest_chat_is_the_one_that_was_used_last(history: History):
    assert history.latest() is None
    first, second = (chat(history, text)[0] for text in ("one", "two"))
    history.change(first.chat_id, pinned=True, title="renamed")
    assert history.latest() == history.open(second.chat_id).chat


def test_a_change_leaves_the_rest_of_the_chat_alone(history: History):
    question = history.begin(NewChat("guide", "Tale", system="Be brief."), "Once?")
    before = history.open(question.chat_id).chat
    history.change(question.chat_id, title="[/nope]")
    history.change(question.chat_id)
    assert history.open(question.chat_id).chat == msgspec.structs.replace(before, title="[/nope]")


def test_a_chat_is_found_by_the_beginning_of_its_id(history: History):
    ids = [chat(history, str(number))[0].chat_id for number in range(40)]
    assert history.find_chat(ids[0][:8].upper()).id == ids[0]
    with pytest.raises(NoSuchChat, match="Several chat ids"):
        history.find_chat(max("0123456789abcdefghjkmnpqrstvwxyz", key=lambda c: sum(i[0] == c for i in ids)))
    for nothing in ("", "%", "zzzzzzzzzzz", "' OR 1=1 --", "\ud800"):
        with pytest.raises(NoSuchChat):
            history.find_chat(nothing)


# --- the tree


@pytest.mark.parametrize("text", ["No: it was twice.", "  a\n\n\tb ", "x\0y", "👩‍👩‍👧 e\u0301"])
def test_an_edited_answer_keeps_what_the_user_wrote_apart_from_what_a_model_added(history: History, text: str):
    question, first = chat(history, "Once?", "Upon a time.")
    edited = history.append(StoredMessage.unsaved(question.chat_id, "assistant", text, question.id, edited=len(text)))
    opened = history.open(question.chat_id)
    assert opened.branch == [question, edited]
    assert opened.tree.siblings(edited.id) == (first.id, edited.id)
    (step,) = all_steps(edited, history.steps)
    assert {token.source for token in step.tokens} == {"edited"}
    assert (step.kind, step.text, step.drafted) == ("edited", text, 0)
    assert history.totals().models == (), "no model wrote it"
    history.save(edited.id, answer(f"{text}Drafts it."))
    continued = history.open(question.chat_id).branch[-1]
    assert (continued.content, continued.edited) == (f"{text}Drafts it.", len(text))
    assert all_steps(continued, history.steps) == (step, *ROUNDS)
    assert all_steps(first, history.steps) == all_steps(question, history.steps) == ()
    assert history.totals().models[0].predicted_n == 4


def test_a_retry_is_a_sibling_and_the_chat_goes_on_from_it(history: History):
    question, first = chat(history, "Once?", "Upon a time.")
    second = reply(history, question, "In a hole in the ground.")
    assert said(history, question.chat_id) == ["Once?", "In a hole in the ground."]
    tree = history.open(question.chat_id).tree
    assert tree.siblings(first.id) == tree.siblings(second.id) == (first.id, second.id)


def test_an_edited_first_question_begins_a_branch_of_its_own(history: History):
    question, _ = chat(history, "Once?", "Upon a time.")
    edited = history.append(StoredMessage.unsaved(question.chat_id, "user", "Twice?"))
    assert said(history, question.chat_id) == ["Twice?"]
    assert history.open(question.chat_id).tree.children(None) == (question.id, edited.id)


def test_the_branch_that_was_chosen_is_the_one_that_opens(history: History):
    question, first = chat(history, "Once?", "Upon a time.")
    reply(history, question, "Never.")
    listed = history.chats()[0].updated_at
    history.set_head(question.chat_id, first.id)
    assert said(history, question.chat_id) == ["Once?", "Upon a time."]
    assert history.chats()[0].updated_at == listed, "looking is not using"
    history.set_head(question.chat_id, None)
    assert said(history, question.chat_id) == []


def test_stepping_beside_stops_at_the_first_and_the_last(history: History):
    question, first = chat(history, "Once?", "1")
    second, third = (reply(history, question, text) for text in "23")
    tree = history.open(question.chat_id).tree
    assert [tree.beside(second.id, places) for places in (-1, 0, 1)] == [first.id, second.id, third.id]
    assert [tree.beside(first.id, -1), tree.beside(third.id, 9)] == [first.id, third.id]


def test_a_branch_goes_on_where_it_was_continued_last(history: History):
    question, first, *_, last = chat(history, "a", "b", "c", "d")
    newer = reply(history, first, "e")
    other = reply(history, question, "f")
    tree = history.open(question.chat_id).tree
    assert tree.tip(first.id) == newer.id
    assert tree.tip(last.id) == last.id
    assert tree.tip(question.id) == other.id


def test_a_tree_that_is_damaged_has_every_message_once_and_no_circle():
    def node(number: int, parent: int | None) -> StoredMessage:
        return StoredMessage(number, "c", parent, "user", "", "done", "")

    tree = Tree([node(1, 3), node(2, 2), node(3, 1), node(4, 99)])
    assert tree.children(None) == (1, 2, 4)
    assert [each.id for each in tree.path(3)] == [1, 3]
    assert tree.path(99) == tree.path(None) == []
    assert len(tree) == 4


@pytest.mark.parametrize("size", [2, 1000])
def test_a_chat_is_opened_in_as_many_queries_however_long_it_is(history: History, queries: list[str], size: int):
    question = chat(history, "first")[0]
    deepen(history, question.chat_id, size)
    history.save(size, answer())
    queries.clear()
    assert len(history.open(question.chat_id).tree) == size
    assert len(queries) == 5, queries  # a transaction around three
    queries.clear()
    history.chats()
    assert len(queries) == 1


def test_a_chat_longer_than_sqlite_cascades_is_deleted(history: History):
    """SQLite follows a cascade a thousand rows deep and then refuses."""
    question = chat(history, "first")[0]
    for delete in (lambda: history.delete_message(2), lambda: history.delete(question.chat_id)):
        deepen(history, question.chat_id, 2500)
        delete()
        assert history.search("deep") == []
    assert history.chats() == []


# --- answers


@pytest.mark.parametrize("reason", [reason for reason in STATUS_OF if reason])
def test_an_answer_says_how_it_ended(history: History, reason):
    question, written = chat(history, "Once?", "")
    history.save(written.id, answer(finish=reason))
    kept = history.open(question.chat_id).tree.nodes[written.id]
    assert kept.status == STATUS_OF[reason]
    assert kept.generation is not None
    assert kept.generation.stats.finish_reason == reason


def test_an_answer_in_the_making_is_kept_so_far_and_then_whole(history: History):
    question = history.begin(NewChat("guide"), "Once?")
    written = history.append(StoredMessage.unsaved(question.chat_id, "assistant", "", question.id, status="partial"))
    for text, rounds in (("Dra", ROUNDS[:1]), ("Drafts it", ROUNDS)):
        history.save(written.id, partial(text, rounds=rounds))
        with History() as crashed:
            kept = crashed.open(question.chat_id).branch[-1]
            assert (kept.content, kept.status) == (text, "partial")
            assert crashed.steps(written.id) == rounds
    history.save(written.id, answer())
    kept = history.open(question.chat_id).branch[-1]
    assert (kept.content, kept.status, len(history.open(question.chat_id).tree)) == ("Drafts it.", "done", 2)
    assert history.totals().models[0].answers == 1


def test_what_no_model_wrote_has_no_rounds(history: History):
    question, _ = chat(history, "Once?", "typed")
    assert history.steps(question.id) == history.steps(12345) == ()


@pytest.mark.parametrize("figures", ['{"predicted_n": "many"}', '{"predicted_n": 1.5}', "{", ""])
@pytest.mark.parametrize("steps", [b"", b"\x00rubbish", b"x\x9c\x03\x00\x00\x00\x00\x01", None])
def test_details_that_are_damaged_cost_the_details_and_not_the_text(steps: bytes | None, figures: str):
    damage = "UPDATE generation SET steps = ?, stats_json = ?, params_json = '['"
    with History() as history:
        question, written = chat(history, "Once?", "")
        history.save(written.id, answer())
        history._database.write(lambda db: db.execute(damage, (steps, figures)))
    with History() as again:
        assert again.notices == ()
        assert said(again, question.chat_id) == ["Once?", "Drafts it."]
        assert again.steps(written.id) == ()
        assert again.totals().models[0].answers == 1


def test_bytes_that_are_no_text_are_shown_as_replacements(history: History):
    question = chat(history, "Once?")[0]
    history._database.write(lambda db: db.execute("UPDATE message SET content = CAST(X'61ff62' AS TEXT)"))
    assert said(history, question.chat_id) == ["a\ufffdb"]


def test_what_was_deleted_meanwhile_is_a_sentence_and_lands_in_no_other_chat(history: History):
    """Ids are not given twice, so the answer to a deleted question cannot overwrite a newer one."""
    question, written = chat(history, "Once?", "")
    with History() as other:
        other.delete(question.chat_id)
    newer = chat(history, "Twice?", "mine")[-1]
    elsewhere = chat(history, "Thrice?")[0]
    for late in (
        lambda: history.save(written.id, answer("lost")),
        lambda: history.save(elsewhere.id, answer("in place of a question")),
        lambda: history.append(StoredMessage.unsaved(question.chat_id, "user", "lost", parent_id=written.id)),
        lambda: history.append(StoredMessage.unsaved(newer.chat_id, "user", "lost", parent_id=question.id)),
        lambda: history.append(StoredMessage.unsaved(elsewhere.chat_id, "user", "lost", parent_id=newer.id)),
        lambda: history.change(question.chat_id, title="lost"),
        lambda: history.set_head(newer.chat_id, question.id),
        lambda: history.delete(question.chat_id),
        lambda: history.delete_message(written.id),
        lambda: history.open(question.chat_id),
    ):
        with pytest.raises(NoSuchChat):
            late()
    assert contents(history.path) == ["Twice?", "mine", "Thrice?"]


# --- deletion


def test_a_deleted_message_takes_what_followed_and_the_head_moves_to_what_is_left(history: History):
    question, first, *_ = chat(history, "a", "b", "c", "d")
    second = reply(history, question, "e")
    history.set_head(question.chat_id, 4)
    history.delete_message(first.id)
    assert said(history, question.chat_id) == ["a", "e"]
    history.delete_message(second.id)
    assert said(history, question.chat_id) == ["a"]
    history.delete_message(question.id)
    assert said(history, question.chat_id) == []


def test_a_head_elsewhere_stays_where_it_is(history: History):
    question, first = chat(history, "a", "b")
    second, _ = (reply(history, question, text) for text in "cd")
    history.set_head(question.chat_id, first.id)
    history.delete_message(second.id)
    assert said(history, question.chat_id) == ["a", "b"]


def test_nothing_of_a_deleted_chat_is_left_on_the_disk(history: History):
    """Neither in the pages, nor in the log, nor in the index of words."""
    for number in range(20):
        chat(history, f"kept {number}", "also kept")
    question, written = chat(history, "xylophone secret", "", title="marimba")
    history.save(written.id, answer("xylophone answer"))
    history.delete(question.chat_id)
    for file in history.path.parent.iterdir():
        found = file.read_bytes().lower()
        assert b"xylophone" not in found, file
        assert b"marimba" not in found, file
    assert len(history.chats()) == 20


def test_chats_are_deleted_all_or_none(history: History):
    ids = [chat(history, text)[0].chat_id for text in "abc"]
    with pytest.raises(NoSuchChat):
        history.delete(ids[0], "nobody", ids[1])
    assert len(history.chats()) == 3
    history.delete(*ids[:2])
    assert [each.id for each in history.chats()] == ids[2:]


def test_copies_beside_the_history_are_named(history: History):
    assert history.copies() == []
    with closing(connect(history.path)) as db:
        copy(db, beside(history.path, ".copying"), dated(history.path, "version-1"))
    assert [each.name.startswith("history.db.version-1-") for each in history.copies()] == [True]


# --- totals, titles, threads


def test_totals_are_sums_over_answers_and_rates_are_derived(history: History):
    assert history.totals().models == ()
    for _ in range(2):
        history.save(chat(history, "Once?", "")[-1].id, answer())
    one = stats(*ROUNDS)
    total = history.totals()
    assert (total.chats, total.messages) == (2, 4)
    assert total.file_bytes > 0
    (model,) = total.models
    assert (model.target, model.answers, model.predicted_n) == ("guide", 2, 2 * one.predicted_n)
    assert model.predicted_per_second == pytest.approx(one.predicted_per_second)
    assert model.acceptance_rate == one.acceptance_rate
    assert model.speedup == one.speedup


def test_an_earlier_versions_speed_up_against_another_start_counts_in_no_figure(history: History):
    given, compared = answer(), stats(*ROUNDS).predicted_ms
    made = replace(given.generation, stats=replace(given.generation.stats, speedup=1.25))
    for _ in range(2):
        history.save(chat(history, "Once?", "")[-1].id, replace(given, generation=made))
    assert history.totals().models[0].compared_ms == pytest.approx(2 * compared)
    calibrated = "UPDATE generation SET stats_json = json_set(stats_json, '$.baseline_source', 'calibrated')"
    history._database.write(lambda db: db.execute(f"{calibrated} WHERE message_id = 2"))
    assert history.totals().models[0].compared_ms == pytest.approx(compared)
    assert history.totals().models[0].speedup == pytest.approx(1.25)


def test_totals_have_the_drafts_of_each_kind_of_drafter_and_none_of_answers_from_before(history: History):
    by_drafter = {"lookup": DrafterSums(5, 3, 1), "early-exit": DrafterSums(2, 2, 0)}
    for known in (by_drafter, by_drafter, {}):
        given = answer()
        sums = replace(given.generation.stats, by_drafter=known)
        made = replace(given.generation, stats=sums)
        saved = chat(history, "Once?", "")[-1]
        history.save(saved.id, replace(given, generation=made))
        assert history.open(saved.chat_id).branch[-1].generation == made
    (model,) = history.totals().models
    assert model.by_drafter == {"lookup": DrafterSums(10, 6, 2), "early-exit": DrafterSums(4, 4, 0)}


@pytest.mark.parametrize("broken", ["{", "[]", '{"by_drafter": 3}', '{"by_drafter": {"lookup": 3}}'])
def test_drafts_that_cannot_be_read_leave_the_totals(history: History, broken: str):
    history.save(chat(history, "Once?", "")[-1].id, answer())
    history._database.write(lambda db: db.execute("UPDATE generation SET stats_json = ?", (broken,)))
    (model,) = history.totals().models
    assert (model.answers, model.by_drafter) == (1, {})


def test_a_trial_of_one_drafter_or_format_marks_no_other(history: History):
    """Every pair of drafter and format has its own sums; a model's rows stay together, the model used most first."""
    for target, draft, quant in (
        ("big", "small", "int8"),
        ("other", None, "int8"),
        ("big", "early-exit:8", "int8"),
        ("big", "small", "int8"),
        ("big", "small", "int4"),
        ("big", None, "int8"),
    ):
        given = answer()
        made = replace(given.generation, target=target, draft=draft, quant=quant)
        history.save(chat(history, "Once?", "")[-1].id, replace(given, generation=made))
    rows = [(one.target, one.draft, one.quant, one.answers) for one in history.totals().models]
    assert rows == [
        ("big", "small", "int8", 2),
        ("big", "", "int8", 1),
        ("big", "early-exit:8", "int8", 1),
        ("big", "small", "int4", 1),
        ("other", "", "int8", 1),
    ]


def test_a_title_is_the_first_line_and_fits():
    assert first_line("\n\n  What is\ta drafter?  \nTell me.") == "What is a drafter?"
    assert first_line("") == first_line(" \n ") == ""
    assert len(first_line("long " * 100)) <= 60
    assert first_line("long " * 100).endswith("…")


def test_threads_of_a_program_take_turns(history: History):
    threads = [Thread(target=chat, args=(history, *"abcdef")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [said(history, each.id) for each in history.chats()] == [list("abcdef")] * 4


def test_work_that_raises_has_not_happened(history: History):
    def work(db):
        db.execute("DELETE FROM message")
        raise KeyboardInterrupt

    chat(history, "kept")
    with pytest.raises(KeyboardInterrupt):
        history._database.write(work)
    assert contents(Path(history.path)) == ["kept"]
