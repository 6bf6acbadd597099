# All paths are relative: the checkout may lie anywhere, in a folder with spaces too.
PYTHON ?= python3
VENV := .tally/venv/bin
RUN := $(VENV)/python -m
# Given on the command line: ONCE=1 for the demo, ARGS for pytest and the campaign, DURATION_S and
# SEED for the campaign, PURE=1 for the mutants, QUICK=1 and PEERS=all for the benchmarks, UPGRADE=1
# for newer versions, WORKERS for the number of tests at a time.
ONCE ?=
QUICK ?=
PEERS ?=
ARGS ?=
UPGRADE ?=
PURE ?=
WORKERS ?= 4
DURATION_S ?= 600
SEED ?= 1

# Where Python may not keep what it has compiled, each of hundreds of processes compiles all that it
# imports again, which takes as long as its work.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test unit e2e chaos mutants lab bench lint format docs picture screenshots dist lock compose-secrets clean

help:
	@echo 'make demo [ONCE=1]      set up, then show Tally at work on real servers'
	@echo 'make test [ARGS=...]    set up, then run the whole test suite'
	@echo 'make unit [ARGS=...]    only the tests that need no server and no network'
	@echo 'make e2e [ARGS=...]     only the tests of whole stacks: README, console, cluster'
	@echo 'make setup              everything into .tally: packages, jars, servers'
	@echo 'make chaos [DURATION_S=600 SEED=1]  faults and random sequences: do the counts hold?'
	@echo 'make mutants [PURE=1]   remove each guard, and check which tests fail'
	@echo 'make lab                what each way to deliver loses and doubles, under the same faults'
	@echo 'make bench [QUICK=1 PEERS=all]  compare with other tools; renews tables and picture in docs/'
	@echo 'make lint | format      check, or rewrite, the style'
	@echo 'make docs               regenerate the references and the picture in docs/'
	@echo 'make picture            only the picture'
	@echo 'make screenshots        the pictures of the console in docs/, from a browser'
	@echo 'make dist               wheel, sdist, SBOM and licences in dist/, checked, and what a release needs'
	@echo 'make compose-secrets    passwords and keys for docker-compose.yml, once'
	@echo 'make lock [UPGRADE=1]   pin the Python packages again'
	@echo 'make clean              end the servers and delete .tally, with all data'

setup:
	@$(PYTHON) requirements/bootstrap.py

demo: setup
	@exec $(VENV)/tally demo $(if $(ONCE),--once)

# A file's tests stay on one worker, and so do files that share a Spark session; the longest come
# first (tests/durations.py). Now and then a worker waits for a server: four keep two cores busy.
PYTEST = $(RUN) pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST) $(ARGS)

unit: setup
	$(RUN) pytest --numprocesses auto --dist worksteal $(if $(findstring tests/,$(ARGS)),,tests/unit) $(ARGS)

# Part of `make test`, too.
e2e: setup
	$(PYTEST) tests/first_use tests/console tests/stack tests/cli/test_demo.py $(ARGS)

chaos: setup
	@TALLY_TEST_CAMPAIGN=1 $(RUN) tests.chaos --duration-s $(DURATION_S) --seed $(SEED) $(ARGS)
	$(if $(findstring --only,$(ARGS)),,TALLY_TEST_CAMPAIGN=1 $(RUN) pytest tests/properties tests/chaos tests/spark \
		tests/unit/test_places.py tests/stack/test_spark_cluster.py tests/first_use)

# PURE=1: every mutant of planning, lines and aggregates, by mutmut, on the unit tests alone;
# `mutmut results` and `mutmut show NAME` say more. From time to time: survivors need to be judged.
mutants: setup
	@$(RUN) $(if $(PURE),mutmut run,tests.mutants) $(ARGS)

# What each way to deliver loses and doubles; about half an hour.
lab: setup
	@$(RUN) benchmarks.laboratory $(ARGS)

# Needs a quiet machine and some hours; QUICK=1 shows in minutes that everything works. PEERS=all
# installs further tools, each into an environment of its own below .tally/peers; ARGS names some of
# the comparisons.
bench: setup
	@$(RUN) benchmarks $(if $(QUICK),--quick) $(if $(filter all,$(PEERS)),--all) $(ARGS)

lint: setup
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(VENV)/lint-imports --no-cache --no-logo

format: setup
	$(RUN) ruff check --fix
	$(RUN) ruff format

# Tests hold each of these files equal to what is printed here.
docs: setup picture
	$(RUN) docs.cli_page > docs/cli.md
	$(RUN) docs.json_page > docs/json.md
	$(RUN) docs.configuration_page > docs/configuration.md
	$(RUN) benchmarks.picture > docs/performance.svg

# The standard library is enough for this one.
picture:
	$(PYTHON) docs/picture.py > docs/batch-lifecycle.svg

# The browser tests look at every page; here they keep what they see.
screenshots: setup picture
	KEEP_PICTURES_IN='$(CURDIR)/docs/images' $(RUN) pytest tests/console $(ARGS)

# The wheel is built from the sdist, with the pinned tools.
dist: setup
	@rm -rf dist
	@$(VENV)/uv build --quiet --no-build-isolation --python $(VENV)/python --out-dir dist
	@$(VENV)/python requirements/check_dist.py dist
	@$(VENV)/python requirements/bill_of_materials.py dist
	@$(VENV)/python requirements/release.py

compose-secrets:
	@PYTHONPATH=local/src $(PYTHON) -m tally_local.compose_secrets

# For every Python from 3.11 on; without the address of any index.
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' $(VENV)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	$(if $(UPGRADE),--upgrade)

lock: setup
	$(COMPILE) --all-extras --group test --group lint --group build \
		--no-emit-package kafka-tally pyproject.toml local/pyproject.toml requirements/bootstrap.in \
		--output-file requirements/locked.txt
	$(COMPILE) --constraints requirements/locked.txt \
		requirements/bootstrap.in --output-file requirements/bootstrap.txt

clean:
	@if [ -x $(VENV)/python ]; then \
		for home in .tally .tally/*/stack.toml; do \
			$(RUN) tally_local.stack down --home "$${home%/stack.toml}" || exit 1; \
		done; \
	fi
	[ ! -x $(VENV)/python ] || $(RUN) tests.servers
	rm -rf mutants .tally .mypy_cache .pytest_cache .ruff_cache .hypothesis
