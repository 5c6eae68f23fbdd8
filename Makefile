# The commands of the project; the README and CI call these. Needs python3 (3.11+), make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo demo-preloaded demo-always-hit demo-real demo-artifacts setup test test-engines test-all lies mutate chaos bench bench-peers bench-coordinator bench-handover bench-tools lint type fmt check clean

demo: setup ## the main job on the built-in simulated engine
	$(BIN)/raybench submit scenarios/demo.yaml

demo-preloaded: setup ## the cold check rejects a warm attempt and passes on fresh text
	$(BIN)/raybench submit scenarios/demo_preloaded.yaml

demo-always-hit: setup ## a server that always reports hits: stops with exit 1 and says why
	$(BIN)/raybench submit scenarios/demo_always_hit.yaml; test $$? -eq 1

demo-artifacts: setup ## a comparison of artifacts on simulated servers: probed, gated, measured, reported
	$(BIN)/raybench probe scenarios/artifact_comparison.yaml --arm D-dflash2 \
		--grid 196608,188416,180224,172032,163840,155648
	$(BIN)/raybench submit scenarios/artifact_comparison.yaml

demo-real: setup ## the main job on a real SGLang server with a tiny model, on the CPU
	$(BIN)/python tools/engines/real_engines.py demo

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

test: setup ## every test that needs nothing but this machine
	$(BIN)/python -m pytest -m "not slow and not netns and not engine"

test-engines: setup ## every check against real engines on the CPU; the last line is one JSON object
	$(BIN)/python tools/engines/check_engines.py $(ARGS)

test-all: setup ## also several hosts in network namespaces (root, iproute2) and real engines
	$(BIN)/python -m pytest

lies: setup ## engines that lie or fail: which are caught, and which honest ones are accused
	$(BIN)/python tests/sim/gallery.py

mutate: setup ## whether the tests can fail: what survives a change of one place (ARGS="analysis protocol/desk.py")
	$(BIN)/python tools/mutation.py $(ARGS)

chaos: setup ## a run on three hosts that is struck over fifty times (root, iproute2; 10 minutes; CHAOS="--seed 2")
	PYTHONPATH=tests/ray $(BIN)/python tests/chaos/chaos.py $(CHAOS)

bench: bench-tools ## the client's cost and truth beside bare C, in one run (needs cc)
	$(BIN)/python benchmarks/bench.py $(ARGS)

bench-peers: bench-tools ## the same beside the tools that others use (ARGS=--full: at 4,096 streams as well)
	$(BIN)/python benchmarks/peers.py $(ARGS)

bench-coordinator: bench-tools ## what the coordinator costs, with 2 to 64 workers on this machine
	$(BIN)/python benchmarks/coordinator.py $(ARGS)

bench-tools: setup
	$(MAKE) --silent -C benchmarks/mockserver
	$(MAKE) --silent -C benchmarks/bareclient

bench-handover: setup ## how long a slot stands empty, C=64 over 4 workers on one host and on two (root for the second)
	$(BIN)/python benchmarks/handover.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: lint type test

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
