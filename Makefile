# The commands of a developer. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
UV := .venv/.uv
PACKAGES := .venv/.ready
CDK := .slackwater/tools/.ready
JARS := .slackwater/jars/.ready
ARTEFACTS := .slackwater/build/.ready
READY := $(PACKAGES) $(CDK) $(JARS) $(ARTEFACTS)
DYNAMODB := .slackwater/dynamodb/.ready
VERSITYGW := .slackwater/peers/versitygw
DUCKDB := .slackwater/peers/duckdb
AIRFLOW := .venv-airflow/.ready
BENCH := .venv-bench/.ready
PYTEST := $(BIN)/python -m pytest
SOURCES := src infra lambdas glue_jobs mwaa_dags examples tests benchmarks scripts

# In a clone, everything is below .slackwater/.
unexport SLACKWATER_CACHE
# With it, each process compiles all modules that it imports: the local cloud, each worker of a function, each command.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo scenario down test again long collect unit infra spark cloud airflow peers bench soak docs check format lint types imports machines licences audit lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## Install everything into this folder (needs Python 3.11+, Java 17+ and make)

$(UV): scripts/setup-uv requirements/dev.txt
	@PYTHON=$(PYTHON) scripts/setup-uv
	@touch $@

# No bytecode for all of them: most modules are never imported, and Python compiles the others when it imports them.
$(PACKAGES): pyproject.toml requirements/dev.txt $(UV)
	@echo "Setting up (once): Python packages ..."
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(CDK): src/slackwater/deploy/tools.py requirements/tools/package-lock.json $(PACKAGES)
	@echo "Setting up (once): the CDK command line ..."
	@$(BIN)/python -m slackwater.deploy.tools
	@touch $@

$(JARS): src/slackwater/local/jars.py src/slackwater/local/emr/spark.py $(PACKAGES)
	@echo "Setting up (once): Spark's S3 and Iceberg jars ..."
	@$(BIN)/python -m slackwater.local.jars
	@touch $@

$(ARTEFACTS): requirements/layer.txt requirements/archive.txt $(PACKAGES)
	@echo "Setting up (once): packages for Lambda functions and Spark jobs ..."
	@$(BIN)/python -m infra.artefacts
	@touch $@

$(DYNAMODB): requirements/dynamodb-local.txt $(PACKAGES)
	@echo "Setting up (once): DynamoDB Local ..."
	@$(BIN)/python -m tests.dynamodb_local
	@mkdir -p $(@D)
	@touch $@

demo: $(READY) ## Run the demo: start a local cloud, deploy, publish five days of real data, handle late data
	@$(BIN)/python -m examples.nyc_flights.demo

scenario: $(READY) ## Run two scenarios: files that change, disappear and shrink, old data, a new definition; hours, the open day
	@$(BIN)/python -m examples.late_orders.scenario
	@$(BIN)/python -m examples.clicks.scenario

down: ## Stop the local cloud (its state stays under .slackwater/)
	@test ! -x $(BIN)/slackwater || $(BIN)/slackwater local down

test: $(READY) $(DYNAMODB) $(AIRFLOW) ## Run all tests but the long ones, in three processes
	@$(PYTEST) --numprocesses 3 --dist loadscope --no-loadscope-reorder -m "not long" tests

again: $(READY) ## Run the tests that have failed last, one after the other
	@$(PYTEST) --last-failed --last-failed-no-failures none tests

long: $(READY) ## Run the long tests: before a release, and after a change of what they are about
	@$(PYTEST) -m long tests/cloud tests/spark

collect: $(PACKAGES) ## Import all tests, which compiles them once for all processes
	@$(PYTEST) --collect-only --quiet tests 2> /dev/null | grep -v '::'

unit: $(READY) $(DYNAMODB) ## Run the tests that need neither network nor Spark
	@$(PYTEST) tests/unit

infra: $(READY) ## Run the tests of the CDK app and its templates
	@$(PYTEST) tests/infra

spark: $(READY) ## Run the tests that need a Spark session
	@$(PYTEST) tests/spark

cloud: $(READY) ## Run the tests on the local cloud
	@$(PYTEST) tests/cloud

airflow: $(READY) $(AIRFLOW) ## Run the tests of the DAGs, with Airflow and the local cloud
	@$(PYTEST) tests/airflow

peers: $(READY) $(VERSITYGW) $(DUCKDB) ## Run our S3 code against versitygw (needs Go), and read raw tables with DuckDB's Iceberg extension
	@$(PYTEST) tests/cloud/test_s3_contract.py tests/cloud/test_raw_tables.py

$(VERSITYGW):
	@echo "Building (once): versitygw ..."
	@GOBIN=$(CURDIR)/$(@D) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

$(DUCKDB):
	@$(BIN)/uv pip install --quiet --target $@ duckdb==1.4.4 duckdb-ext-iceberg==1.4.4.20260205 duckdb-ext-avro==1.4.4.20260205 duckdb-ext-httpfs==1.4.4.20260205

$(AIRFLOW): scripts/setup-airflow requirements/airflow.txt | $(UV)
	@scripts/setup-airflow

bench: $(READY) $(BENCH) ## Measure exchange, hop, day, size, pipeline, push and pull, compared with Parquet, plain PySpark, pyarrow and dlt
	@$(BIN)/python -m benchmarks

soak: $(PACKAGES) ## Pull a generated year with crashes, outages and new definitions, and account for each event
	@$(BIN)/python -m tests.soak

$(BENCH): scripts/setup-bench requirements/bench.txt | $(UV)
	@scripts/setup-bench

docs: $(PACKAGES) ## Show the documentation as a site in a browser
	@$(BIN)/slackwater docs serve

check: types format lint imports machines licences audit ## Check format, lint, types, imports, templates, licences, vulnerabilities

format: $(PACKAGES)
	@$(BIN)/ruff format --check --quiet $(SOURCES)

lint: $(PACKAGES)
	@$(BIN)/ruff check --quiet $(SOURCES)

types: $(PACKAGES)
	@$(BIN)/mypy

imports: $(PACKAGES)
	@$(BIN)/lint-imports

machines: $(PACKAGES) $(CDK)
	@$(BIN)/python -m infra.lint

licences: $(PACKAGES)
	@$(BIN)/python scripts/check_licences.py

audit: $(PACKAGES)
	@scripts/audit

lock: $(READY) ## Write the lock files again, with hashes, after a change of dependencies
	@$(COMPILE) pyproject.toml --extra dev --override requirements/overrides.in --output-file requirements/dev.txt
	@$(COMPILE) pyproject.toml requirements/layer.in --extra functions $(WHEELS) --output-file requirements/layer.txt
	@$(COMPILE) pyproject.toml --extra spark --extra aws --extra receiver --constraint requirements/dev.txt $(WHEELS) \
	  --no-binary pyspark --no-emit-package pyspark --no-emit-package py4j --output-file requirements/archive.txt
	@$(COMPILE) pyproject.toml --extra snowflake --constraint requirements/dev.txt --constraint requirements/archive.txt \
	  $(WHEELS) \
	  $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' requirements/archive.txt) \
	  --output-file requirements/archive-snowflake.txt
	@$(COMPILE) requirements/airflow.in --constraint requirements/mwaa-3.0.6-constraints.txt \
	  --output-file requirements/airflow.txt
	@$(COMPILE) requirements/bench.in --output-file requirements/bench.txt

COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-annotate \
  --custom-compile-command "make lock"
WHEELS := --only-binary :all:

clean: down ## Stop the local cloud, and remove its data and everything that was installed or built
	@rm -rf .slackwater cdk.out .venv .venv-airflow .venv-bench
