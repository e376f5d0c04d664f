# Everything runs in .venv, built when it is missing or older than what it was built from.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv/.peers
# Three processes for two cores, since many tests wait; a file's tests in one; in the order that tests/conftest.py gives
# them. A process that dies ends the run: xdist would put another in its place, and wait for it for ever.
WORKERS = $(shell $(PYTHON) -c 'import os; print(-(-3 * (os.cpu_count() or 1) // 2))')
BY_FILE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# What is imported once is compiled once, also where the environment says otherwise: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: chat real peers test suite quick slow lint style types fix bench measure shots snapshots help-pages

chat: $(READY)
	$(BIN)/localspec chat

# Real weights, tokenizers and templates for the tests, into .venv/real. What is there is not fetched again; what cannot
# be had is one line, and the tests that want it are skipped (in CI they fail).
real: $(READY)
	$(BIN)/python -m tests.real.fetch

# llama.cpp, compiled here once, for make slow and the benchmarks; make test does without.
peers: $(PEERS)

# Types are checked beside the tests: for a minute they would hold one core, and the others would wait.
test: style
	$(MAKE) --no-print-directory --jobs 2 types suite

suite: real
	$(BIN)/python -m pytest $(BY_FILE) -m "not slow"

quick: $(READY)
	$(BIN)/python -m pytest $(BY_FILE) -m "not slow and not heavy"

slow: lint real
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: style types

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/localspec bench guide --against transformers

# Everything that can be measured here, in less than nine minutes, as a section for docs/measurements-archive.md. On a
# machine without .venv: PYTHONPATH=. python3 -m benchmarks.survey
measure: $(READY)
	$(BIN)/python -m benchmarks.survey

shots: $(READY)
	$(BIN)/python -m benchmarks.shots

snapshots: $(READY)
	SNAPSHOTS=write $(BIN)/python -m pytest tests/tui/test_snapshots.py

# The help texts in docs/cli.md, after a change of a command or a flag.
help-pages: $(READY)
	$(BIN)/python -m tests.support.help_pages

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv (once; about a minute)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

$(PEERS): $(READY)
	@echo "Compiling llama.cpp into .venv (once; ten minutes and more)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[peers]'
	@touch $@
