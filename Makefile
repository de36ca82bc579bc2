# What a fresh machine needs: Go 1.26, and Python 3.11 with pip. `make test` sets up the rest; `make prove`
# needs a C++ compiler too, for llama.cpp.

GO     ?= go
PYTHON ?= python3

VENV        := .venv
VENV_PYTHON := $(VENV)/bin/python
PEER        := .peer
PEER_PYTHON := $(PEER)/bin/python
TRANSFORMERS := .transformers
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# Packages for the race detector: code with goroutines, and the code that runs on them.
CONCURRENT  := . ./exec/... ./graph/... ./ops/... ./lower/...
# Packages whose results could depend on how Go compiles for the processor, or on the kernels in the build.
COMPUTING   := ./gguf/... ./ops/... ./exec/... ./lower/...
# Packages whose tests have the flag -update: they declare it, or import the package that declares it.
GOLDEN       = $(shell grep -rlE --include='*_test.go' 'flag\.Bool.*"update"|/graph/pass/passtest"' . | xargs -r -n1 dirname | sort -u)

# Programs that generate the kernels' assembly. Each writes one file to the folder above _asm.
ASM         := exec/cpu/kernel/_asm
ASSEMBLERS   = $(notdir $(patsubst %/main.go,%,$(wildcard $(ASM)/*/main.go)))

# Folder for the results of `make bench-peers`, and more flags for it, such as -rounds 1.
BENCH       ?= docs/bench
BENCH_FLAGS ?=

# Models with random weights that `make bench-models` writes and `make bench-peers` measures too: names that
# `go run ./conformance/benchmodels -list` prints, or all (11 GB).
BENCH_MODELS ?=

# For CUDA: the folder of cuda.h, from a pinned wheel; the folder of a stub of libcuda to link with; and
# the environment of a build with the driver.
CUDA_KERNELS := exec/cuda/kernels
CUDA_HEADERS := .cuda/headers
CUDA_STUB    := bin/stub
LIBCUDA       = CGO_ENABLED=1 CGO_CFLAGS='-O2 -g -I$(CURDIR)/$(CUDA_HEADERS)/nvidia/cuda_runtime/include' CGO_LDFLAGS='-L$(CURDIR)/$(CUDA_STUB)'

# Packages with fuzz targets, and the time of `make fuzz` for each target.
FUZZED       = $(shell grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
FUZZTIME    ?= 20m

export PESTI_PYTHON ?= $(CURDIR)/$(VENV_PYTHON)
export PESTI_PEER   ?= $(CURDIR)/$(PEER_PYTHON)

# llama.cpp is compiled from source. Without a compiler, tests that compare with it are skipped, except
# in CI.
PEER_IF_ANY := $(if $(CI)$(shell command -v $(CXX)),peer)
# Kernels for other processors run on emulators. Without an emulator they are not tested, except in CI.
EMULATED    := $(if $(CI)$(shell command -v qemu-aarch64),test-arm64) $(if $(CI)$(shell command -v bochs-bin),test-avx512)
# The real driver is C, so this needs a compiler.
DRIVEN      := $(if $(CI)$(shell command -v $(CC)),test-libcuda)
# Build flags for only the library of llama.cpp. The instruction sets are fixed, so that pip's cached build
# runs on other machines too. AMX is not among them, because gcc 12 miscompiles it.
PEER_BUILD  := -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAVA_BUILD=OFF \
	-DCMAKE_PROJECT_llama.cpp_INCLUDE='$(CURDIR)/conformance/llamacpp/libllama.cmake'

.NOTPARALLEL:
.PHONY: build check gofmt vet staticcheck cross check-asm check-cuda test prove prove-slow times test-oracle test-one-processor test-variants test-goamd64 test-purego test-avx512 test-arm64 test-libcuda test-offline race test-fuzz fuzz bench bench-models bench-peers bench-accuracy roofline-check gpu-check conformance golden asm cuda pesti-cuda gpu-tools cuda-stub demo graphviz module test-module transformers check-transformers models venv peer

build:
	$(GO) build -o bin/pesti ./cmd/pesti

# The same program with the CUDA driver. It links a stub of libcuda; at run time the driver's own library
# is loaded instead.
pesti-cuda: build cuda-stub
	$(LIBCUDA) $(GO) build -tags libcuda -o bin/pesti-cuda ./cmd/pesti

cuda-stub: $(CUDA_HEADERS)/requirements.txt
	$(GO) run ./conformance/cudastub -include $(CUDA_HEADERS)/nvidia/cuda_runtime/include -o $(CUDA_STUB)

$(CUDA_HEADERS)/requirements.txt: conformance/cudastub/requirements.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes --upgrade --target $(CUDA_HEADERS) -r $<
	cp $< $@

# --- checks without a model ---

check: gofmt vet staticcheck cross check-asm check-cuda

gofmt:
	@unformatted=$$(gofmt -l .) || exit 1; test -z "$$unformatted" || { echo "gofmt: run gofmt -w on:"; echo "$$unformatted"; exit 1; }

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

cross:
	@for platform in $(PLATFORMS); do \
		echo "build $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build ./... || exit 1; \
	done
	@echo "vet without assembly"
	@$(GO) vet -tags purego ./exec/...
	@CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) vet ./exec/...

# The programs that generate assembly are a separate module, which ./... does not include. They write to a
# copy, which is compared with the files here, so that other changes here do not matter.
check-asm:
	@cd $(ASM) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test ./...
	@copy=$$(mktemp -d) && trap 'rm -r "$$copy"' EXIT && cp -r $(ASM) "$$copy/_asm" && \
	$(MAKE) --no-print-directory asm ASM="$$copy/_asm" && \
	for file in "$$copy"/*_a??64.* $(ASM)/../*_a??64.s; do \
		name=$$(basename "$$file"); \
		cmp "$$copy/$$name" "$(ASM)/../$$name" || { echo "check-asm: $$name is not what $(ASM) writes; run make asm"; exit 1; }; \
	done

# Compiles the CUDA kernels again, compares the results, and assembles them for all GPUs that ptxas knows.
check-cuda:
	$(PYTHON) $(CUDA_KERNELS)/build.py --check
	$(PYTHON) $(CUDA_KERNELS)/build.py --ptxas --check

# --- tests: what users rely on is in test, the rest in prove ---

# REPORT summarizes the output of go test -json, and stores the times of tests for `make times`. COMPLETE
# makes a skipped test a failure in CI.
REPORT       = $(GO) run ./conformance/skipreport -times bin/times/$@.txt
COMPLETE    := $(if $(CI),-all)
# Prefix of the names of slow tests (testenv.Prove), and their skip reason outside prove.
SLOW        := ^TestProve
ELSEWHERE   := runs in make prove

# One package at a time, because each uses all processors. PESTI_INPUTS makes Go rerun a test after a change
# of a model, a script or the machine.
test: venv models
	@mkdir -p bin/times
	@inputs=$$($(GO) run ./conformance/inputs) && PESTI_INPUTS=$$inputs PESTI_REQUIRE=models PESTI_PROVE= \
	$(GO) test -json -p 1 -timeout 30m ./... | $(REPORT) $(COMPLETE) -elsewhere '$(ELSEWHERE)'

# Slow tests run last, so that the last line is their summary. They never come from Go's cache.
prove: test-one-processor test-variants $(EMULATED) $(DRIVEN) test-module race test-fuzz
	$(MAKE) --no-print-directory prove-slow

prove-slow: venv models $(PEER_IF_ANY)
	@PESTI_REQUIRE="models $(PEER_IF_ANY)" PESTI_PROVE=1 \
	$(GO) test -json -count=1 -p 1 -timeout 60m -run '$(SLOW)' $$(grep -rl --include='*_test.go' 'func TestProve' . | xargs -n1 dirname | sort -u) | $(REPORT) $(COMPLETE)

# The slowest tests of the last make test and make prove.
times:
	@$(GO) run ./conformance/skipreport -slowest 20 bin/times/*.txt

test-oracle: venv models
	PESTI_REQUIRE=models $(GO) test ./conformance/oracle

# With one processor, spinning workers must yield to each other. The portable kernels must work in a build
# that also has kernels in assembly. This run and the following test two packages at a time, because most of their
# tests use one processor.
test-one-processor: venv
	@GOMAXPROCS=1 PESTI_ISA=portable PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -p 2 -timeout 20m $(CONCURRENT) | $(REPORT) -elsewhere '$(ELSEWHERE)'

# The results must be the same with other instructions, such as fused multiply-add, and without assembly.
test-variants: test-goamd64 test-purego

test-goamd64: venv
	@GOAMD64=v3 PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -short -p 2 -timeout 20m $(COMPUTING) | $(REPORT) -elsewhere '$(ELSEWHERE)'

test-purego: venv
	@PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -short -p 2 -timeout 20m -tags purego $(COMPUTING) | $(REPORT) -elsewhere '$(ELSEWHERE)'

# Kernels that this machine may not be able to run, on an emulated processor: conformance/emulator.
test-avx512:
	$(GO) build -o bin/emulator ./conformance/emulator
	GOARCH=amd64 CGO_ENABLED=0 $(GO) test -count=1 -short -timeout 30m -exec '$(CURDIR)/bin/emulator $(KERNEL:%=-kernel %)' \
		./exec/cpu/kernel -run 'ISA|PackedBits|Extremes|NaN|Reads|ReadOrders|LongRows|Vectors|Sets|Gate|Widen|Page|Divide' -isa avx512vnni

test-arm64:
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -count=1 -short -timeout 30m -exec qemu-aarch64 ./exec/cpu/kernel -run 'ISA|Packed|Matmul' -isa neondot

# Tests the calls of the real driver with a libcuda that is backed by the virtual device.
test-libcuda: gpu-tools
	$(LIBCUDA) $(GO) vet -tags libcuda ./exec/cuda/driver ./cmd/pesti ./conformance/gpucheck ./conformance/cudastub/...
	CUDASTUB=virtual LD_LIBRARY_PATH=$(CURDIR)/$(CUDA_STUB) PESTI_BIN=$(CURDIR)/bin $(LIBCUDA) \
		$(GO) test -count=1 -tags libcuda ./exec/cuda/driver ./conformance/cudastub
	CUDASTUB=virtual LD_LIBRARY_PATH=$(CURDIR)/$(CUDA_STUB) bin/gpucheck -device cuda:0 -quick -pesti bin/pesti -kernels bin/kernels.test -o bin/gpu-check.json demo

# Tests with only Go: no models, no Python, no llama.cpp, no network, no home folder. The output ends with
# the skipped tests.
test-offline:
	@cache=$$($(GO) env GOCACHE) modules=$$($(GO) env GOMODCACHE) && \
	HOME= XDG_CACHE_HOME= GOCACHE=$$cache GOMODCACHE=$$modules GOPROXY=off \
	PESTI_REQUIRE= PESTI_MODELS=$(CURDIR)/no-models PESTI_PYTHON=$(CURDIR)/no-python PESTI_PEER=$(CURDIR)/no-python \
	sh -c '$(GO) test -json -p 1 -timeout 20m $(or $(PACKAGES),./...) | $(GO) run ./conformance/skipreport -elsewhere "$(ELSEWHERE)"'

# The race detector is C, so without a compiler Go cannot link it, and only CI fails then. Tests of CUDA
# kernels would take minutes under it and are left out: kernels are not goroutines, and the virtual device
# has its own tests.
race: venv
	@if command -v "$$($(GO) env CC)" >/dev/null; then \
		packages=$$($(GO) list $(CONCURRENT)) || exit 1; \
		packages=$$(echo "$$packages" | grep -v 'exec/cuda$$') && test -n "$$packages" || { echo "race: go list names no packages"; exit 1; }; \
		CGO_ENABLED=1 PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -race -short -p 2 -timeout 40m $$packages | $(REPORT) -elsewhere '$(ELSEWHERE)'; \
	elif test -n "$$CI"; then \
		echo "race: there is no C compiler"; exit 1; \
	else \
		echo "race: skipped, there is no C compiler"; \
	fi

# Long enough to check that the targets work and find nothing at once.
test-fuzz:
	$(MAKE) --no-print-directory fuzz FUZZTIME=5s

# --- fuzzed: every target, one at a time; findings are kept in testdata/fuzz of its package ---

# Minimizing each new input would take most of the time, up to a minute for one input.
fuzz: venv models
	@for package in $(FUZZED); do \
		list=$$($(GO) test $$package -list '^Fuzz') || { echo "$$list"; exit 1; }; \
		for target in $$(echo "$$list" | grep '^Fuzz'); do \
			echo "fuzz $$package $$target"; \
			PESTI_REQUIRE=models $(GO) test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s || exit 1; \
		done; \
	done

# --- measured ---

bench: build models
	$(GO) test -run '^$$' -bench . ./exec/...
	@list=$$($(PESTI_PYTHON) conformance/models.py --list) || exit 1; \
	for model in $$list; do echo "$$model"; bin/pesti bench "$$model" || exit 1; done

bench-models: models
	$(GO) run ./conformance/benchmodels $(BENCH_MODELS)

# If llama.cpp cannot be built, only pesti is measured.
bench-peers: build venv models
	@peer=$$($(PESTI_PYTHON) conformance/llamacpp/build.py) || echo "bench-peers: measures without llama.cpp"; \
	list=$$($(PESTI_PYTHON) conformance/models.py --list) || exit 1; \
	if test -n "$(BENCH_MODELS)"; then list="$$list $$($(GO) run ./conformance/benchmodels $(BENCH_MODELS))" || exit 1; fi; \
	$(GO) run ./conformance/benchpeers -pesti bin/pesti -peer "$$peer" -commit "$$(git describe --always --dirty)" \
		-json $(BENCH).json -svg $(BENCH).svg $(BENCH_FLAGS) $$list

bench-accuracy: build venv models $(PEER_IF_ANY)
	$(PESTI_PYTHON) conformance/accuracy.py

# Compares the bandwidth of `bench --roofline` with a program in C. Needs an idle machine.
roofline-check:
	$(GO) run ./conformance/roofline

# For a machine with a GPU: runs the programs that gpu-tools has built, on the models in GPU_MODELS. It builds
# nothing.
gpu-check:
	bin/gpucheck -device cuda:0 -pesti bin/pesti -kernels bin/kernels.test -o bin/gpu-check.json demo $(GPU_MODELS)

gpu-tools: pesti-cuda
	$(LIBCUDA) $(GO) build -tags libcuda -o bin/gpucheck ./conformance/gpucheck
	$(LIBCUDA) $(GO) test -c -tags libcuda -o bin/kernels.test ./exec/cuda

conformance: build venv models
	$(PESTI_PYTHON) conformance/report.py --write CONFORMANCE.md

# --- generated files ---

golden:
	$(GO) test -p 1 $(GOLDEN) -update
	$(GO) run ./cmd/pesti dot demo -t 2 --isa portable -o docs/demo-plan.svg
	$(GO) run ./cmd/pesti dot demo -t 2 --isa portable --view memory -o docs/demo-memory.svg

asm:
	@cd $(ASM) && for program in $(ASSEMBLERS); do \
		echo "assembly $$program"; \
		case $$program in neon*) arch=arm64;; *) arch=amd64;; esac; \
		$(GO) run ./$$program -out ../$${program}_$$arch.s -stubs ../$${program}_$$arch.go -pkg kernel || exit 1; \
	done

# Compiles the CUDA kernels to PTX with compilers from pip, and writes their registers and shared memory.
cuda:
	$(PYTHON) $(CUDA_KERNELS)/build.py
	$(PYTHON) $(CUDA_KERNELS)/build.py --ptxas

demo:
	conformance/demo/make.sh

# Extracts the layout engine from the module that go.mod pins.
graphviz:
	gzip -9n < $$($(GO) list -m -f '{{.Dir}}' github.com/goccy/go-graphviz)/internal/wasm/graphviz.wasm > graph/draw/graphviz/graphviz.wasm.gz

# Computes the logits of transformers that tests read (conformance/transformers/README.md), for all models or for
# MODELS. check-transformers compares instead. Neither is part of CI.
MODELS ?=
WITNESS := OMP_NUM_THREADS=1 LD_LIBRARY_PATH=$(CURDIR)/$(TRANSFORMERS)/stubs $(TRANSFORMERS)/bin/python conformance/transformers/logits.py -o conformance/testdata/transformers

transformers: $(TRANSFORMERS)/requirements.txt
	$(WITNESS) $(MODELS)

check-transformers: $(TRANSFORMERS)/requirements.txt
	$(WITNESS) --check $(MODELS)

$(TRANSFORMERS)/requirements.txt: conformance/transformers/requirements.txt conformance/transformers/stubs.py
	test -x $(TRANSFORMERS)/bin/python || $(PYTHON) -m venv $(TRANSFORMERS)
	$(TRANSFORMERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	$(TRANSFORMERS)/bin/python conformance/transformers/stubs.py $(TRANSFORMERS)/stubs
	cp $< $@

# --- the module under another path ---

# Copies the files that git tracks to the folder DIR, where the module has the path MODULE.
MODULE ?=
DIR    ?= ../$(notdir $(MODULE))-module

module:
	@$(GO) run ./conformance/modulecopy -module '$(MODULE)' -o '$(DIR)'
	@echo 'module $(MODULE): $(abspath $(DIR))'

# Such a copy passes vet and the short tests.
test-module:
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	$(MAKE) --no-print-directory module MODULE=example.org/you/pesti DIR="$$copy/pesti" && cd "$$copy/pesti" && \
	$(GO) vet ./... && PESTI_MODELS="$$copy/no-models" $(GO) test -short -p 2 -timeout 20m ./... && \
	cd $(ASM) && $(GO) vet ./... && $(GO) test ./...

# --- inputs of tests ---

models: venv
	$(PESTI_PYTHON) conformance/models.py

venv: $(VENV)/requirements.txt

$(VENV)/requirements.txt: conformance/requirements.txt
	test -x $(VENV_PYTHON) || $(PYTHON) -m venv $(VENV)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	cp $< $@

peer: $(PEER)/requirements-peer.txt

$(PEER)/requirements-peer.txt: conformance/requirements-peer.txt conformance/llamacpp/libllama.cmake
	test -x $(PEER_PYTHON) || $(PYTHON) -m venv $(PEER)
	CMAKE_ARGS="$(PEER_BUILD)" $(PEER_PYTHON) -m pip install --quiet --disable-pip-version-check --no-binary llama-cpp-python -r $<
	cp $< $@
