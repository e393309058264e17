# The README's commands. Each sets up what is missing, builds, and runs.
#
#   make demo            serve kimi-nano on 127.0.0.1:30000, ask it two things, keep serving
#   make demo ONCE=1     the same, and end after the answers
#   make test            everything that CI runs
#   make build           build/quire and the tests, no sanitizers
#   make setup           the Debian packages of tools/setup/packages.txt
#   make bench           the CPU figures of docs/benchmarks.md
#   make mutants         wrong edits of the code, one by one, and which tests notice; no part of CI
#   make evals-setup     what evals/harness.py and evals/toolcalls.py need, into build/venv
#   make test-evals      evals/ against a server of kimi-nano, the harness included

ONCE ?= 0
PORT ?= 30000
FUZZ_SECONDS ?= 40
SIM_SEEDS ?= 80000
LOAD_SECONDS ?= 20
VENV := build/venv
.DEFAULT_GOAL := build
.PHONY: setup build demo test lint test-cpu test-sim test-e2e test-asan test-tsan test-fuzz test-cuda bench \
  mutants evals-setup test-evals

setup:
	@tools/setup/install.sh

build: setup
	cmake --preset cpu
	cmake --build --preset cpu

demo: setup
	cmake --preset cpu
	cmake --build --preset cpu --target quire
	python3 tools/demo/demo.py --binary build/quire --model-path models/kimi-nano \
	  --port $(PORT) $(if $(filter 1,$(ONCE)),--once)

# In the order in which a fault is cheapest to find.
test: setup
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory test-cpu
	$(MAKE) --no-print-directory test-sim
	$(MAKE) --no-print-directory test-e2e
	$(MAKE) --no-print-directory test-cuda
	$(MAKE) --no-print-directory test-asan
	$(MAKE) --no-print-directory test-tsan
	$(MAKE) --no-print-directory test-fuzz
	@echo "make test: all parts passed"

lint:
	python3 tools/tidy/tidy.py
	python3 tools/tidy/tidy_test.py
	python3 tests/mutants/run.py --check
	git ls-files -z '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror

test-cpu:
	cmake --preset cpu
	cmake --build --preset cpu
	ctest --test-dir build --output-on-failure -j2 -LE gpu

# The engine on symbolic cells: fixed seeds, then as many that begin where nobody has looked.
test-sim:
	cmake --preset cpu
	cmake --build --preset cpu --target quire
	build/quire sim --seeds $(SIM_SEEDS)
	build/quire sim --faults all --seeds 200 2>/dev/null
	first=$$(od -An -N6 -tu8 /dev/urandom | tr -d ' '); echo "first seed $$first"; \
	build/quire sim --seeds $(SIM_SEEDS) --first-seed $$first

$(VENV)/ready: tests/e2e/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

test-e2e: $(VENV)/ready
	$(VENV)/bin/python -m pytest -q tests/e2e --load-seconds $(LOAD_SECONDS)

evals-setup: $(VENV)/evals-ready

$(VENV)/evals-ready: evals/requirements.txt $(VENV)/ready
	$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

# Without evals-setup `test-e2e` runs these too, but for the harness and the schemas of tools.
test-evals: $(VENV)/evals-ready
	$(VENV)/bin/python -m pytest -q tests/e2e/test_evals.py tests/e2e/test_evals_counts.py

# Every unit test under AddressSanitizer and UndefinedBehaviorSanitizer.
test-asan:
	cmake --preset asan
	cmake --build --preset asan --target part_tests
	ctest --test-dir build/asan --output-on-failure -j2 -L 'unit|ops|golden'

# What has threads, under ThreadSanitizer; a full pool has one, and takes minutes there.
test-tsan:
	cmake --preset tsan
	cmake --build --preset tsan --target base_test engine_test server_test
	for part in base engine server; do \
	  build/tsan/$${part}_test --gtest_brief=1 --gtest_filter='-FullPool*' || exit 1; done

test-fuzz:
	cmake --preset asan
	cmake --build --preset asan --target fuzzers
	tests/fuzz/run.sh build/asan $(FUZZ_SECONDS)

# Compiled where nvcc is; run where a device is.
test-cuda:
	@if [ -d src/cuda ] && command -v nvcc >/dev/null 2>&1; then \
	  cmake --preset cuda -DQUIRE_TESTS=OFF && cmake --build --preset cuda --target quire_cuda && \
	  python3 tests/device/off_code.py; \
	else echo "test-cuda: no CUDA sources or no nvcc here: left out"; fi

mutants: setup
	python3 tests/mutants/run.py

bench: build
	build/quire bench offline --model-path models/kimi-nano --input-len 128 --output-len 128
