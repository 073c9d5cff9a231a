# Two commands matter: `make run` serves on this machine, `make test` checks everything.
# Both make a virtual environment when it is missing, and again when what it was made from has changed.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
MADE_FROM := setup.cfg setup.py pyproject.toml constraints.txt
# The build backend comes from constraints.txt too, so that what is tested does not change from one day to the next.
# Modules are compiled when they are imported first: most of those in the libraries never are.
INSTALL := $(PIP) install --quiet --no-compile --no-build-isolation --constraint constraints.txt --editable
# Tests start hundreds of processes, which would compile every module again.
export PYTHONDONTWRITEBYTECODE :=
# Tests with real clients and with faults mostly wait, so they run beside the others.
REAL_TIME := $(wildcard tests/faults tests/peers tests/real_kafka tests/suites)

PURE := $(wildcard tests/common tests/coordinator tests/group tests/settings tests/timer tests/topics tests/transactions \
  tests/log/test_log_batch.py tests/log/test_log_codecs.py tests/log/test_log_records.py tests/log/test_log_spans.py)

.PHONY: run test test-real-time test-others quick check style types audit golden suites docs soak bars bench clean

run: $(VENV)/.installed
	$(BIN)/callboard serve --listen 127.0.0.1:9092 --data ./data

test: style
	$(MAKE) --no-print-directory --jobs=3 types test-real-time test-others

test-real-time: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q $(REAL_TIME)

test-others: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(REAL_TIME))

# A quick look, about 90 s when mypy's cache is warm: the code's rules, the pure tests, and 50 seeds of each simulation.
quick: check
	CALLBOARD_WHEEL_STEPS=50000 $(BIN)/python -m pytest -q -n 2 --dist loadfile $(PURE)
	PYTHONPATH=tests $(BIN)/python -m simulation 0 50
	PYTHONPATH=tests $(BIN)/python -m crashes 0 50

check: style types

style: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/python tests/links.py
	$(BIN)/mypy --strict -p callboard
	cd tests && $(abspath $(BIN))/mypy --config-file $(CURDIR)/setup.cfg --cache-dir $(CURDIR)/.mypy_cache --strict .
	$(BIN)/mypy --strict examples docs/site
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive actors runtime spark bench examples docs/site

# Known vulnerabilities of what is installed, by the internet.
audit: $(VENV)/.installed-test
	$(PIP) install --quiet pip-audit
	$(BIN)/pip-audit --skip-editable

# What a real Kafka answers, for the tests in tests/conformance. Java and Maven are needed; most of it is waiting.
golden: $(VENV)/.installed-test
	cd tests && $(abspath $(BIN))/python -m conformance.record scenarios
	cd tests && $(abspath $(BIN))/python -m conformance.record seeds

# Other people's suites against a server of ours; `make test` runs them too.
suites: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q tests/suites

# The documentation site, in build/site/html.
docs: $(VENV)/.installed-test
	$(BIN)/python tests/links.py
	$(BIN)/python docs/site/build.py

# The long proofs: a million seeds of the simulation, power cuts, hostile bytes, kills, timing wheels, damaged frames,
# members without a connection, property tests with many examples, searches of the model of the cluster's protocol,
# a cluster of two versions, and all tests with Python 3.12 and 3.13, if their interpreters are found.
# It can be interrupted and resumes; its progress is tests/soak/progress.json.
# `make soak PROOFS="simulation kills" MINUTES=30` runs some of it, `SEEDS=3` three seeds of each.
soak: $(VENV)/.installed-test
	PYTHONPATH=tests $(BIN)/python -m soak $(PROOFS) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEEDS),--seeds $(SEEDS))

# The bars of a cluster in 15 minutes, on a quiet machine; `:3` are three seeds. The table is written into the documentation.
# cluster-kill-on-bucket is skipped unless CALLBOARD_TEST_BUCKET names a bucket.
BARS := cluster-takeover:3 cluster-idle:1 cluster-commits:1 cluster-kill:3 cluster-stop:3 cluster-drain:1 cluster-cut:1 \
  cluster-kill-on-s3:1 cluster-kill-on-bucket:1 cluster-workers:1
bars: $(VENV)/.installed-test
	for bar in $(BARS); do PYTHONPATH=tests $(BIN)/python -m soak $${bar%:*} --seeds $${bar#*:} || true; done
	PYTHONPATH=tests $(BIN)/python -m faults report --write

bench: $(VENV)/.installed-bench
	$(BIN)/callboard bench server

$(VENV)/.made: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "callboard needs Python 3.11 or newer, and '$(PYTHON)' is not; name one with PYTHON=python3.x" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt setuptools
	touch $@

$(VENV)/.installed: $(VENV)/.made $(MADE_FROM)
	$(INSTALL) .
	touch $@

# The tests of spark/ are tests like all others; half a gigabyte that no server needs.
$(VENV)/.installed-test: EXTRAS := test,spark,docs
$(VENV)/.installed-bench: EXTRAS := bench
$(VENV)/.installed-test $(VENV)/.installed-bench: $(VENV)/.made $(MADE_FROM)
	$(INSTALL) '.[$(EXTRAS)]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
