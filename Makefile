# nestsmith. Users: `make demo`, `make test`. Developers: `make ext` (incremental), `make ctest`, `make lint`.
SHELL := /bin/bash
ROOT := $(abspath .)
VENV ?= $(ROOT)/.venv
PY ?= $(VENV)/bin/python
BUILD ?= build
CC ?= cc
CACHE := $(shell command -v ccache 2>/dev/null)
SAY := $(if $(QUIET),:,echo)
WARN := -std=c11 -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wformat=2 -Wmissing-format-attribute -Werror
RUNNER_MAIN := csrc/runner/main.c
SRC := $(sort $(filter-out csrc/py/% $(RUNNER_MAIN),$(wildcard csrc/*/*.c)))
PYSRC := $(sort $(wildcard csrc/py/*.c))
DEPS_CFLAGS := $(shell pkg-config --cflags libcjson 2>/dev/null)
DEPS_LIBS := $(shell pkg-config --libs libcjson 2>/dev/null) -ldl -lpthread -lm
CFLAGS := $(WARN) -O2 -g -fPIC -fvisibility=hidden -D_GNU_SOURCE -Icsrc $(DEPS_CFLAGS)
# `make ext LTO=1`: optimised across files, as wheels are (setup.py). Searching takes a tenth to a quarter less processor time,
# linking half a minute more; the objects have a folder of their own.
ifdef LTO
override BUILD := build/lto
CFLAGS += -flto=auto
endif
OBJ := $(SRC:%.c=$(BUILD)/%.o)
PYOBJ := $(PYSRC:%.c=$(BUILD)/%.o)
EXT = python/nestsmith/_core$(shell $(PY) -c "import sysconfig;print(sysconfig.get_config_var('EXT_SUFFIX'))" 2>/dev/null)
ifneq ($(MAKECMDGOALS),clean)
ifeq ($(wildcard $(PY)),)
PYINC =
else
PYINC = $(shell $(PY) -c "import sysconfig,numpy;print('-I'+sysconfig.get_paths()['include'],'-I'+numpy.get_include())")
endif
endif

# ---- what users call ----
PYTHON ?= python3
PIPGROUPS ?= test
STAMP := $(VENV)/.setup-$(subst $() ,-,$(PIPGROUPS))
.PHONY: setup setup-dev ext lib lib-rt ctest ctest-asan ctest-tsan test test-asan test-full test-tenth sweep suite demo lint tidy format format-check docs notebooks clean
setup: $(STAMP)
$(STAMP): pyproject.toml
	@.ci/packages
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: apt-get install python3-venv"; exit 1; }
	@$(PY) -m pip install -q --upgrade pip
	@echo "installing Python packages ($(PIPGROUPS)): some minutes and, with PyTorch among them (test), about 6 GB"
	$(PY) -m pip install -q $(PIPGROUPS:%=--group %)
	@touch $@
# what CONTRIBUTING.md needs besides: libraries of the C tests, formatters, checkers
setup-dev:
	@.ci/packages dev
	@$(MAKE) --no-print-directory setup PIPGROUPS="test lint"
demo:
	@$(MAKE) --no-print-directory setup PIPGROUPS=demo
	@echo "building the engine (a minute the first time)"
	@$(MAKE) --no-print-directory -s -j2 QUIET=1 ext
	PYTHONPATH=python $(PY) -m nestsmith.demo
# Three files at a time on two cores, as some tests wait; those that take long come first. ALONE are tests of times: they have the
# machine to themselves.
ALONE := tests/measure/ tests/tune/test_lock.py tests/test_interpreter_lock.py
FIRST := $(patsubst %,tests/%/,lower search tune rpc relay compile device)
FOLDERS := $(FIRST) $(filter-out $(FIRST) tests/c/ tests/data/ %__pycache__/,$(wildcard tests/*/)) $(wildcard tests/test_*.py)
WORKERS ?= 3
# Tests start hundreds of processes, which need not compile the package's Python each time.
PYTEST = PYTHONDONTWRITEBYTECODE= PYTHONPATH=python $(PY) -m pytest
BESIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(filter-out $(ALONE),$(FOLDERS)) $(ALONE:%=--ignore=%)
test: setup
	@$(MAKE) --no-print-directory -s -j2 ext
	@.ci/timed "make test" $(MAKE) --no-print-directory suite MARKED='-m "not full"'
test-full: setup
	@$(MAKE) --no-print-directory -s -j2 ext
	@.ci/timed "make test-full" $(MAKE) --no-print-directory suite MARKED=
	$(PY) tests/sweep/run.py
	@$(MAKE) --no-print-directory test-asan
suite:
	$(PYTEST) $(MARKED) $(BESIDE)
	$(PYTEST) $(MARKED) $(ALONE)
# A tenth of the tests marked `full`, another one with each commit, as many of them as begin within MINUTES.
TENTH ?= $(shell git rev-list --count HEAD 2>/dev/null || date +%-j)
MINUTES ?= 6
test-tenth: setup
	@$(MAKE) --no-print-directory -s -j2 ext
	@.ci/timed "tenth $(TENTH)" env $(PYTEST) -n 2 --dist worksteal --tenth $(TENTH) --minutes $(MINUTES) tests
# A sample of tests/sweep, another one with each commit, for MINUTES: the number of results compared, and of differences
sweep: setup
	@$(MAKE) --no-print-directory -s -j2 ext
	@.ci/timed "sweep $(TENTH)" $(PY) tests/sweep/run.py --no-scripts --chunk 6 --minutes $(MINUTES) --seed $(TENTH)
# TVM's own unit tests, with the package's name replaced: PEER is a checkout of TVM v0.14, or an archive of its tests
PEER ?=
peer-tests: setup
	@$(MAKE) --no-print-directory -s -j2 ext
	$(PY) tests/peer/run.py $(PEER) $(PEERFLAGS)
.PHONY: peer-tests
# missingReturn: the compilers check it, and cppcheck does not see Python.h (Py_RETURN_NONE and the like)
CPPCHECK := cppcheck -q --error-exitcode=1 --inline-suppr --enable=warning,portability --suppress=missingInclude \
  --suppress=missingReturn '-DcJSON_ArrayForEach(e,a)=for(e=(a)->child;e;e=e->next)' -Icsrc -j2
need-lint:
	@for t in clang-format cppcheck; do command -v $$t >/dev/null || { echo "$$t is missing: make setup-dev"; exit 1; }; done
	@$(PY) -c "import ruff, mypy" 2>/dev/null || { echo "ruff or mypy is missing: make setup-dev"; exit 1; }
lint: need-lint format-check
	@$(CPPCHECK) csrc
	@$(PY) .ci/check_layers.py
	@$(PY) .ci/check_formats.py
	@$(PY) -m ruff check python tests benchmarks .ci setup.py
	@$(PY) -m mypy
	@echo lint: clean
tidy:
	@ls $(SRC) | xargs -P2 -n8 sh -c 'clang-tidy --quiet "$$@" -- $(WARN) -D_GNU_SOURCE -Icsrc $(DEPS_CFLAGS)' _ && echo tidy: clean
format-check:
	@clang-format --dry-run -Werror csrc/*/*.c tests/c/*.c
# .c files only: headers are laid out by hand
format:
	clang-format -i csrc/*/*.c tests/c/*.c
	$(PY) -m ruff check -q --fix python tests benchmarks .ci setup.py
docs:
	@$(MAKE) --no-print-directory setup PIPGROUPS=docs
	@$(MAKE) --no-print-directory -s -j2 ext
	$(PY) -m sphinx -q -W docs docs/_build
# executes the notebooks anew (minutes, best on an idle machine) and stores their outputs
notebooks:
	@$(MAKE) --no-print-directory setup PIPGROUPS="docs test"
	@$(MAKE) --no-print-directory -s -j2 ext
	$(PY) docs/execute.py

# Wheels for x86-64 and aarch64, in dist/
wheel:
	@VENV="$(VENV)" .ci/wheel
.PHONY: wheel

# ---- building ----
ext: $(EXT)
NEED_CJSON ?= $(shell pkg-config --exists libcjson 2>/dev/null || echo yes)
ifneq ($(NEED_CJSON),)
$(OBJ): | need
need:
	@echo "cJSON is missing: apt-get install libcjson-dev pkg-config"; exit 1
.PHONY: need
endif
lib: $(BUILD)/libnestsmith.a
# What a deployed program needs to run a network (csrc/rt/nsrt.h), with cJSON in it and nothing of the compiler: `make lib-rt`,
# `make lib-rt CROSS=aarch64-linux-gnu-`, `make install PREFIX=/usr/local`. Only nsrt_* can be seen in either library.
RT_CC ?= $(if $(CROSS),$(CROSS)gcc,$(CC))
RT_DIR := $(BUILD)/rt$(if $(CROSS),-$(CROSS:-=))
RT_SRC := $(filter $(foreach d,base program device graph rt,csrc/$d/%),$(SRC))
RT_OBJ := $(RT_SRC:%.c=$(RT_DIR)/%.o) $(RT_DIR)/cJSON.o
RT_SIZE := -ffunction-sections -fdata-sections
RT_FLAGS = $(filter-out -g $(DEPS_CFLAGS),$(CFLAGS)) $(RT_SIZE) -I$(BUILD)/cjson
RT_SO := libnestsmith_rt.so.0
PREFIX ?= /usr/local
lib-rt: $(RT_DIR)/libnestsmith_rt.so $(RT_DIR)/libnestsmith_rt.a
$(RT_DIR)/libnestsmith_rt.so: $(RT_OBJ)
	@$(SAY) LINK $@; $(RT_CC) -shared -Wl,-soname,$(RT_SO),-z,defs,--gc-sections -s -o $@ $^ -ldl -lpthread -lm
$(RT_DIR)/libnestsmith_rt.a: $(RT_OBJ)
	@$(RT_CC) -r -nostdlib -o $(RT_DIR)/nestsmith_rt.o $^
	@$(CROSS)objcopy --localize-hidden $(RT_DIR)/nestsmith_rt.o; rm -f $@; $(CROSS)ar rcs $@ $(RT_DIR)/nestsmith_rt.o
$(RT_DIR)/cJSON.o: $(BUILD)/cjson/cJSON.c
	@mkdir -p $(@D); $(CACHE) $(RT_CC) -O2 -fPIC -fvisibility=hidden $(RT_SIZE) -c $< -o $@
$(RT_DIR)/%.o: %.c $(BUILD)/cjson/cJSON.c
	@mkdir -p $(@D); $(SAY) $(CROSS)CC $<; $(CACHE) $(RT_CC) $(RT_FLAGS) -MMD -MP -c $< -o $@
install: lib-rt
	@.ci/install-rt $(RT_DIR) $(RT_SO) $(DESTDIR) $(PREFIX)
.PHONY: install
-include $(RT_OBJ:.o=.d)
# What runs on a board, with cJSON in it: `make runner`, `make runner CROSS=aarch64-linux-gnu-`. Linked with the board's own C library,
# for the drivers that it opens bring theirs.
RUNNER_CC ?= $(CROSS)gcc
RUNNER_DIR := $(BUILD)/runner$(if $(CROSS),-$(CROSS:-=))
RUNNER_SRC := $(filter $(foreach d,base program device graph compile measure runner,csrc/$d/%),$(SRC)) $(RUNNER_MAIN)
RUNNER_OBJ := $(RUNNER_SRC:%.c=$(RUNNER_DIR)/%.o) $(RUNNER_DIR)/cJSON.o
RUNNER_FLAGS = $(filter-out -O2 -g -fPIC $(DEPS_CFLAGS),$(CFLAGS)) -Os -ffunction-sections -fdata-sections -I$(BUILD)/cjson
runner: $(RUNNER_DIR)/nestsmith-runner
$(RUNNER_DIR)/nestsmith-runner: $(RUNNER_OBJ)
	@$(SAY) LINK $@; $(RUNNER_CC) -Wl,--gc-sections -s -o $@ $^ -ldl -lpthread -lm
$(RUNNER_DIR)/cJSON.o: $(BUILD)/cjson/cJSON.c
	@mkdir -p $(@D); $(CACHE) $(RUNNER_CC) -Os -ffunction-sections -fdata-sections -c $< -o $@
$(RUNNER_DIR)/%.o: %.c $(BUILD)/cjson/cJSON.c
	@mkdir -p $(@D); $(SAY) $(CROSS)CC $<; $(CACHE) $(RUNNER_CC) $(RUNNER_FLAGS) -MMD -MP -c $< -o $@
$(BUILD)/cjson/cJSON.c:
	@.ci/cjson $(@D)
.PHONY: runner
-include $(RUNNER_OBJ:.o=.d)
$(BUILD)/libnestsmith.a: $(OBJ)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/csrc/py/%.o: csrc/py/%.c
	@mkdir -p $(@D); $(SAY) CC $<; $(CACHE) $(CC) $(CFLAGS) $(PYINC) -MMD -MP -MP -c $< -o $@
$(BUILD)/csrc/%.o: csrc/%.c
	@mkdir -p $(@D); $(SAY) CC $<; $(CACHE) $(CC) $(CFLAGS) -MMD -MP -MP -c $< -o $@
$(EXT): $(OBJ) $(PYOBJ)
	@$(SAY) LINK $@; $(CC) -shared $(if $(LTO),-O2 -flto=auto) -o $@ $^ $(DEPS_LIBS)
-include $(OBJ:.o=.d) $(PYOBJ:.o=.d)

COMMA := ,
# C unit tests: tests/c/test_*.c, one program each, linked with cmocka. SAN=1: a separate tree with ASan and UBSan.
CTESTS := $(sort $(wildcard tests/c/test_*.c))
ctest: need-cmocka $(CTESTS:tests/c/%.c=$(BUILD)/ctest/%)
	@set -e; for t in $(filter-out need-cmocka,$^); do echo "== $$t"; $$t; done
need-cmocka:
	@pkg-config --exists cmocka || { echo "cmocka is missing: make setup-dev"; exit 1; }
.PHONY: need-cmocka
$(BUILD)/ctest/%: tests/c/%.c tests/c/fixture.h $(BUILD)/libnestsmith.a
	@mkdir -p $(@D); $(CC) $(CFLAGS) -Wno-conversion -o $@ $< $(BUILD)/libnestsmith.a -lcmocka $(DEPS_LIBS) $(LDSAN)
# a network that was exported by an earlier version
$(BUILD)/ctest/test_runtime: tests/c/test_runtime.c tests/data/library-network-fbcf384.so.gz $(BUILD)/libnestsmith.a
	@mkdir -p $(@D); gzip -dc tests/data/library-network-fbcf384.so.gz > $(@D)/network.so
	@$(CC) $(CFLAGS) -Wno-conversion -DNETWORK='"$(@D)/network.so"' -o $@ $< $(BUILD)/libnestsmith.a -lcmocka $(DEPS_LIBS) $(LDSAN)
# test_memory sees every call of the system's allocator, and makes it fail
$(BUILD)/ctest/test_memory: LDSAN += $(addprefix -Wl$(COMMA)--wrap=,malloc calloc realloc posix_memalign strdup free)
# The IR's tables move whenever they grow and programs are verified after every pass, so that much is seen.
ASAN_MAKE = $(MAKE) BUILD=$(BUILD)/asan CC="$(CC) -fsanitize=address,undefined -fno-sanitize-recover=all -DIR_MOVE_TABLES -DNS_DEBUG_VERIFY"
ctest-asan:
	.ci/sanitized $(BUILD)/asan/reports $(ASAN_MAKE) ctest
# The Python tests with the extension under both sanitizers. `make test-asan TESTS="tests/te -x"`: some of them.
test-asan: setup
	@mkdir -p $(BUILD)/asan/python/nestsmith
	@$(ASAN_MAKE) EXT=$(BUILD)/asan/$(EXT) --no-print-directory -s -j2 ext
	VENV="$(VENV)" BUILD="$(BUILD)" SAN_CC="$(CC)" FOLDERS="$(FOLDERS)" .ci/asan $(TESTS)
# The parts that use threads (thread pool, search, training, compiling, measuring) under ThreadSanitizer.
TSAN ?= base device measure race mlp search runtime
TSAN_TESTS := $(filter $(addprefix tests/c/test_,$(addsuffix .c,$(TSAN))),$(CTESTS))
ctest-tsan:
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 $(MAKE) BUILD=$(BUILD)/tsan CC="$(FUZZ_CC) -fsanitize=thread" CTESTS="$(TSAN_TESTS)" ctest

# Fuzz targets (clang, libFuzzer, ASan and UBSan): each runs for FUZZ_SECONDS from its corpus in tests/fuzz/corpus; what it
# finds new is kept under build. `make fuzz FUZZ_SECONDS=600`; a failing input is written to build/fuzz/crash-...
FUZZ_SECONDS ?= 20
FUZZ_CC ?= clang
FUZZ := $(BUILD)/fuzz
FUZZ_OBJ := $(patsubst %.c,$(FUZZ)/%.o,$(filter csrc/base/% csrc/ir/% csrc/te/% csrc/schedule/% csrc/program/% csrc/device/% csrc/graph/% csrc/rt/% csrc/compile/% csrc/measure/% \
  csrc/runner/%,$(SRC)))
FUZZ_FLAGS := $(CFLAGS) -fsanitize=address,undefined -fno-sanitize-recover=all
fuzz: $(patsubst tests/fuzz/fuzz_%.c,$(FUZZ)/%,$(wildcard tests/fuzz/fuzz_*.c))
	@set -e; for f in $^; do n=$${f##*/}; mkdir -p $(FUZZ)/found/$$n; echo "== $$n"; \
	$$f -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 -dict=tests/fuzz/log.dict \
	-artifact_prefix=$(FUZZ)/ $(FUZZ)/found/$$n tests/fuzz/corpus/$$n 2>&1 | tee $(FUZZ)/$$n.log | grep -E "executed_units|ERROR|SUMMARY|Test unit" || true; \
	grep -q "executed_units" $(FUZZ)/$$n.log && ! grep -qE "ERROR|SUMMARY" $(FUZZ)/$$n.log; done
$(FUZZ)/%.o: %.c
	@mkdir -p $(@D); echo CC $< for fuzzing; $(CACHE) $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
# an archive: a target takes only the objects that it calls, and what libFuzzer clears for every input stays small
$(FUZZ)/libfuzzed.a: $(FUZZ_OBJ)
	@rm -f $@; ar rcs $@ $^
$(FUZZ)/%: tests/fuzz/fuzz_%.c tests/fuzz/fuzz.h $(FUZZ)/libfuzzed.a
	@$(FUZZ_CC) $(FUZZ_FLAGS) -Wno-conversion -fsanitize=fuzzer -o $@ $< $(FUZZ)/libfuzzed.a -Wl,--as-needed $(DEPS_LIBS)
-include $(FUZZ_OBJ:.o=.d)
.PHONY: fuzz
.SECONDARY: $(FUZZ_OBJ)
clean:
	rm -rf build $(EXT)
