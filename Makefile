# Everything that a person runs. Works with GNU make 3.81 (macOS) and newer, and any POSIX shell.

.DEFAULT_GOAL := help
SHELL := /bin/sh

# --- settings ---------------------------------------------------------------------------------

# .env holds NAME=value lines, read as python-dotenv does. The environment overrides it, hence `?=`.
ifneq ($(wildcard .env),)
-include .cache/env.mk
endif
# Not in var, which other users may write.
.cache/env.mk: .env
	@mkdir -p .cache
	@sed -n -e 's/^ *//' -e 's/^export  *//' -e 's/^\([A-Z][A-Z0-9_]*\) *= */\1=/' \
	    -e "/^[A-Z0-9_]*=[\"']/!s/  *#.*//" -e 's/ *$$//' \
	    -e "s/^\([A-Z0-9_]*=\)\([\"']\)\(.*\)\2 *#.*/\1\3/" \
	    -e "s/^\([A-Z0-9_]*=\)\([\"']\)\(.*\)\2\$$/\1\3/" -e 's/[$$]/$$$$/g' -e 's/#/\\#/g' \
	    -e '/^ACID_HOME=$$/d' -e '/^ACID_WAREHOUSE=$$/d' -e '/^ACID_METASTORE=$$/d' \
	    -e 's/^\([A-Z][A-Z0-9_]*\)=\(.*\)$$/export \1 ?= \2/p' .env > $@

# `make dev ACID_HOME=var/demo` uses that home only, whatever .env or the environment says.
ifeq ($(origin ACID_HOME),command line)
ifneq ($(origin ACID_WAREHOUSE),command line)
ACID_WAREHOUSE := $(ACID_HOME)/warehouse
ifneq ($(origin ACID_METASTORE),command line)
unexport ACID_METASTORE
endif
endif
endif
ACID_HOME ?= var
ACID_WAREHOUSE ?= $(ACID_HOME)/warehouse
HOST ?= 127.0.0.1
PORT ?= 3000

# A URI or an absolute path stays; anything else is relative to this directory.
absolute = $(if $(findstring ://,$(1))$(filter /%,$(1)),$(1),$(CURDIR)/$(1))
HOME_DIR := $(call absolute,$(ACID_HOME))
WAREHOUSE := $(call absolute,$(ACID_WAREHOUSE))
# Not taken from the environment: that one may belong to another Dagster installation.
DAGSTER_HOME := $(HOME_DIR)/dagster
DEMO := $(HOME_DIR)/demo

PY := .venv/bin/python
# Other directories may be missing: a project may start without assets.
SOURCES := acid_platform pyspark_acid definitions.py scripts $(patsubst %/__init__.py,%,$(wildcard assets/__init__.py resources/__init__.py benchmarks/__init__.py))

export DAGSTER_DISABLE_TELEMETRY := 1
export GX_ANALYTICS_ENABLED := false
# Notebooks run on the kernel of .venv, whatever kernels the user has.
export JUPYTER_PREFER_ENV_PATH := 1
# Another Spark or other modules of this machine must not get into ours.
unexport SPARK_HOME PYTHONPATH PYTHONHOME

# The demo needs these files. A project that removed the demo has none of them.
DEMO_FILES := assets/flights.py assets/flights_source.py \
	scripts/demo.py scripts/demo_cluster.py scripts/demo_report.py scripts/demo_verify.py
HAS_DEMO := $(if $(filter-out $(wildcard $(DEMO_FILES)),$(DEMO_FILES)),,yes)

# Precedes a command that starts Spark: set-up has found JAVA_HOME.
JAVA = . ./.venv/java.env; export JAVA_HOME;
# Precedes a command that works on the user's warehouse, or on the demo's.
STATE = $(JAVA) export ACID_WAREHOUSE="$(WAREHOUSE)" DAGSTER_HOME="$(DAGSTER_HOME)";
DEMO_STATE = $(JAVA) unset ACID_METASTORE ACID_BRANCH; \
	export ACID_WAREHOUSE="$(DEMO)/warehouse" DAGSTER_HOME="$(DEMO)/dagster";
# Tests make their own warehouses, whatever the environment says. Their statements are small, so light
# compilation halves the CPU time of their JVMs.
TEST_STATE = $(JAVA) unset ACID_WAREHOUSE ACID_METASTORE ACID_BRANCH DAGSTER_HOME; \
	export ACID_SPARK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

# Processes that share the tests. More than two gain little: most need the one Spark session.
JOBS ?= 2
SHARED = -p tests.sharing --numprocesses $(JOBS)

# What the test processes run; the metastore's process and Spark's workers are not measured.
COVERAGE = --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

# $(1) becomes a DAGSTER_HOME: its configuration is the template's.
dagster_home = mkdir -p "$(1)" && cp dagster_home/dagster.yaml "$(1)/dagster.yaml"

.PHONY: setup
setup: ## install the locked packages into .venv, find or install Java
	@PYTHON="$(PYTHON)" scripts/bootstrap.sh
ifneq ($(origin ACID_HOME),command line)
	@$(call dagster_home,$(HOME_DIR)/dagster)
	@grep -q DAGSTER_HOME .venv/bin/activate || \
	    printf '\n# So that dg and dagster find the runs of make dev.\nexport DAGSTER_HOME="%s"\n' "$(HOME_DIR)/dagster" >> .venv/bin/activate
endif

.PHONY: demo
ifneq ($(HAS_DEMO),)
demo: setup ## a guided tour in its own warehouse: tables, changes, compaction
	@$(call dagster_home,$(DEMO)/dagster)
	@$(DEMO_STATE) exec $(PY) -m scripts.demo --home "$(DEMO)"

.PHONY: lab-demo-cluster
lab-demo-cluster: setup #: the demo on a Spark cluster and an S3 server that it starts here (ARGS="--weeks 8")
	@$(call dagster_home,$(DEMO)-cluster/dagster)
	@$(DEMO_STATE) exec $(PY) -m scripts.demo_cluster --home "$(DEMO)-cluster" $(ARGS)
else
demo:
	@echo "demo: it needs $(DEMO_FILES), which this project has removed." >&2
	@last=$$(git log -1 --diff-filter=AM --format=%h -- assets/flights.py 2>/dev/null); \
	    if [ -n "$$last" ]; then \
	        echo "To restore them: git checkout $$last -- $(DEMO_FILES)" >&2; \
	    else echo "Copy them from a fresh clone." >&2; fi
	@exit 1
endif

.PHONY: lab-reset-demo
lab-reset-demo: #: stop the demo's metastore and remove var/demo
	@if [ -d "$(DEMO)/warehouse" ] && [ -x $(PY) ]; then \
	    unset ACID_METASTORE; \
	    $(PY) -m acid_platform metastore stop --warehouse "$(DEMO)/warehouse" || true; \
	fi
	rm -rf "$(DEMO)"

# `make dev BRANCH=x` works on a branch, which it makes, with a history of runs of its own.
ifeq ($(origin BRANCH),command line)
DAGSTER_HOME := $(DAGSTER_HOME)-$(subst /,-,$(BRANCH))
export ACID_BRANCH := $(BRANCH)
endif

.PHONY: dev
dev: setup ## Dagster's web page and daemon on http://localhost:3000 (PORT=, BRANCH=)
	@$(call dagster_home,$(DAGSTER_HOME))
ifeq ($(origin BRANCH),command line)
	@$(STATE) exec $(PY) -m acid_platform branch create --if-not-exists "$(BRANCH)"
endif
	@$(STATE) export PYTHONWARNINGS='ignore:Function `dev_command` is superseded'; \
	    export ACID_ENVIRONMENT="$$(env | grep '^ACID_')"; \
	    exec .venv/bin/dagster dev -w workspace.yaml -h $(HOST) -p $(PORT)

.PHONY: new-table
new-table: packages ## write an asset and its test for you to change (NAME=db.orders)
	@mkdir -p assets && touch assets/__init__.py
	@export VIRTUAL_ENV="$(CURDIR)/.venv" DAGSTER_DISABLE_TELEMETRY=1; exec $(PY) -W ignore -m dagster_dg_cli.cli \
	    scaffold defs acid_platform.orchestration.components.acid_asset "$(subst .,/,$(NAME)).py" --table "$(NAME)"

.PHONY: lab-spark-connect
lab-spark-connect: setup #: a Spark server for all runs; then set ACID_SPARK_REMOTE=sc://127.0.0.1:15002
	@$(JAVA) exec $(PY) -m scripts.spark_connect $(ARGS)

.PHONY: lab-cluster-package
lab-cluster-package: setup #: an archive of our code for Spark's executors on a cluster; then set ACID_SPARK_ARCHIVE
	@exec $(PY) -m scripts.cluster_package $(ARGS)

.PHONY: lab-cluster
lab-cluster: setup #: a Spark master and two workers on this machine; then set ACID_SPARK_MASTER
	@$(JAVA) exec $(PY) -m scripts.cluster $(ARGS)

.PHONY: lab-object-store
lab-object-store: setup #: an S3 server on this machine for trials, in memory; it prints the variables to set
	@exec $(PY) -m scripts.s3_server $(ARGS)

.PHONY: lab-notebook
lab-notebook: setup #: JupyterLab with the project's packages and warehouse
	@test -x .venv/bin/jupyter-lab || { \
	    echo "lab-notebook: JupyterLab is not set up: call make lab-notebook ACID_EXTRAS=notebook" >&2; exit 1; }
	@$(call dagster_home,$(DAGSTER_HOME))
	@$(STATE) root=; if [ "$$(id -u)" = 0 ]; then root=--allow-root; fi; \
	    exec .venv/bin/jupyter lab $$root --ServerApp.root_dir=.

.PHONY: lock
lock: packages ## pin the dependencies of pyproject.toml again (LOCKFLAGS=--upgrade for newer ones)
	@$(PY) -m scripts.packages lock $(LOCKFLAGS)

.PHONY: lab-clean
lab-clean: #: remove caches and build output; keeps .venv and var
	find . \( -path ./.venv -o -path ./var \) -prune -o -type d -name __pycache__ -prune \
	    -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build \
	    acid_platform.egg-info spark-warehouse artifacts metastore_db


.PHONY: test
test: setup ## five minutes: at least one test of each rule, both engines (ARGS="-k name" selects)
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -m "not more and not slow and not soak" $(ARGS)

.PHONY: test-all
test-all: setup ## all tests but the slow ones, and the notebooks: before a change is handed in (ARGS=)
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -m "not slow and not soak" $(ARGS)

.PHONY: test-more
test-more: setup #: what `make test` leaves to `make test-all`: CI runs one after the other (ARGS=)
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -m "more and not slow and not soak" $(ARGS)

.PHONY: test-full
test-full: setup #: the slow tests too (ARGS=)
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -m "not soak" $(ARGS)

# The suites of tables. Clients of the gateway (tests/gateway, tests/interop) are refused tables in Parquet.
TABLES = cli compaction conformance crash engine formats handles history iceberg imports metastore orchestration \
	published scan spark_source sql storage stores transactions values write

.PHONY: test-parquet
test-parquet: setup #: the suites of tables once more, with new tables in Parquet, and how many ran so (ARGS=)
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -p tests.on_parquet -m "not slow and not soak" \
	    $(addprefix tests/,$(TABLES)) $(ARGS)

.PHONY: lab-coverage
lab-coverage: setup #: all tests with the lines that they run: build/coverage/index.html; takes longer
	@$(TEST_STATE) exec $(PY) -m pytest $(SHARED) -m "not soak" $(COVERAGE) $(ARGS)

.PHONY: lab-sim
lab-sim: packages #: simulate the metastore: a run (SEED=, N= steps), or many runs (N= steps in all)
	@$(PY) -m tests.simulation $(or $(SEED),0) $(or $(N),0)

.PHONY: lab-soak
lab-soak: setup #: more of the slow tests, then N=2000 random histories
	@$(TEST_STATE) $(PY) -m pytest $(SHARED) -m soak && \
	    exec $(PY) -m tests.compaction.histories 0 $(or $(N),2000)

.PHONY: lab-fuzz
lab-fuzz: setup #: inputs that coverage guides for each door, or one, for MINUTES=1 each (DOOR=orc); fetches atheris once
	@test -d build/atheris || .venv/bin/uv pip install --quiet --python $(PY) --target build/atheris \
	    --require-hashes -r tests/fuzz/atheris.txt
	@$(TEST_STATE) export PYTHONPATH=build/atheris; \
	    exec $(PY) -m tests.fuzz --minutes $(or $(MINUTES),1) $(DOOR)

.PHONY: lab-selects
lab-selects: setup #: N=1000 generated SELECTs in the local engine, then in Spark: no answer may differ (SEED=, ARGS="--minutes 9")
	@$(TEST_STATE) exec $(PY) -m tests.selects --queries $(or $(N),1000) --seed $(or $(SEED),0) $(ARGS)

.PHONY: lab-chaos
lab-chaos: setup #: kill, stall, damage, alter: no read may be wrong (SEED=, ARGS="--commits 1000 ...")
	@$(TEST_STATE) exec $(PY) -m tests.chaos --seed $(or $(SEED),0) $(ARGS)

.PHONY: lab-judge
lab-judge: setup #: record what clients are told under kills and stops for MINUTES=5: it is snapshot isolation (SEED=, ARGS=--spark)
	@$(TEST_STATE) exec $(PY) -m tests.recorder --minutes $(or $(MINUTES),5) --seed $(or $(SEED),0) $(ARGS)

.PHONY: lab-readers
lab-readers: setup #: 200 commits on ten tables: pyiceberg, Polars and a plain DuckDB find their rows; fetches 130 MB once (ARGS="--seed 2 --readers spark,trino")
	@$(TEST_STATE) exec $(PY) -m tests.iceberg $(ARGS)

.PHONY: lab-judge-teeth
lab-judge-teeth: setup #: the same with each of some rules switched off: the judge catches each
	@$(TEST_STATE) exec $(PY) -m tests.recorder --teeth $(ARGS)

.PHONY: lab-leaders
lab-leaders: setup #: kill and suspend leading metastores under eight writers (LOG=postgres or s3, N=50, ARGS="--stops 20 --faults 20")
	@$(TEST_STATE) exec $(PY) -m tests.log.leaders $(or $(LOG),postgres) --kills $(or $(N),50) $(ARGS)

.PHONY: lab-test-stores
lab-test-stores: setup #: the tests of warehouses in object stores on servers of S3, Google's and Azure's, fetched once (ARGS="minio -- -x")
	@$(TEST_STATE) exec $(PY) -m tests.stores.real $(ARGS)

.PHONY: lab-test-sparks
lab-test-sparks: setup #: the suites that use Spark with each version of it; fetches 1.4 GB once (ARGS="--versions 4.1.4 --suites sql")
	@$(TEST_STATE) exec $(PY) -m tests.sparks $(ARGS)

.PHONY: lab-interop
lab-interop: setup #: real engines on our tables through the gateway; fetches 821 MB once (ARGS="--engines trino --races 50", ARGS="--history 5")
	@$(TEST_STATE) exec $(PY) -m tests.interop $(ARGS)

.PHONY: lab-interop-direct
lab-interop-direct: setup #: acid register and adopt with a real metastore of Hive; fetches 130 MB once
	@$(TEST_STATE) exec $(PY) -m tests.interop.direct $(ARGS)

.PHONY: check
check: lint types layers names ## lint, types, layers and names; then which numbers got worse
	@$(PY) -m scripts.house_numbers --worse

.PHONY: lint
lint: packages #: ruff: faults and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo "lint: run make format" >&2; exit 1; }

.PHONY: format
format: packages ## format the code, sort imports
	@$(PY) -m ruff check --fix --select I .
	@$(PY) -m ruff format .

.PHONY: types
types: packages #: mypy, strict
	@$(PY) -m mypy --strict $(SOURCES)

.PHONY: layers
layers: packages #: which module may import which
	@.venv/bin/lint-imports --no-logo

.PHONY: names
names: packages #: no two modules and no two public classes of the library share a name
	@$(PY) -m scripts.unique_names

.PHONY: lab-numbers
lab-numbers: packages #: how large and how tangled the code is (ARGS=--record writes today's numbers)
	@$(PY) -m scripts.house_numbers $(ARGS)

.PHONY: docs
docs: packages ## build the documents as HTML pages in build/docs (needs no network)
	@$(PY) -m mkdocs build --strict --quiet && echo "build/docs/index.html"

.PHONY: lab-audit
lab-audit: packages #: known vulnerabilities of the locked packages, and their list (SBOM) in build/sbom.json
	@mkdir -p build
	@.venv/bin/uv tool run --quiet --from cyclonedx-bom cyclonedx-py requirements requirements.lock \
	    --output-reproducible --output-file build/sbom.json && echo "build/sbom.json"
	@.venv/bin/uv tool run --quiet pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict

.PHONY: lab-dist
lab-dist: packages #: build the packages and notes of a release in build/dist (TAG=, URL= of the repository)
	@$(PY) -m scripts.release --tag "$(TAG)" --url "$(URL)"

.PHONY: lab-bench
lab-bench: setup #: one of the benchmarks (NAME=peers ARGS="--rows 200000"); without NAME their list
	@$(JAVA) unset ACID_WAREHOUSE ACID_METASTORE ACID_BRANCH DAGSTER_HOME; exec $(PY) -m benchmarks $(NAME) $(ARGS)

.PHONY: doctor
doctor: setup ## settings, thresholds, and what is stuck in the warehouse
	@$(STATE) exec $(PY) -m acid_platform doctor

.PHONY: lab-status
lab-status: setup #: whether the warehouse's metastore runs, and what it holds
	@$(STATE) exec $(PY) -m acid_platform metastore status

.PHONY: stop
stop: setup ## stop the warehouse's metastore
	@$(STATE) exec $(PY) -m acid_platform metastore stop

.PHONY: lab-gateway
lab-gateway: setup #: let Trino, Hive and Spark use the warehouse's tables (ARGS="--listen HOST:PORT")
	@$(STATE) exec $(PY) -m acid_platform gateway $(ARGS)

# --- not for people ----------------------------------------------------------------------------

# What the linters need: no Java.
.PHONY: packages
packages:
	@PYTHON="$(PYTHON)" scripts/bootstrap.sh --no-java

# A description behind `##` stands in `make help`, and one behind `#:` in `make lab`.
described = awk 'BEGIN { FS = ":.*$(1) " } \
	    /^demo:/ && "$(HAS_DEMO)" == "" { next } \
	    /^[a-z-]+:.*$(1) / { printf "  make %-20s %s\n", $$1, $$2 }' Makefile

.PHONY: help
help:
	@$(call described,\043\043)
	@printf '\n%s\n' "make lab lists everything else: trials, long tests, benchmarks, packages." \
	    "Settings: PYTHON, ACID_HOME, ACID_WAREHOUSE, ... (see .env.example)"

.PHONY: lab
lab:
	@$(call described,\043:)
