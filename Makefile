# Everything runs in the virtual environment .venv, which the targets set up by themselves.
#
#   make test        lint, types, all tests and the packages: what CI runs
#   make demo ARGS="--yes"

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
# Folders with a package.json: the tests of the UI and the TypeScript example. Their tests are skipped without Node.
NODE_DIRS := $(patsubst %/package.json,%,$(wildcard tests/*/package.json examples/*/package.json))
# Each process of pytest-xdist starts a Temporal server of its own.
JOBS   ?= 3

# Where nothing compiled may be kept, each of the many processes that the tests start compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup links test full lint format types pytest cases demo bench fuzz soak race crashes postgres histories docs dist constraints clean

help:
	@sed -n 's/^#   //p; s/^\([a-z]*\):.*## /make \1    /p' Makefile

setup: links $(STAMP) $(if $(shell command -v npm),$(NODE_DIRS:=/node_modules/.package-lock.json)) ## create .venv with the package and everything that development needs

links:
	@test -d src/turngate/workflows -a -d src/turngate/activities || { \
	  echo "src/turngate/workflows is not a folder: this checkout has no symbolic links;" \
	       "check it out again with 'git clone -c core.symlinks=true'"; exit 1; }

$(STAMP): pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Turngate needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# The pip that Python 3.11 brings takes half a minute longer for what follows.
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check 'pip>=25.3'
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

test: setup lint types pytest ## lint, types, tests

lint: setup ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## let ruff lay out the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup ## mypy --strict
	$(BIN)/mypy

pytest: setup
	@# Compiled once, here, what else each of the processes would compile for itself at the same time.
	@$(BIN)/pytest --collect-only --quiet --quiet --assert plain > /dev/null || true
	@# What fails is run once more, alone and said so: many tests kill real processes and race real clocks, and a busy
	@# machine can be late. A test that fails twice fails. Only then are the assertions taken apart, which takes each
	@# process many seconds before its first test.
	$(BIN)/pytest -n $(JOBS) --dist worksteal --assert plain $(ARGS) || { \
	  echo "--- once more, alone: what failed ---"; $(BIN)/pytest --last-failed --last-failed-no-failures none $(ARGS); }

full: ## all tests, the long ones in full
	TURNGATE_FULL=1 $(MAKE) test

cases: setup ## the given/when/then cases, or those in TURNGATE_CASES; ids or areas in ARGS
	$(BIN)/python -m tests.case_runner $(ARGS)

demo: setup ## the guided demo; options in ARGS
	$(BIN)/turngate demo $(ARGS)

bench: setup ## measure latency, events and throughput
	$(BIN)/python -m bench $(ARGS)

fuzz: setup ## send whatever can be sent to paused runs, for some minutes
	$(BIN)/python -m tests.fuzz $(ARGS)

soak: setup ## many turns with crashes in between
	$(BIN)/python -m bench.soak $(ARGS)

race: setup ## hundreds of turns that continue as new while decisions arrive
	$(BIN)/python -m tests.crash.racing $(ARGS)

crashes: setup ## the same crashes beside LangChain's middleware; writes bench/crash_comparison.md
	$(BIN)/pip install --quiet --disable-pip-version-check -r bench/crash_requirements.txt
	$(BIN)/python -m bench.crash_comparison $(ARGS)

postgres: setup ## beside LangChain's checkpointer for PostgreSQL; writes bench/postgres.json
	$(BIN)/pip install --quiet --disable-pip-version-check -r bench/postgres_requirements.txt
	$(BIN)/python -m bench.postgres $(ARGS)

histories: setup ## record this release's histories under tests/histories
	$(BIN)/python -m tests.histories.record $(ARGS)

docs: setup ## build the documentation into site/
	$(BIN)/mkdocs build --strict $(ARGS)

dist: setup ## build wheel and sdist into dist/
	$(BIN)/python -m build $(ARGS)

constraints: setup ## write the installed versions to constraints.txt
	$(BIN)/pip freeze --exclude-editable | grep '==' > constraints.txt

clean: ## remove everything that was built
	rm -rf $(NODE_DIRS:=/node_modules)
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
