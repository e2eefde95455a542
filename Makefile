# Two commands on a fresh machine with Python 3.11 and Java 17: `make demo` and `make test`.
# `make help` lists the rest. Every target sets up what it needs and may be run again at any time.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # Two installs into one environment must not meet.
# Spark starts many Python processes: each would compile the package anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that starts and is new enough (a shim may exist for a version that does not).
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)

VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := -m pip install --quiet --disable-pip-version-check
# Word-splitting is off: a JAVA_HOME may hold spaces. A failure stops the recipe before Spark starts.
WITH_JAVA := JAVA_HOME="$$($(RUN) tools/setup_java.py)" && export JAVA_HOME &&
PYTEST := $(RUN) -m pytest
WHOLE_TESTS := not interop and not nightly
MAIN_TESTS := not slow and $(WHOLE_TESTS)
SLOW_TESTS := slow and $(WHOLE_TESTS)
# A case costs 20 processor seconds at most, in `make test` 2 (tests/helpers/durations.py).
FOR_CI := --budget=20 --hypothesis-profile=ci
# One worker more than cores, up to four; tests that share a Spark run in one of them (see conftest.py).
PARALLEL := -n auto --maxprocesses 4

.PHONY: docs dist help setup demo test test-slow for-slow format style check interop bench jar test-matrix mutants durations nightly clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(VENV)/.stamp-test $(VENV)/.stamp-check ## everything for the demo, the tests and the checks; finds or installs Java
	@$(WITH_JAVA) echo "ready: $(RUN), Java in $$JAVA_HOME"

demo: $(VENV)/.stamp-demo ## the main job: a year of real flights through a table, read back by another engine
	@rm -rf build/demo
	$(WITH_JAVA) $(RUN) -m lakeformat.demo --path build/demo/flights

test: $(VENV)/.stamp-test $(if $(WHOLE),for-slow) ## the tests: five minutes on two cores; with WHOLE=1 those of test-slow, too, as in CI
	$(WITH_JAVA) $(PYTEST) -m "$(if $(WHOLE),$(WHOLE_TESTS),$(MAIN_TESTS))" $(if $(WHOLE),$(FOR_CI),--budget=2) $(PARALLEL) $(ARGS)

test-slow: $(VENV)/.stamp-test for-slow ## the tests that take longer: crashes at every call of every operation, long random runs, most of Spark, the jar
	$(WITH_JAVA) $(PYTEST) -m "$(SLOW_TESTS)" $(FOR_CI) $(PARALLEL) $(ARGS)

for-slow: $(VENV)/.stamp-test .venv-sail/.stamp
	@# A compiler and a download, so both at once.
	$(RUN) tools/setup_servers.py ci & servers=$$!; \
		$(WITH_JAVA) $(RUN) tools/setup_hadoop_aws.py && wait $$servers

check: style ## format, lint, types, layers, what the house promises: under a minute
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) tools/house.py

style: $(VENV)/.stamp-check ## format and lint alone: a second
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(VENV)/.stamp-check ## format the sources and repair what the linter can repair
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

interop: $(VENV)/.stamp-test ## the same tables through Apache Hudi's own Spark bundles
	$(WITH_JAVA) $(RUN) tools/interop_setup.py
	$(WITH_JAVA) $(PYTEST) -m "interop and not nightly" tests/interop $(FOR_CI) -n 2 $(ARGS)

docs: $(VENV)/.stamp-docs ## the documentation's site, strict, under build/site
	cd tools && NO_MKDOCS_2_WARNING=1 ../$(RUN) -m mkdocs build --quiet -f mkdocs.yml

bench: $(VENV)/.stamp-bench ## the benchmarks
	$(WITH_JAVA) $(RUN) -m benchmarks $(ARGS)

jar: $(RUN) ## the jar for spark-submit --packages, in a Maven layout under build/m2
	$(RUN) tools/build_jar.py build/m2

dist: $(VENV)/.stamp-dist jar ## wheel and sdist of lakeformat and of lakeformat-core under dist/, and the jar
	@rm -rf dist
	$(RUN) tools/build_core.py dist
	$(RUN) -m build --outdir dist .

test-matrix: $(RUN) ## the Spark tests on every supported PySpark, those of frames on pandas 3 and the oldest polars
	$(WITH_JAVA) $(RUN) tools/matrix.py $(ARGS)

mutants: $(VENV)/.stamp-test ## change the code in small ways: the nearest tests must notice (ARGS="services/clean --share 0.1")
	$(RUN) tools/mutants.py $(ARGS)

durations: $(RUN) ## what the tests cost that ran last, by folder, file and function (ARGS="--top 50")
	@$(RUN) tools/durations.py $(ARGS)

nightly: $(VENV)/.stamp-test $(VENV)/.stamp-gcs $(VENV)/.stamp-dist .venv-engines/.stamp ## test-matrix, the long tests, all cases with Apache Hudi, Ray, dask, daft and ibis, and mutants
	$(WITH_JAVA) $(RUN) tools/interop_setup.py nightly
	$(RUN) tools/setup_servers.py nightly
	$(WITH_JAVA) $(RUN) tools/nightly.py $(ARGS)

clean: ## remove the environments, caches and everything built
	rm -rf .venv .venv-* build dist .work .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: install one, or run make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make an environment: on Debian and" \
		"Ubuntu install its venv package (for example python3.11-venv)" >&2; exit 1; }

# One stamp per extra: newer than pyproject.toml means that the extra is installed as it asks.
# Sail knows older releases of PySpark only, so it has an environment of its own.
.venv-sail/.stamp: pyproject.toml
	$(PYTHON) -m venv .venv-sail
	.venv-sail/bin/python $(INSTALL) -e '.[sail]'
	@touch $@

# Ray, dask, daft and ibis need so many packages that they have an environment of their own, too.
.venv-engines/.stamp: pyproject.toml
	$(PYTHON) -m venv .venv-engines
	.venv-engines/bin/python $(INSTALL) -e '.[engines]'
	@touch $@

$(VENV)/.stamp-%: pyproject.toml | $(RUN)
	$(RUN) $(INSTALL) -e '.[$*]'
	@touch $@
