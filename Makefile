# One environment in .venv for every target; it is rebuilt when pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TIER := not slow and not lab and not browser

.PHONY: demo test test-all lint bench docs clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); set PYTHON=/path/to/python3.11"; exit 2; }
	@# An environment that is half made, or was moved with its folder, has no pip that runs: it is made anew.
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/studies run seeds --out reports
	$(BIN)/studies run here --out reports

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest -m "$(TIER)"

test-all: $(STAMP)
	$(BIN)/python -m pytest -m "slow or lab or browser"

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks --out docs/benchmarks.md

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) reports docs/_build
