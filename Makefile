# One command per need, the same on a laptop and in CI. Every target does all of its own set-up.

PYTHON ?= python3
ARGS ?=

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
SPARK_CLASSES := $(VENV)/spark-classes.jsa
STAMP := $(VENV)/.installed-in

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-again test-lowest check format bench-smoke clean FORCE

help: ## Show this list
	@echo "usage: make <target> [PYTHON=python3.12] [ARGS='options passed on to the command']"
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the package and its tools, and look for Java
	@scripts/ensure_java.sh

demo: setup ## Keep a city's tables fresh for a minute, and sum up
	@$(VENV)/bin/headgate demo $(ARGS)

test: setup ## Run the tests (one file: make test ARGS=tests/test_imports.py)
	@scripts/ensure_chromium.sh
	@scripts/ensure_mosquitto.sh
	@scripts/ensure_object_store.sh
	@scripts/ensure_other_stores.sh
	@scripts/ensure_postgres.sh
	@scripts/ensure_kafka.sh
	@scripts/ensure_hdfs.sh
	@scripts/ensure_s3a.sh
	@PYTHON="$(PYTHON)" scripts/ensure_delta_spark.sh
	@scripts/ensure_spark_archive.sh $(VENV_PYTHON) $(SPARK_CLASSES)
	@$(VENV_PYTHON) -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal $(ARGS)

test-again: setup ## Run once more, alone, the few tests that failed in the last run
	@scripts/test_again.sh $(VENV_PYTHON)

test-lowest: ## Run the fast tests with the lowest versions that pyproject.toml allows
	@scripts/test_lowest.sh "$(PYTHON)" $(VENV)-lowest $(ARGS)

check: $(STAMP) ## Check lint, formatting and types; changes nothing
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy

format: $(STAMP) ## Format the code and fix the lint that can be fixed safely
	@$(VENV_PYTHON) -m ruff check --fix .
	@$(VENV_PYTHON) -m ruff format .

bench-smoke: setup ## Run every benchmark end to end at its smallest size
	@scripts/ensure_spark_archive.sh $(VENV_PYTHON) $(SPARK_CLASSES)
	@SPARK_SUBMIT_OPTS="$$($(VENV_PYTHON) -m tests.services.java)" \
		$(VENV_PYTHON) -m benchmarks --smoke all --together 2 $(ARGS)

clean: ## Remove .venv, caches and build output; results of benchmarks stay
	@rm -rf $(VENV) $(VENV)-lowest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp names the folder it was made in: the scripts of a virtual environment hold absolute paths, so in a
# copied or moved checkout they would silently run the code of the original.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif

$(STAMP): pyproject.toml
	@scripts/make_venv.sh "$(PYTHON)" "$(VENV)"
	@echo "$(CURDIR)" > $@
