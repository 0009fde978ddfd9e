# floodmark: `make help` says what there is.
VENV ?= .venv
BIN := $(VENV)/bin
export VENV
# Python keeps compiled modules, even where the environment forbids it (as images of CI servers do): a test run starts
# hundreds of processes, and without them each compiles our modules anew, and each of pytest's workers all the tests.
export PYTHONDONTWRITEBYTECODE :=
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-docker test-kafka check bench soak teeth mutants law-mutants wheel hunt findings healthy beside-kafka pictures clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## Python environment and Java, checked and made ready (all other targets do this first)
	@./harness/prepare.sh

demo: setup  ## see Kafka's two historical disasters happen and be caught, and leader epochs prevent them
	@$(BIN)/floodmark demo
	@$(BIN)/python -m floodmark.checkers.spark.jvm_cds

test: setup  ## all tests that need neither Docker nor root nor long, then what was left out
	@$(BIN)/python -m floodmark.checkers.spark.jvm_cds
	@$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m "not docker and not kafka and not long" $(ARGS)

test-long: setup  ## the tests that take long (.ci/run runs them too): standalone workers, campaigns that are killed, pages played as they stand
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "long and not docker and not kafka" $(ARGS)

test-docker: setup  ## the tests that need a Docker engine: a running one, or (root, Debian) one installed and started for them
	@docker/engine.sh run -- env FLOODMARK_ENGINE=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "docker and not kafka" $(ARGS)

test-kafka: setup  ## the tests that run Apache Kafka, whose jars Maven fetches once (.ci/run runs those of .ci/kafka-tests)
	@$(BIN)/python -m pytest -q -m kafka $(ARGS)

check: setup  ## ruff, mypy strict, import contracts; whether every test file can be imported
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@tests=$$($(BIN)/python -m pytest --collect-only -qqq 2>&1) || { echo "$$tests" | grep -v ': [0-9]*$$'; exit 1; }

bench: setup  ## figures of the cluster, the recorder and the judge, side by side
	@$(BIN)/python -m floodmark.checkers.spark.jvm_cds
	@PYTHONPATH=tests/support $(BIN)/python tests/bench/bench.py $(ARGS)

soak: setup  ## 20,000 histories and 10,000 mistyped ones against the twin, 100,000 mutated folders, a million partitions: hours
	@PYTHONPATH=tests/support:tests/twin $(BIN)/python tests/soak/soak.py $(ARGS)
	@FLOODMARK_ALL_CASES=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/property tests/unit/test_accounts.py tests/unit/test_checkers_small_files.py tests/unit/test_every_path.py

teeth: setup  ## every known-bad rule against the judge: the table in checkers/README.md, made anew
	@PYTHONPATH=tests/support $(BIN)/python tests/teeth/matrix.py --readme checkers/README.md $(ARGS)

wheel: setup  ## dist/floodmark-VERSION.whl, which pip installs elsewhere without a clone
	rm -rf build dist
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

mutants: setup  ## small mistakes put into copies of the product: which test sees each (tests/mutants/README.md)
	@$(BIN)/python tests/mutants/mutants.py $(ARGS)

law-mutants: setup  ## each condition of each law changed, one by one: which no case of tests/corpus sees
	@PYTHONPATH=tests/support $(BIN)/python tests/mutants/law_mutants.py $(ARGS)

findings: setup  ## the tables of findings in histories/README.md, made anew from the laws' records and words
	@PYTHONPATH=tests/support $(BIN)/python tests/support/finding_tables.py

hunt: setup  ## small bugs put into the broker: which of them random faults find (tests/hunt/README.md), about an hour
	@$(BIN)/python tests/hunt/hunt.py $(ARGS)

healthy: setup  ## correct brokers, everything drawn, all faults: 40 runs, each must be valid (tests/hunt/README.md), a quarter of an hour
	@$(BIN)/python tests/hunt/healthy.py $(ARGS)

beside-kafka: setup  ## stories told to the reference broker and to Apache Kafka, and compared; ARGS: how many random ones
	@FLOODMARK_BESIDE=$(or $(ARGS),10) $(BIN)/python -m pytest -q -m kafka tests/integration/test_beside_kafka.py tests/integration/test_kafka_tools.py

pictures: setup  ## the README's pictures, made anew from a run of the demo (needs Debian's chromium)
	@PYTHONPATH=tests/support $(BIN)/python tests/pictures/pictures.py $(ARGS)

clean:  ## remove the environment and caches (saved runs stay)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find checkers docker harness nemesis tests workloads -name __pycache__ -prune -exec rm -rf {} +
