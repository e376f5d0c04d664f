"""benchmarks/interface.py notices what scripts would notice, and runs the clone that it is told to."""

from __future__ import annotations

from pathlib import Path

from benchmarks.interface import HERE, INVOCATIONS, Clone, Outcome, keys


def test_every_change_that_a_script_would_notice_is_named():
    before = Outcome(0, frozenset({"--json", "--shape"}), frozenset({"stats", "stats.draft_n"}))
    after = Outcome(2, frozenset({"--json", "--plot"}), frozenset({"stats"}))
    assert list(before.changes(after)) == [
        "exit code 0 -> 2",
        "flag --shape is gone",
        "flag --plot is new",
        "key stats.draft_n is gone",
    ]
    assert list(before.changes(before)) == []


def test_keys_are_found_in_lists_and_in_lines():
    assert keys('{"a": [{"b": 1}, {"c": {"d": 2}}]}') == {"a", "a.b", "a.c", "a.c.d"}
    assert keys('not JSON\n{"type": "step"}\n{"done": 1}') == {"type", "done"}


def test_a_clone_runs_its_own_package(tmp_path: Path):
    package, folder = tmp_path / "clone" / "localspec", tmp_path / "folder"
    package.mkdir(parents=True)
    folder.mkdir()
    (package / "__main__.py").write_text("print('{\"other\": 1}'); raise SystemExit(7)")
    (package / "__init__.py").touch()
    assert Clone(package.parent, folder).run("anything") == Outcome(7, frozenset(), frozenset({"other"}))
    assert Clone(HERE, folder).run("--version").exit_code == 0


def test_there_are_at_least_forty_and_none_twice():
    assert len(set(INVOCATIONS)) == len(INVOCATIONS) >= 40
