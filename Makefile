# Every target sets up what it needs: a fresh clone needs Python 3.11+, make and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
CASES  ?= 3000
JUDGED ?= 1000
START  ?= 1000
HOSTILE ?= 620
START_HOSTILE ?= 0
KILLS  ?= 25
SPLITS ?= 50
STORE  ?= build/reproduction
QUICK  := project/test_architecture unit/test_losses unit/operators/test_operators unit/crossval/test_closed_form unit/papers/test_criteria guards/test_snapshot behaviour/test_pipelines behaviour/test_mixed_grids behaviour/test_class_weight behaviour/test_leave_one_out behaviour/test_bad_input

.DEFAULT_GOAL := help
.PHONY: help demo quick test conformance fuzz hostile kills lint format bench peers reproduce reproduce-quick docs docs-external dist matrix clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cli,plot]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cli,plot,dev]"
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed  ## install, compare with scikit-learn on bundled data, search from the shell
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/command_line.py

quick: $(VENV)/.installed-dev  ## install and run the tests that matter most, in less than a minute
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) $(QUICK:%=tests/%.py)
	@echo "Not run: the other files of tests/behaviour and tests/unit, the command line, rows in blocks, the pages and their examples, doctests, fuzz and conformance. 'make test' runs all of these."

test: $(VENV)/.installed-dev  ## install and run the whole test suite
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup

# Another scikit-learn has a virtual environment of its own: make conformance SKLEARN='1.6.*'
ifdef SKLEARN
OTHER := build/sklearn-$(subst *,x,$(SKLEARN))
$(OTHER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test]" "scikit-learn==$(SKLEARN)"
	@touch $@

conformance: $(OTHER)/.installed
	OPENBLAS_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -q -n $(JOBS) tests/guards/conformance
else
conformance: $(VENV)/.installed-dev  ## run scikit-learn's own tests of its searches with ours in place (SKLEARN=1.6.*)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) tests/guards/conformance
endif

fuzz: $(VENV)/.installed-dev  ## compare CASES random calls and JUDGED judgements with scikit-learn, from seed START
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.guards.fuzz --cases $(CASES) --start $(START)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.guards.fuzz_judging --cases $(JUDGED) --start $(START)

hostile: $(VENV)/.installed-dev  ## give the shell HOSTILE bad files and arguments, from number START_HOSTILE
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.guards.hostile --cases $(HOSTILE) --start $(START_HOSTILE)

kills: $(VENV)/.installed-dev  ## kill KILLS searches with a journal, and as many with two workers, and go on
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.guards.killed_searches $(KILLS)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.guards.killed_searches $(KILLS) --n-jobs 2

lint: $(VENV)/.installed-dev  ## ruff (lint and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev  ## measure the ratios that README and docs quote
	$(BIN)/python benchmarks/squared.py
	$(BIN)/python benchmarks/everyday.py
	$(BIN)/python benchmarks/permutations.py
	$(BIN)/python benchmarks/leave_one_out.py
	$(BIN)/python benchmarks/influence.py
	$(BIN)/python benchmarks/never_slower.py
	$(BIN)/python benchmarks/many_folds.py
	$(BIN)/python benchmarks/lowrank.py --parts pass array pipeline growth

peers: $(VENV)/.installed-dev  ## search six sets by ten packages, each in its own environment; about an hour
	$(BIN)/python -m benchmarks.peers run report

reproduce: $(VENV)/.installed-dev  ## compute the tables of five papers; hours, goes on where it was stopped
	$(BIN)/python -m benchmarks.papers run report --profile full --splits $(SPLITS) --jobs $(JOBS) --store $(STORE)

reproduce-quick: $(VENV)/.installed-dev  ## the same for the smallest sets, in less than ten minutes
	$(BIN)/python -m benchmarks.papers run report --profile quick --jobs $(JOBS) --store $(STORE)-quick

DOCS := build/docs
$(DOCS)/venv/.installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)/venv
	$(DOCS)/venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

docs: $(DOCS)/venv/.installed  ## build the site, run its gallery, open every page in a browser; warnings and dead links are errors
	OPENBLAS_NUM_THREADS=$(JOBS) $(DOCS)/venv/bin/python -m sphinx -q -W --keep-going -c docs . $(DOCS)/html
	$(DOCS)/venv/bin/python docs/links.py $(DOCS)/html
	$(DOCS)/venv/bin/python docs/browser.py $(DOCS)/html

docs-external: $(DOCS)/venv/.installed  ## check the links to other sites; needs the network
	$(DOCS)/venv/bin/python -m sphinx -q -b linkcheck -D plot_gallery=0 -c docs . $(DOCS)/linkcheck

dist: pyproject.toml  ## build wheel and sdist, install the wheel into a clean environment and try it there
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist/tools
	build/dist/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/dist/tools/bin/python -m build --outdir dist .
	build/dist/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/dist/clean
	build/dist/clean/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[cli]"
	cd build/dist && clean/bin/python ../../tests/project/smoke.py

matrix:  ## run the quick tests on oldest and newest versions and every Python found (PYTHONS="3.11 3.12")
	$(PYTHON) tests/project/matrix.py build/matrix $(if $(PYTHONS),--only $(PYTHONS)) --tests $(QUICK)

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist docs/gallery docs/api
