# `make` alone says what one can do here. PYTHON=/path/to/python chooses another interpreter for .venv.

PYTHON ?=
export PYTHON
READY := .venv/.installed
# What the demos need, a third of what the tests need, in the same .venv. `make setup` installs both.
EXAMPLE = .venv/.example-$(SPARK)
# The JVMs of the tests start from this file in half the time.
CLASSES := .venv/spark-classes.jsa
BIN := .venv/bin
SPARK ?= shared
REF ?= carrier_monthly@2013-01-01
SEEDS ?= 1000
FIRST ?= 0
SECONDS ?= 300
SEED ?=

# CI asks about a change, not about the timing of one of its processes: a failed test is run once more, and its name and first
# failure are printed. A sixth such test is red at once (decision 0082).
ONCE_MORE := --reruns 1 --max-suite-reruns 5 -r fER

# Tests wait for other processes much of their time, so there is one worker more than cores. Work is handed out test by
# test; tests that share a fixture of their module stay together, and the most expensive start first (tests/conftest.py).
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(if $(CI),$(ONCE_MORE))

# A Spark server that outlives its commands is what makes the next one fast; a target that ends for good stops it.
STOP_SPARK := $(BIN)/databuild spark --stop

.DEFAULT_GOAL := help
.PHONY: help more setup story pictures demo lots-demo ui test test-all test-rest test-suite test-long test-browser test-feature features-long test-simulation test-postgres test-engines test-engines-long test-rest-catalog cluster-test flaky alone quick simulate fuzz linearize power-cuts disk-errors matrix matrix-ci values-long package mutations check format docs site bench clean

# Six targets are marked by `##`, those that `make more` lists, too, by `#:`.
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "make more         all other targets"

more: #: all other targets
	@awk -F ':.*#: ' '/^[a-z-]+:.*#: / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) #: create .venv with the pinned versions, for tests and checks (by uv where it is there)

$(READY): pyproject.toml constraints.txt tools/setup.sh
	@sh tools/setup.sh dev

.venv/.example-%: pyproject.toml constraints.txt tools/setup.sh
	@SPARK=$* sh tools/setup.sh example

$(CLASSES): $(READY)
	@$(BIN)/python -m tools.class_archive

story: $(EXAMPLE) #: a week of a shop on the pages: late files, a bug, a taint, an operation (ARGS=--once ends after it)
	@$(BIN)/python -m tools.story $(ARGS)

pictures: $(READY) #: the pictures of the docs again: a shop of three months, in Chromium (ARGS="--all FOLDER" shows every page)
	@$(BIN)/python -m tools.pictures $(ARGS)

demo: $(EXAMPLE) ## the main job, on real data: build a month of flights on Spark and read it (SPARK=sail: without Java)
	@EXAMPLE_SPARK=$(SPARK) sh tools/demo.sh $(REF)

lots-demo: .venv/.example-shared #: flights that arrive as files, late and missing ones among them: lots, arcs and gaps
	@sh examples/flights/lots_demo.sh

ui: $(EXAMPLE) ## open Dagster on what the demo built
	@EXAMPLE_SPARK=$(SPARK) $(BIN)/databuild dev

test: $(CLASSES) ## set up and prove the mission in five minutes (ARGS="-k want" for some of it)
	@status=0; $(PYTEST) --mission $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

test-all: ## everything that is proved: what CI asks
	@$(MAKE) --no-print-directory test && $(MAKE) --no-print-directory test-rest

test-rest: $(CLASSES) #: what `make test` leaves out: the parts of tools/parts.py (ARGS="--only suite check" for some)
	@$(BIN)/python -m tools.parts $(ARGS)

test-suite: $(CLASSES) #: the other tests of the suite (ARGS="-k want" for some, ARGS=--all with those marked `extended`)
	@status=0; $(PYTEST) --no-mission --ignore tests/simulation -m "not browser" $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

test-long: $(CLASSES) #: the tests marked `extended`, each a second proof of a rule
	@status=0; $(PYTEST) --all --ignore tests/simulation -m "extended and not browser" $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

test-browser: $(CLASSES) #: the tests that look at Dagster's pages (needs chromium)
	@status=0; $(PYTEST) -m browser $(ARGS) tests/e2e || status=$$?; $(STOP_SPARK) || true; exit $$status

test-feature: $(CLASSES) #: the tests of one feature, the contracts and a real build: make test-feature lots (ARGS="-k late")
	@status=0; $(BIN)/python -m tools.features test $(or $(filter-out test-feature,$(MAKECMDGOALS)),NAME) $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

# The name of the feature is no target of its own.
ifneq ($(filter test-feature,$(MAKECMDGOALS)),)
.PHONY: $(filter-out test-feature,$(MAKECMDGOALS))
$(filter-out test-feature,$(MAKECMDGOALS)): ; @:
endif

features-long: $(CLASSES) #: the tests of the core and a real build without each feature in turn (FEATURE=lots for one)
	@status=0; $(BIN)/python -m tools.features long $(FEATURE) $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

test-simulation: $(READY) #: a thousand storms, and the model beside the engine; `make simulate` takes more
	$(PYTEST) $(ARGS) tests/simulation

test-postgres: $(READY) #: the tests of model, engine and store on PostgreSQL (needs no installed server)
	$(PYTEST) --database postgres $(ARGS) tests/model tests/engine tests/store

test-engines: $(READY) #: DuckDB, DataFusion and Daft read each snapshot of published tables (in an environment of its own)
	@test -x .engines/bin/python || $(BIN)/python -m venv .engines
	@.engines/bin/pip install -q --disable-pip-version-check -r tests/engines/requirements.txt
	$(BIN)/python -m tests.engines .engines/bin/python $(ARGS)

test-engines-long: $(READY) #: Spark 3.5 with its own Iceberg reads every snapshot, too (half a gigabyte to download)
	@test -x .engines/spark/bin/python || $(BIN)/python -m venv .engines/spark
	@.engines/spark/bin/pip install -q --disable-pip-version-check -r tests/engines/spark-requirements.txt
	$(BIN)/python -m tests.engines .engines/spark/bin/python spark_reader.py

test-rest-catalog: $(READY) #: publish into an independent REST catalog, which is killed once (in an environment of its own)
	@test -x .engines/rest/bin/python || $(BIN)/python -m venv .engines/rest
	@.engines/rest/bin/pip install -q --disable-pip-version-check -r tests/engines/rest-requirements.txt
	$(BIN)/python -m tests.engines.rest .engines/rest/bin/lakana-server

cluster-test: $(CLASSES) #: one deployment on 13 hosts, faults of hosts, networks and clocks (MINUTES=60 SEED=1 for those of a seed; root)
	@$(BIN)/python -m tests.cluster $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

flaky: $(CLASSES) #: repeat the long tests twenty times under load and report (ARGS="--keep .flaky.jsonl --minutes 60")
	@status=0; $(BIN)/python tools/flaky.py $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

alone: $(READY) #: run a sample of 150 tests, each in a process that has run no other (ARGS="--sample 30 --seed 7 -m long")
	@status=0; $(BIN)/python tools/alone.py $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

quick: $(READY) #: the tests that need neither Spark nor other processes
	$(BIN)/python -m pytest -m "not long" $(ARGS)

simulate: $(READY) #: storms over the engine in virtual time (SEEDS=10000, FIRST=0, ARGS=--two-stores)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(ARGS)

linearize: $(READY) #: concurrent clients, kills and freezes: is the history linearizable? (ARGS="--database postgres")
	$(BIN)/python -m tests.service $(ARGS)

fuzz: $(READY) #: odd arguments, YAML, manifests, logs and requests (SECONDS=300, SEED=7, ARGS="--only rules")
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

power-cuts: $(READY) #: ten thousand disks that a power cut may leave, from recorded system calls (needs strace)
	$(BIN)/python -m tests.power_cuts $(ARGS)

disk-errors: $(READY) #: let every call that changes a file fail in turn, with EIO and ENOSPC (ARGS="--stride 10" for some)
	$(BIN)/python -m tests.power_cuts.failing $(ARGS)

package: $(READY) #: build what would be published, and use it in empty environments (ARGS=--all: every pip line of the docs)
	@$(BIN)/python -m tests.package $(ARGS)

values-long: $(CLASSES) #: columns of every type, by every writer, for every reader; 100,000 pairs of tables have the right hashes
	@status=0; DATABUILD_VALUES=1200 DATABUILD_PAIRS=100000 $(BIN)/python -m pytest tests/values tests/features/compare/test_content_hash.py $(ARGS) || status=$$?; $(STOP_SPARK) || true; exit $$status

matrix: $(READY) #: try the package beside each row of versions (ARGS="--only 3.5" for some)
	@$(BIN)/python -m tests.matrix $(ARGS)

matrix-ci: $(READY) #: the rows of versions that CI tries
	@$(BIN)/python -m tests.matrix --ci

mutations: $(READY) #: take out each guard of a list and see a test fail (ARGS="--only lot" for some)
	$(BIN)/python -m tests.mutations $(ARGS)

check: $(READY) ## everything CI will ask: ruff, mypy strict, the import contracts, the prose of the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.prose

format: $(READY) #: let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## rebuild the generated pages
	$(BIN)/python tools/docs.py

site: $(READY) #: build the docs as pages with a search, into the folder site
	@test -x .site/bin/mkdocs || { $(BIN)/python -m venv .site && .site/bin/pip install -q -r tools/site/requirements.txt; }
	@NO_MKDOCS_2_WARNING=1 .site/bin/mkdocs build -q -f tools/site/mkdocs.yml
	@echo "Read it: $(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory site, then http://127.0.0.1:8000"

bench: $(READY) #: measure; `python -m bench.report` then writes docs/performance.md
	$(BIN)/python -m bench.engine
	@status=0; for each in lots operations pipeline; do $(BIN)/python -m bench.$$each || status=$$?; done; $(STOP_SPARK) || true; exit $$status

clean: #: remove .venv, .dagster_home, .lots_demo and the caches
	@if [ -x $(BIN)/databuild ] && [ -d .dagster_home ]; then $(STOP_SPARK) || true; fi
	rm -rf .venv .dagster_home .lots_demo .story .pictures .engines .matrix .site site .tmp_dagster_home_* build dist *.egg-info spark-warehouse artifacts
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
