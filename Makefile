# Everything from a fresh checkout, with nothing but Python 3.11+ and make: try `make run`.
# The first call makes .venv and installs into it; later calls only do the work they are named after.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    := out
ENVS   ?= 1024
STEPS  ?= 500
WORKERS ?= 2
# a file's tests share compiled kernels and stay together; tests/conftest.py puts the longest files first
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -c constraints.txt

.PHONY: help run test test-all lint bench bench-full docs gradient-report clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */|/' | awk -F'|' '{printf "  make %-15s %s\n", $$1, $$2}'

run: $(VENV)/.installed-base  ## simulate 1024 Laikago robots, write a USD stage and a picture to out/
	@mkdir -p $(OUT)
	$(BIN)/warp-articulated simulate laikago --envs $(ENVS) --steps $(STEPS) --perturb 0.05 \
		--usd $(OUT)/laikago.usdc --png $(OUT)/laikago.png

test: $(VENV)/.installed-test  ## run the tests, without the slow ones
	$(PYTEST)

test-all: $(VENV)/.installed-test  ## run all tests
	$(PYTEST) -m "slow or not slow"

lint: $(VENV)/.installed-dev  ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench  ## all benchmarks in small sizes; tables, plots and JSON in out/bench
	$(BIN)/python benchmarks/run_all.py --quick

bench-full: $(VENV)/.installed-bench  ## all benchmarks in full, two hours and more, on a machine with nothing else to do
	$(BIN)/python benchmarks/run_all.py

docs: $(VENV)/.installed-test  ## write docs/api.md from the docstrings, and what was measured into all pages
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_benchmarks.py
	$(BIN)/python docs/make_gpu.py

gradient-report: $(VENV)/.installed-test  ## check gradients of every parameter in every regime, write docs/gradient_report.md
	$(BIN)/python benchmarks/gradients/gradient_report.py

clean:  ## remove .venv, outputs and caches
	rm -rf $(VENV) $(OUT) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# A stamp file for every set of extras: newer than the files that say what to install means that nothing is to do.
$(VENV)/.installed-base: extras :=
$(VENV)/.installed-test: extras := [test,mjcf]
$(VENV)/.installed-dev: extras := [dev]
$(VENV)/.installed-bench: extras := [bench,rl]
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing warp-articulated$(extras) into $(VENV) (the first time takes some minutes)"
	@$(PIP) -e '.$(extras)'
	@touch $(VENV)/.installed-base $@
