# Everything works on a fresh clone with Python 3.11 or later and pip: the first target to need .venv makes it.
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

DEMO_ARGS ?=
TEST_ARGS ?=
# Every engine computes on one core of its own.
TEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test oracle lint format clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/'

setup: $(STAMP) ## make .venv and install flashstate, vLLM for CPU and the developer tools into it

$(STAMP): pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP) ## stock vLLM against flashstate, side by side (DEMO_ARGS="--quick" for less)
	@$(BIN)/flashstate demo $(DEMO_ARGS)

test: $(STAMP) ## all tests but the slow ones, on real engines (TEST_ARGS="-m 'not engine and not slow'": without)
	@$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(TEST_ARGS)

oracle: $(STAMP) ## the core's policies against libCacheSim (GPL: it goes into build/, and is no dependency)
	@$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/oracle libcachesim==0.3.5
	@PYTHONPATH=build/oracle $(BIN)/python -m pytest tests/core/test_gds_reference.py

lint: $(STAMP) ## ruff, mypy --strict, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean: ## remove caches and .venv
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
