# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := constraints.txt
EXTRAS := dev,docs,loggers

.PHONY: help install test test-next test-oldest test-launchers test-wheel lint format types bench faults docs demo clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(READY) ## build .venv with everything the tests and the demo need

$(READY): pyproject.toml $(CONSTRAINTS)
	@set -e; for python in python3.11 python3.12 python3.13 python3.14 python3; do \
		if command -v $$python >/dev/null && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
			found=$$python; break; fi; done; \
	if [ -z "$$found" ]; then echo "Python 3.11 or newer is needed and none was found on PATH."; exit 1; fi; \
	$$found -m venv $(VENV) || { echo "$$found cannot make a virtual environment: install its venv package."; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	@touch $(READY)

test: $(READY) ## the whole suite
	$(BIN)/python -m pytest -n auto tests

# The odd targets have environments of their own: the usual pins, with the lines of tests/constraints in place of theirs.
build/constraints-%.txt: tests/constraints/%.txt constraints.txt
	@mkdir -p build
	@awk -F= '{ key = tolower($$1); gsub(/_/, "-", key) } FNR == NR { own[key]; print; next } !(key in own)' $^ > $@

test-next: build/constraints-next.txt ## the suite on the newest pre-release of Hydra
	$(MAKE) install VENV=.venv-next CONSTRAINTS=$<
	.venv-next/bin/python -m pytest -n auto tests

# Without the pages and the tables of other libraries, which are made with the newest.
test-oldest: build/constraints-oldest.txt ## the suite on the oldest releases that pyproject.toml admits
	$(MAKE) install VENV=.venv-oldest CONSTRAINTS=$< EXTRAS=dev
	.venv-oldest/bin/python -m pytest -n auto -rs tests --ignore=tests/docs --ignore=tests/benchmarks

test-launchers: build/constraints-launchers.txt ## real sweeps through joblib, submitit and Ray
	$(MAKE) install VENV=.venv-launchers CONSTRAINTS=$< EXTRAS=dev,docs,loggers,launchers
	TL_LAUNCHERS=1 .venv-launchers/bin/python -m pytest -rs tests/launch/test_launchers.py

test-wheel: $(READY) ## install the built wheel in an empty environment and train with it
	TL_WHEEL=1 $(BIN)/python -m pytest -rs tests/test_wheel.py

lint: $(READY) ## style, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(READY) ## mend the style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(READY) ## strict types, of the package as a user gets it and of what a user writes
	rm -rf build/types && mkdir -p build/types
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target build/types .
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p tl_integrations
	# As a user: beside the installed package, not in the folders of the source tree.
	cp tests/typing/* build/types
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy use_*.py
	cd build/types && ../../$(BIN)/python -m pyright --pythonpath ../../$(BIN)/python

faults: $(READY) ## the gates of tests/faults/ in full: crashes, power cuts, fuzz, a million records
	PYTHONPATH=tests $(BIN)/python -m faults.run_gates

bench: $(READY) ## measure anew: tests/benchmarks/ results.json, RESULTS.md and plots/
	rm -f tests/benchmarks/results.json
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable -n 0 -s

docs: $(READY) ## the documentation as a site in build/site; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Look at it with: $(BIN)/python -m http.server --directory build/site"

demo: $(READY) ## train on real digits with a captured run to look at
	$(BIN)/python examples/train_digits.py

clean: ## remove what these targets made
	rm -rf .venv .venv-* build outputs multirun .mypy_cache .ruff_cache
