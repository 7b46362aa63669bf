# `make` lists the targets. Everything installs itself: a machine with Rust, Python 3.11+ and make is enough.

PYTHON ?= python3
CARGO ?= cargo
VENV := .venv
BIN := $(VENV)/bin

# PyO3 builds for the virtual environment's interpreter, and never links libpython: a slot's interpreter brings it.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PYO3_BUILD_EXTENSION_MODULE := 1

# In CI the lock file is the truth; at a desk it may follow Cargo.toml.
LOCKED := $(if $(CI),--locked)
TARGET := $(or $(CARGO_TARGET_DIR),target)
STAGE := scripts/stage
SOURCES := $(shell find crates python Cargo.toml Cargo.lock pyproject.toml -type f \
	-not -path '*/__pycache__/*' -not -path '*/tests/*' -not -path '*/fuzz/*' -not -path '*/_bin/*' 2>/dev/null)
# Features of dependencies are those of all packages that are named. With these two the command line is built with the
# ones of the extension, and little is compiled twice.
SAME_FEATURES := -p paceline-cli -p paceline-py
# The command line goes into the package as it is.
COMMAND := python/paceline/_bin/paceline

# bench: ONLY="rtt map1", QUICK=1, STRICT=1      sim: SEED, STEPS      sim-nightly: SEEDS      fuzz: SECONDS, ONLY
# chaos: SEED, MINUTES
SEED ?= 1
STEPS ?= 10000
SEEDS ?= 10000
SECONDS ?= 300
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help scale build command programs wheel demo test test-quick test-nightly test-rust test-python test-hosts test-hosts-quick test-hosts-nightly \
	test-bench check check-rust check-python deny format bench fuzz sim sim-nightly mutations chaos test-chaos clean

help: ## this list
	@echo "Paceline: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: $(VENV)/.built ## .venv with the tools and the release build installed; does nothing when up to date

$(VENV)/.tools: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(SOURCES)
	@rm -rf $(VENV)/wheel
	@$(MAKE) --no-print-directory command
	$(BIN)/maturin build $(LOCKED) --release --interpreter $(BIN)/python --out $(VENV)/wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(VENV)/wheel/*.whl
	@touch $@

command: ## the command line, release build, where the package has it
	$(CARGO) build $(LOCKED) --release --target-dir $(TARGET) $(SAME_FEATURES) --bin paceline
	@mkdir -p $(dir $(COMMAND))
	@install -m 755 $(TARGET)/release/paceline $(COMMAND)

programs: $(VENV)/.tools ## the Rust programs that Python tests call
	$(CARGO) build $(LOCKED) --quiet --target-dir $(TARGET) --workspace --example exports --example connect_to --example tally
	$(CARGO) build --quiet --target-dir $(TARGET) --manifest-path examples/rust-shapes/Cargo.toml

wheel: $(VENV)/.tools ## the release wheel, into dist/
	@$(MAKE) --no-print-directory command
	@strip $(COMMAND)
	$(BIN)/maturin build $(LOCKED) --release --strip --interpreter $(BIN)/python --out dist

demo: build ## the main job on an embedded cluster: a tour of the Mandelbrot set, tile by tile
	@$(BIN)/python examples/demo.py

# Whatever can be built is tested to the end: a run shows all that is wrong, not the first of it.
test: ## everything: check, Rust and Python tests, doc tests, several hosts, a minute of chaos, a tiny run of every bench
	@$(STAGE) "build" $(MAKE) --no-print-directory build
	@failed=0; run() { $(STAGE) "$$1" $(MAKE) --no-print-directory "$$2" || failed=1; }; \
		run "check: Rust" check-rust; \
		run "check: Python" check-python; \
		run "tests: Rust" test-rust; \
		run "tests: Python" test-python; \
		run "tests: hosts" test-hosts-quick; \
		run "tests: chaos" test-chaos; \
		run "bench: smoke" test-bench; \
		exit $$failed

test-quick: build programs ## the Python tests that take less than five seconds each
	$(BIN)/python -m pytest -q -m "not slow and not nightly"

test-nightly: build programs ## the Python tests that take minutes or gigabytes
	$(BIN)/python -m pytest -q -m nightly -o faulthandler_timeout=600

test-rust: build programs
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run $(LOCKED) --workspace --no-fail-fast && $(CARGO) test $(LOCKED) --workspace --doc --quiet; \
	else \
		$(CARGO) test $(LOCKED) --workspace --quiet --no-fail-fast; \
	fi
	$(CARGO) run --quiet --target-dir target --manifest-path examples/rust-quickstart/Cargo.toml

test-python: build programs
	$(BIN)/python -m pytest -q

test-hosts-quick: build
	@scripts/install-hosts-packages
	$(BIN)/python -m pytest -q -m "not slow and not nightly" -o faulthandler_timeout=200 tests/hosts

test-hosts: build ## the tests on several hosts, made of namespaces of this machine; as root
	@scripts/install-hosts-packages
	$(BIN)/python -m pytest -q -o faulthandler_timeout=200 tests/hosts

test-hosts-nightly: build ## those of them that take minutes
	@scripts/install-hosts-packages
	$(BIN)/python -m pytest -q -m nightly -o faulthandler_timeout=1200 tests/hosts

# The clients of chaos import the package; so does the program that runs it.
CHAOS := PYTHONPATH=tests:tests/python:tests/hosts $(BIN)/python -m chaos.run

test-chaos: build # one minute of chaos, always the same plan
	@scripts/install-hosts-packages
	$(BIN)/python -m pytest -q tests/chaos
	@$(CHAOS) --seed 1 --minutes 1

chaos: build ## a cluster of real processes under planned faults, and a check of all histories (SEED=1 MINUTES=10); as root
	@scripts/install-hosts-packages
	@$(CHAOS) --seed $(SEED) --minutes $(MINUTES)

test-bench: build
	$(BIN)/python bench/run.py --smoke

check: check-rust check-python ## formatting, lints, types, the stub of the extension

check-rust: $(VENV)/.tools
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 \
		|| rustup component add rustfmt clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(LOCKED) --workspace --all-targets --quiet -- -D warnings

check-python: build
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	@scripts/mutations --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml --allowlist scripts/stubtest-allow.txt --ignore-unused-allowlist paceline._native

deny: ## licences, sources and advisories of the Rust dependencies
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked --quiet cargo-deny
	$(CARGO) deny --all-features check

format: $(VENV)/.tools ## rewrite the sources in the project's format
	$(CARGO) fmt --all
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

bench: build ## the bars, Paceline and its peers in one run (ONLY="rtt map1", QUICK=1, STRICT=1)
	@$(BIN)/python bench/run.py $(ONLY) $(if $(QUICK),--quick) $(if $(STRICT),--strict)

fuzz: ## fuzz the frame decoder and the cores (SECONDS=300 a target, ONLY=target); the cores also without nightly Rust
	@if $(CARGO) +nightly --version >/dev/null 2>&1; then \
		$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked --quiet cargo-fuzz || exit 1; \
		cd fuzz && for target in $(or $(ONLY),$$($(CARGO) +nightly fuzz list)); do \
			$(CARGO) +nightly fuzz run $$target -- -max_total_time=$(SECONDS) || exit 1; \
		done; \
	else \
		for target in $(or $(ONLY),head node client); do \
			$(CARGO) run $(LOCKED) --quiet --release -p paceline-sim --example fuzz -- $$target --seconds $(SECONDS) || exit 1; \
		done; \
	fi

sim: ## replay one seed of the simulation (SEED=1 STEPS=10000)
	$(CARGO) run $(LOCKED) --quiet --release -p paceline-sim -- --seed $(SEED) --steps $(STEPS)

scale: ## what a step of the head and a task of the client cost in clusters of several sizes
	$(CARGO) run $(LOCKED) --quiet --release -p paceline-sim --example scale

sim-nightly: ## many seeds from today's date on (SEEDS=10000 STEPS=10000)
	@scripts/sim-nightly $$(date +%Y%m%d0000) $(SEEDS) $(STEPS)

mutations: ## break the cores on purpose and see what notices (ONLY=word of a description)
	@scripts/mutations --markdown $(if $(ONLY),--only "$(ONLY)")

clean: ## remove everything that was built, .venv too
	rm -rf target dist $(VENV) bench/results fuzz/target .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
