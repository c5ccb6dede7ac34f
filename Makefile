# Everything a user or a developer runs. Needs only Python 3.11+ (with venv and pip) and make.
#
#   make demo         train a small network on digits, from torch tensors
#   make test         the tests, with a part of the cases of long tables; TESTS=tests/bridge runs some
#   make test-all     the tests with all cases
#   make check        linters, types, layers, sizes
#   make bench        the guarded speed numbers
#   make docs         reference pages and release notes in build/docs, examples checked
#   make test-devices compile every primitive for a TPU and a GPU that are not here (700 MB of plugins)
#   make test-newest  the engine's tests on the newest Python and jaxlib found
#   make ci           what the integration server runs
#   make clean        remove what the targets above made
#
# Variables: PYTHON (interpreter that makes the environments), VENV, WORKERS (test processes), TESTS,
# PIP_FLAGS (for pip install, e.g. an --extra-index-url with CPU builds of torch), ARGS (for pytest).

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
VENV_NEWEST ?= .venv-newest
WORKERS ?= 2
PIP_FLAGS ?=
TESTS ?= tests
ARGS ?=

BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)
# The link tree shows every tool the package under its real name, without the editable finder.
RUN := PYTHONPATH=build/tree $(BIN)/python

.PHONY: demo test test-all check bench docs test-newest test-devices ci env env-dev tree clean

demo: env tree
	$(RUN) examples/digits.py $(ARGS)

test: env tree
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal --sample-cases $(TESTS) $(ARGS)

test-all: env tree
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(TESTS) $(ARGS)

check: env-dev tree
	.ci/check $(BIN)

# The peer stands in an environment of its own and is measured in processes of its own.
bench: env tree .venv-peer/stamp
	$(RUN) tests/benchmarks/compare.py --peer .venv-peer/bin/python --package jax \
	    --record docs/benchmarks.md $(ARGS)
	$(RUN) tests/benchmarks/torch_calls.py --record docs/benchmarks.md
	$(RUN) tests/benchmarks/torch_training.py --record docs/benchmarks.md
	$(RUN) tests/benchmarks/tf_calls.py --record docs/benchmarks.md
	PYTHONPATH=build/tree:. $(BIN)/python tests/benchmarks/torch_kernels.py \
	    --record docs/kernels.md --readme README.md --chart docs/kernels.svg
	PYTHONPATH=build/tree:. $(BIN)/python tests/benchmarks/torch_kernels.py --cores 1 \
	    --record docs/kernels.md

.venv-peer/stamp: constraints.txt
	$(PYTHON) -m venv .venv-peer
	.venv-peer/bin/python -m pip install --quiet $(PIP_FLAGS) "jax>=0.10.2,<0.13"
	touch $@

docs: env-dev tree
	$(RUN) .ci/reference build/docs/reference
	$(RUN) -m towncrier build --draft > build/docs/unreleased.md
	$(RUN) -m pytest -q -n $(WORKERS) tests/doctests tests/architecture/test_docs.py $(ARGS)

test-newest: tree
	.ci/test-newest "$(VENV_NEWEST)" "$(WORKERS)" $(ARGS)

test-devices: tree .venv-devices/stamp
	PYTHONPATH=build/tree .venv-devices/bin/python -m pytest -n $(WORKERS) tests/devices $(ARGS)

# The plugins are not for this machine: an environment of its own keeps them from being found elsewhere. Their
# Python parts would bring the vendor's libraries, which compiling does not need.
.venv-devices/stamp: constraints.txt
	$(PYTHON) -m venv .venv-devices
	.venv-devices/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[test]' libtpu
	version=$$(.venv-devices/bin/python -c 'import jaxlib; print(jaxlib.__version__)'); \
	  .venv-devices/bin/python $(PIP_INSTALL) --no-deps jax-cuda12-pjrt==$$version jax-cuda12-plugin==$$version
	touch $@

ci:
	bash .ci/run

env: $(VENV)/.installed-test
env-dev: $(VENV)/.installed-dev

# Bytecode is made here as pip makes it for a wheel: an import takes twice as long without, and environments
# that forbid Python to write it (PYTHONDONTWRITEBYTECODE) would never have it.
tree:
	@bash .ci/devtree
	@if [[ -x $(BIN)/python ]]; then $(BIN)/python -m compileall -q bridge core interop; fi

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] < (3, 14) else \
	  f"tracebridge needs Python 3.11 to 3.13, and {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-test: $(VENV)/.made pyproject.toml constraints.txt
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[torch,tf,test]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[torch,tf,test,dev]'
	@touch $@

clean:
	rm -rf build dist .venv .venv-newest .venv-peer .venv-devices .pytest_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks *.egg-info
	find bridge core interop tests examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
