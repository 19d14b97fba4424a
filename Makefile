# Every target sets itself up: the first use makes .venv with dlc and its plugins installed in place.
# PYTHON picks the interpreter (3.10 or newer); VENV the folder.

SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo "$$p"; break; }; done)
JOBS ?= 2
TORCH ?= 2.13.0
ARGS ?=
RUNS ?= 10000
FUZZ_SECONDS ?= 600

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PROJECTS := $(wildcard pyproject.toml plugins/*/pyproject.toml)
# torch is large: its frontend is installed by .ready-torch only.
PLUGINS := $(filter-out plugins/frontend_torch,$(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml)))
EDITABLE := $(foreach plugin,$(PLUGINS),-e ./$(plugin))
DECISIONS := $(addprefix tests/,decisions passes/test_decisions.py schedule/rules/gpu/test_decisions.py schedule/test_rules_tiles.py)
TESTS := dlc_core $(wildcard tests plugins/*/tests)

.PHONY: help demo test test-rest test-all decisions fuzz lint format bench clean

help:
	@echo "make demo       run a model end to end"
	@echo "make test       the fast tests and a sample of the longer ones (ARGS='-k name' adds options of pytest)"
	@echo "make test-rest  the tests that the sample leaves out"
	@echo "make test-all   all tests, the slow ones too"
	@echo "make decisions  decision coverage: the alternatives of the compiler that tests execute"
	@echo "make fuzz       changed models, artefacts, scripts, records and command lines (RUNS=N, FUZZ_SECONDS=S each)"
	@echo "make lint       style, format, types"
	@echo "make format     apply the style"
	@echo "make bench      measure against installed peers"
	@echo "make clean      remove $(VENV) and the tools' caches"

$(VENV)/.ready: $(PROJECTS)
	@test -n "$(PYTHON)" || { echo "no Python 3.10 or newer with venv found; set PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "setting up $(VENV)"
	@$(PIP) install -e '.[dev]' $(EDITABLE)
	@$(BIN)/python -m compileall -q dlc_core $(PLUGINS)  # as for packages that are not installed in place
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	@$(PIP) install -e '.[bench]'
	@touch $@

$(VENV)/.ready-blas: $(VENV)/.ready
	@$(PIP) install -e '.[blas]'
	@touch $@

$(VENV)/.ready-signing: $(VENV)/.ready
	@$(PIP) install -e '.[signing]'
	@touch $@

$(VENV)/.ready-texts: $(VENV)/.ready
	@$(PIP) install -e '.[texts]'
	@touch $@

$(VENV)/.ready-opencl: $(VENV)/.ready
	@$(PIP) install -e './plugins/backend_opencl[pocl]'
	@touch $@

$(VENV)/.ready-pool: $(VENV)/.ready
	@$(PIP) install -e './plugins/backend_llvm[pool]'
	@touch $@

$(VENV)/.ready-wasm: $(VENV)/.ready
	@$(PIP) install -e './plugins/backend_llvm[wasm]'
	@touch $@

$(VENV)/.ready-corpus: $(VENV)/.ready
	@$(PIP) install -e '.[corpus]'
	@touch $@

$(VENV)/.ready-tune: $(VENV)/.ready
	@$(PIP) install -e './plugins/tune[ranking,optuna,cluster,postgresql]'
	@touch $@

$(VENV)/.ready-torch: $(VENV)/.ready
	@$(PIP) install 'torch==$(TORCH)' && $(PIP) install -e './plugins/frontend_torch[testing]'
	@touch $@

$(VENV)/.ready-cuda: $(VENV)/.ready
	@$(PIP) install -e './plugins/backend_cuda[compiler]' nvidia-cuda-nvcc-cu12
	@touch $@

demo: $(VENV)/.ready
	@$(BIN)/python examples/demo_resnet50.py $(ARGS)

# Tests keep bytecode, even where the environment forbids it: else each of their processes compiles all sources.
test test-rest test-all decisions: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.ready
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" --part sample $(TESTS) $(ARGS)

test-rest: $(VENV)/.ready
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" --part rest $(TESTS) $(ARGS)

test-all: $(VENV)/.ready
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q -n $(JOBS) $(TESTS) $(ARGS)

decisions: $(VENV)/.ready
	@rm -rf build/decisions
	@DLC_DECISION_COVERAGE=build/decisions $(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" $(DECISIONS) $(ARGS)
	@$(BIN)/python -m dlc_core.testing.decision_coverage build/decisions

# Each night another seed: findings and their inputs are in build/fuzz. Each target ends after RUNS cases or
# FUZZ_SECONDS seconds, and prints its counts every 30 seconds.
fuzz: $(VENV)/.ready
	@$(BIN)/python -m tests.fuzz all --runs $(RUNS) --seconds $(FUZZ_SECONDS) $(ARGS)

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict
	@$(BIN)/python -m tests.wording

format: $(VENV)/.ready
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.ready-bench
	@$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
