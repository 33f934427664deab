# Two commands do everything: `make report` and `make test`. Both need only Python >= 3.11, make
# and a package index; both are quick the second time, because the installs leave a stamp.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCE ?= stdlib
OUT ?= report
ARGS ?=
WORKERS ?= 2
TESTS ?=
CONSTRAINTS ?= constraints.txt

.PHONY: report results test test-all test-hardening test-experiments lint types docs unit notebooks \
  distributed-test test-minimum rope-goldens clean

# Tests compile much of the same, in several processes and from one run to the next, also in a new
# clone. `make clean` removes these programs; those written more than 30 days ago go by themselves.
SUITES := unit test-hardening test-experiments
PROGRAMS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/jaxpe/programs-of-tests
$(SUITES) docs notebooks distributed-test: export JAX_COMPILATION_CACHE_DIR ?= $(PROGRAMS)
$(SUITES) docs notebooks distributed-test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
$(SUITES) docs notebooks distributed-test: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1

# Tests start about a hundred processes, which would compile what they import each time.
$(SUITES) docs notebooks distributed-test: export PYTHONDONTWRITEBYTECODE =

# Compiling is most of the work of the tests: pieces of a program that threads would share, and
# threads that fight over the processors, cost more than they gain. XLA's older code generator takes
# a sixth of the time for programs of tests, and four fifths for a notebook that trains; the newer
# one, which users have, is had with `make test XLA_FLAGS=`.
$(SUITES) notebooks: export NPROC ?= 1
# Threads of OpenBLAS wait for each other by spinning: a decomposition of a matrix of 120 takes a
# second of the processors beside another process, and 20 ms on one thread.
$(SUITES) docs notebooks: export OPENBLAS_NUM_THREADS ?= 1
$(SUITES) docs notebooks: export XLA_FLAGS ?= \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

report: $(VENV)/.installed-report
	$(BIN)/jaxpe report '$(SOURCE)' --out '$(OUT)' $(ARGS)

# experiments/RESULTS.md, from the claims, experiments/pages and experiments/results.
results: $(VENV)/.installed-test
	$(BIN)/python -m experiments.claims

# What a newcomer runs, and after a change: a few minutes.
test: $(VENV)/.installed-test
	$(MAKE) --jobs=$(WORKERS) --output-sync=target lint types $(VENV)/.collected
	$(MAKE) unit

# All that must pass before a change lands: the rest side by side, each with few workers.
test-all: test
	$(MAKE) --jobs=$(WORKERS) --output-sync=target WORKERS=1 \
	  notebooks test-hardening docs test-experiments

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/pyrefly check

# The site, in docs/_build/html. Its pictures need no fast programs, and no accelerator.
docs: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
docs: export JAX_PLATFORMS ?= cpu
docs: $(VENV)/.installed-test
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo 'The site: docs/_build/html/index.html'

# What tests import is compiled by one process, once: workers would each compile all of it.
$(VENV)/.collected: export PYTHONDONTWRITEBYTECODE =
$(VENV)/.collected: $(VENV)/.installed-test
	$(BIN)/python -m pytest --collect-only --quiet > $@.log || { tail -20 $@.log; exit 1; }
	touch $@

unit: $(VENV)/.installed-test
	mkdir -p '$(PROGRAMS)' && find '$(PROGRAMS)' -type f -mtime +30 -delete
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	  --ignore=tests/hardening --ignore=tests/experiments $(TESTS)

# Kills, signals, words and damaged files. Some wait, so there is one worker more. Before a release
# `python -m tools.hardening` draws more of them.
test-hardening: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $$(($(WORKERS) + 1)) --dist worksteal tests/hardening

# Functions of the experiments' scripts, at a size of seconds.
test-experiments: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/experiments

notebooks: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --nbmake --nbmake-timeout=600 notebooks

# Two processes on this machine; `test-hardening` has it too.
distributed-test: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/hardening/test_training_processes.py

# The lowest versions that pyproject.toml declares, in an environment of their own. Old packages may
# warn of what changed since: here alone warnings are no errors.
test-minimum:
	$(MAKE) unit VENV=$(VENV)-minimum CONSTRAINTS=constraints-minimum.txt \
	  JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)-minimum/compiled \
	  TESTS='-W default tests/test_minimum.py tests/cli/test_every_command.py tests/geometry'

# What the classes of the newest transformers do with positions: see tools/parity/README.md. NEWEST is
# a Python that has them, and torch for the processor.
rope-goldens:
	$(or $(NEWEST),$(error NEWEST: a python with the newest transformers and torch)) -m tools.parity.make_rope_classes
	$(NEWEST) -m tools.parity.make_class_positions
	$(NEWEST) -m tools.parity.make_class_rules
	$(NEWEST) -m tools.parity.make_rope_mutations
	$(NEWEST) -m tools.parity.make_rope_sections

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jaxpe needs Python >= 3.11, not " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip  # what Python brings takes half as long again

$(VENV)/.installed-%: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-minimum report docs/_build docs/api docs/commands docs/gallery docs/positions docs/notebooks '$(PROGRAMS)'
