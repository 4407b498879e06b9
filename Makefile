# The two commands of the README set everything up on a fresh machine:
#   make run    a recipe launches the real SGLang on the CPU and shows its acceptance length
#   make test   the fast tests, a sample of the slow ones, the core of those on the real engine
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What fails runs once more, alone; what passes only then is named.
TESTS := $(BIN)/python tools/run_tests.py -q
RECIPE ?= cpu_ngram
JOBS ?= auto
INSTALL := $(BIN)/speclaunch engine install cpu
# Tests on the engine stay in the worker that has started it. They are the last.
PARALLEL := -n $(JOBS) --dist loadgroup --no-loadscope-reorder
# Tests start many processes, and without bytecode each would compile speclaunch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-all test-fast test-slow test-e2e lint format bench net verdicts docs dist clean help
.DEFAULT_GOAL := help

help: ## Show this.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

$(BIN)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "speclaunch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(BIN)/.ready ## Launch a recipe (RECIPE=cpu_ngram) on the CPU engine and check it.
	@$(INSTALL)
	@$(BIN)/speclaunch recipe=$(RECIPE) --smoke

# LINT=1: lint as well, at the same time (make itself sets LINT to a word). TESTS_PART=3: another part of each campaign.
test: $(BIN)/.ready ## What a change must pass: fast tests, a tenth of each campaign, the engine's core.
	$(TESTS) --sample --beside "engine install=$(INSTALL)" $(if $(filter 1,$(LINT)),--beside "lint=make lint") $(PARALLEL)

test-all: $(BIN)/.ready ## All tests, resumed where a run of the same tree ended; for releases.
	$(BIN)/python tools/test_all.py -q --beside "engine install=$(INSTALL)" $(PARALLEL)

test-fast: $(BIN)/.ready ## The inner loop: what is quick and needs no engine (T=tests/engine/plan: only those).
	$(TESTS) -m 'not e2e and not slow and not thorough' --processes $(JOBS) $(T)

test-slow: $(BIN)/.ready ## Campaigns, whole processes, every release, every condition of every rule turned around.
	$(TESTS) -m '(slow or thorough) and not e2e' -n $(JOBS) $(T)

test-e2e: $(BIN)/.ready ## The tests on the real engine on the CPU.
	@$(INSTALL)
	$(TESTS) -m e2e $(PARALLEL) $(T)

lint: $(BIN)/.ready ## ruff, mypy, and the words of the pages.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.support.style

format: $(BIN)/.ready ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BIN)/.ready ## What speclaunch costs, as ratios in one run (ONLY=start,one: only those; ARGS=--cpu).
	@$(if $(ONLY),,$(INSTALL))
	$(BIN)/python tools/bench.py $(if $(ONLY),--only $(ONLY)) $(ARGS)

# BASE=a commit (built once, in a folder of its own) or the folder of a ready checkout.
net: $(BIN)/.ready ## Compare all outputs with those of BASE=COMMIT (QUICK=1: a tenth; ONLY=lint,help: only those).
	$(BIN)/python tools/net.py $(BASE) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(ARGS)

verdicts: $(BIN)/.ready ## How rules and plan agree with the verdicts of the released engines.
	@$(BIN)/python -m tests.support.conformance.report

docs: $(BIN)/.ready ## The documentation as a site, in build/docs/ (SPECLAUNCH_DOCS_URL: where it will be published).
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(BIN)/.ready ## The wheel and the source archive, in dist/, tried in an empty environment (TAG=v1.2.3).
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python tools/check_distribution.py dist $(if $(TAG),--tag $(TAG))
	@ls dist

clean: ## Remove what was built here (not the CPU engine, which is in the cache directory).
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
