# What a fresh machine needs: Go 1.26, and Python 3.11 with pip. `make test` sets up the rest; `make prove`
# needs a C++ compiler too, for llama.cpp.

GO     ?= go
PYTHON ?= python3

VENV        := .venv
VENV_PYTHON := $(VENV)/bin/python
PEER        := .peer
PEER_PYTHON := $(PEER)/bin/python
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# Where goroutines meet, and what they compute with.
CONCURRENT  := . ./exec/... ./graph/... ./ops/... ./lower/...
# What depends on how Go compiles for the processor, and on which kernels are built in.
COMPUTING   := ./gguf/... ./ops/... ./exec/... ./lower/...
# The packages whose tests take -update: they declare the flag, or use the package that does.
GOLDEN       = $(shell grep -rlE --include='*_test.go' 'flag\.Bool.*"update"|/graph/pass/passtest"' . | xargs -r -n1 dirname | sort -u)

# The programs that write the assembly of the kernels, each one file into the folder above theirs.
ASM         := exec/cpu/kernel/_asm
ASSEMBLERS   = $(notdir $(patsubst %/main.go,%,$(wildcard $(ASM)/*/main.go)))

# Where `make bench-peers` puts what it measures, and what else it is told, such as -rounds 1.
BENCH       ?= docs/bench
BENCH_FLAGS ?=

# Models with random weights that `make bench-models` writes and `make bench-peers` measures too: names that
# `go run ./conformance/benchmodels -list` prints, or all (11 GB).
BENCH_MODELS ?=

# Of CUDA: cuda.h, from a pinned wheel, and a libcuda that needs no GPU, to link with; what a program
# with the driver in it is built with.
CUDA_KERNELS := exec/cuda/kernels
CUDA_HEADERS := .cuda/headers
CUDA_STUB    := bin/stub
LIBCUDA       = CGO_ENABLED=1 CGO_CFLAGS='-O2 -g -I$(CURDIR)/$(CUDA_HEADERS)/nvidia/cuda_runtime/include' CGO_LDFLAGS='-L$(CURDIR)/$(CUDA_STUB)'

# The packages with fuzz targets, and how long `make fuzz` gives each target.
FUZZED       = $(shell grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
FUZZTIME    ?= 20m

export PESTI_PYTHON ?= $(CURDIR)/$(VENV_PYTHON)
export PESTI_PEER   ?= $(CURDIR)/$(PEER_PYTHON)

# llama.cpp is compiled from source. Where there is no compiler, tests that compare with it are skipped,
# except in CI.
PEER_IF_ANY := $(if $(CI)$(shell command -v $(CXX)),peer)
# Kernels for other processors run on emulators. Where these are missing they are not tested, except in CI.
EMULATED    := $(if $(CI)$(shell command -v qemu-aarch64),test-arm64) $(if $(CI)$(shell command -v bochs-bin),test-avx512)
# The real driver is C, so this needs a compiler.
DRIVEN      := $(if $(CI)$(shell command -v $(CC)),test-libcuda)
# Its library alone. Instruction sets are named, so that a build that pip keeps serves everywhere;
# AMX is not among them, since gcc 12 miscompiles it.
PEER_BUILD  := -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAVA_BUILD=OFF \
	-DCMAKE_PROJECT_llama.cpp_INCLUDE='$(CURDIR)/conformance/llamacpp/libllama.cmake'

.NOTPARALLEL:
.PHONY: build check gofmt vet staticcheck cross check-asm check-cuda test prove prove-slow times test-oracle test-one-processor test-variants test-goamd64 test-purego test-avx512 test-arm64 test-libcuda test-offline race test-fuzz fuzz bench bench-models bench-peers bench-accuracy roofline-check gpu-check conformance golden asm cuda pesti-cuda gpu-tools cuda-stub demo graphviz module test-module models venv peer

build:
	$(GO) build -o bin/pesti ./cmd/pesti

# The same program with the CUDA driver in it. What it links is a stub, in whose place the driver's own
# library stands where it runs.
pesti-cuda: build cuda-stub
	$(LIBCUDA) $(GO) build -tags libcuda -o bin/pesti-cuda ./cmd/pesti

cuda-stub: $(CUDA_HEADERS)/requirements.txt
	$(GO) run ./conformance/cudastub -include $(CUDA_HEADERS)/nvidia/cuda_runtime/include -o $(CUDA_STUB)

$(CUDA_HEADERS)/requirements.txt: conformance/cudastub/requirements.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes --upgrade --target $(CUDA_HEADERS) -r $<
	cp $< $@

# --- what needs no model ---

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

# The programs that write assembly are a module of their own, which ./... does not reach. What they
# write is compared in a copy, so that it does not matter what else is changed here.
check-asm:
	@cd $(ASM) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && $(GO) test ./...
	@copy=$$(mktemp -d) && trap 'rm -r "$$copy"' EXIT && cp -r $(ASM) "$$copy/_asm" && \
	$(MAKE) --no-print-directory asm ASM="$$copy/_asm" && \
	for file in "$$copy"/*_a??64.* $(ASM)/../*_a??64.s; do \
		name=$$(basename "$$file"); \
		cmp "$$copy/$$name" "$(ASM)/../$$name" || { echo "check-asm: $$name is not what $(ASM) writes; run make asm"; exit 1; }; \
	done

# Compiles the CUDA kernels again, for a difference, and assembles them for all GPUs that ptxas knows.
check-cuda:
	$(PYTHON) $(CUDA_KERNELS)/build.py --check
	$(PYTHON) $(CUDA_KERNELS)/build.py --ptxas --check

# --- tests: what users rely on is in test, the rest in prove ---

# Reports what go test -json prints, and keeps the times of tests for `make times`. COMPLETE fails in CI
# where a test is skipped.
REPORT       = $(GO) run ./conformance/skipreport -times bin/times/$@.txt
COMPLETE    := $(if $(CI),-all)
# Names of slow tests begin so (testenv.Prove). They run in prove, and skip elsewhere with this reason.
SLOW        := ^TestProve
ELSEWHERE   := runs in make prove

# One package at a time: each pins workers to all processors. PESTI_INPUTS has Go run a test again
# when a model, a script or the machine is another.
test: venv models
	@inputs=$$($(GO) run ./conformance/inputs) && PESTI_INPUTS=$$inputs PESTI_REQUIRE=models PESTI_PROVE= \
	$(GO) test -json -p 1 -timeout 30m ./... | $(REPORT) $(COMPLETE) -elsewhere '$(ELSEWHERE)'

# Slow tests come last, so that the last line counts them. Never from Go's cache.
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

# Spinning workers must let each other run where there is one processor. And what runs where no
# kernels in assembly do, though they are built in.
test-one-processor: venv
	@GOMAXPROCS=1 PESTI_ISA=portable PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -p 1 -timeout 10m $(CONCURRENT) | $(REPORT) -elsewhere '$(ELSEWHERE)'

# Other instructions, such as fused multiply-add, and no assembly: the same results.
test-variants: test-goamd64 test-purego

test-goamd64: venv
	@GOAMD64=v3 PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -short -p 1 -timeout 15m $(COMPUTING) | $(REPORT) -elsewhere '$(ELSEWHERE)'

test-purego: venv
	@PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -short -p 1 -timeout 15m -tags purego $(COMPUTING) | $(REPORT) -elsewhere '$(ELSEWHERE)'

# Kernels that this machine may not be able to run, on an emulated processor: conformance/emulator.
test-avx512:
	$(GO) build -o bin/emulator ./conformance/emulator
	GOARCH=amd64 CGO_ENABLED=0 $(GO) test -count=1 -short -timeout 30m -exec '$(CURDIR)/bin/emulator $(KERNEL:%=-kernel %)' \
		./exec/cpu/kernel -run 'ISA|PackedBits|Extremes|NaN|Reads' -isa avx512vnni

test-arm64:
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -count=1 -short -timeout 30m -exec qemu-aarch64 ./exec/cpu/kernel -run 'ISA|Packed|Matmul' -isa neondot

# The real driver's calls, on the virtual device behind a libcuda of ours.
test-libcuda: gpu-tools
	$(LIBCUDA) $(GO) vet -tags libcuda ./exec/cuda/driver ./cmd/pesti ./conformance/gpucheck ./conformance/cudastub/...
	CUDASTUB=virtual LD_LIBRARY_PATH=$(CURDIR)/$(CUDA_STUB) PESTI_BIN=$(CURDIR)/bin $(LIBCUDA) \
		$(GO) test -count=1 -tags libcuda ./exec/cuda/driver ./conformance/cudastub
	CUDASTUB=virtual LD_LIBRARY_PATH=$(CURDIR)/$(CUDA_STUB) bin/gpucheck -device cuda:0 -quick -pesti bin/pesti -kernels bin/kernels.test -o bin/gpu-check.json demo

# What somebody has who has only Go: no models, no Python, no llama.cpp, no network, no home folder.
# It ends with what that leaves out.
test-offline:
	@cache=$$($(GO) env GOCACHE) modules=$$($(GO) env GOMODCACHE) && \
	HOME= XDG_CACHE_HOME= GOCACHE=$$cache GOMODCACHE=$$modules GOPROXY=off \
	PESTI_REQUIRE= PESTI_MODELS=$(CURDIR)/no-models PESTI_PYTHON=$(CURDIR)/no-python PESTI_PEER=$(CURDIR)/no-python \
	sh -c '$(GO) test -json -p 1 -timeout 20m $(or $(PACKAGES),./...) | $(GO) run ./conformance/skipreport -elsewhere "$(ELSEWHERE)"'

# The detector is C: where there is no compiler, Go cannot link it. CI may not go without. Tests of CUDA
# kernels take it minutes, and kernels are no goroutines: the virtual device has tests of its own.
race: venv
	@if command -v "$$($(GO) env CC)" >/dev/null; then \
		packages=$$($(GO) list $(CONCURRENT)) || exit 1; \
		packages=$$(echo "$$packages" | grep -v 'exec/cuda$$') && test -n "$$packages" || { echo "race: go list names no packages"; exit 1; }; \
		CGO_ENABLED=1 PESTI_MODELS=$(CURDIR)/no-models $(GO) test -json -race -short -p 1 -timeout 30m $$packages | $(REPORT) -elsewhere '$(ELSEWHERE)'; \
	elif test -n "$$CI"; then \
		echo "race: there is no C compiler"; exit 1; \
	else \
		echo "race: skipped, there is no C compiler"; \
	fi

# Long enough to see that the targets work and that nothing falls out at once.
test-fuzz:
	$(MAKE) --no-print-directory fuzz FUZZTIME=5s

# --- fuzzed: every target, one at a time; findings are kept in testdata/fuzz of its package ---

# Minimising each new input would take most of the time, up to a minute for one.
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

# Where llama.cpp cannot be built, pesti is measured alone.
bench-peers: build venv models
	@peer=$$($(PESTI_PYTHON) conformance/llamacpp/build.py) || echo "bench-peers: measures without llama.cpp"; \
	list=$$($(PESTI_PYTHON) conformance/models.py --list) || exit 1; \
	if test -n "$(BENCH_MODELS)"; then list="$$list $$($(GO) run ./conformance/benchmodels $(BENCH_MODELS))" || exit 1; fi; \
	$(GO) run ./conformance/benchpeers -pesti bin/pesti -peer "$$peer" -commit "$$(git describe --always --dirty)" \
		-json $(BENCH).json -svg $(BENCH).svg $(BENCH_FLAGS) $$list

bench-accuracy: build venv models $(PEER_IF_ANY)
	$(PESTI_PYTHON) conformance/accuracy.py

# The bandwidth that `bench --roofline` measures, against a program in C. On a machine that does
# nothing else.
roofline-check:
	$(GO) run ./conformance/roofline

# On a machine with a GPU, with what gpu-tools has built and models in GPU_MODELS: nothing is built here.
gpu-check:
	bin/gpucheck -device cuda:0 -pesti bin/pesti -kernels bin/kernels.test -o bin/gpu-check.json demo $(GPU_MODELS)

gpu-tools: pesti-cuda
	$(LIBCUDA) $(GO) build -tags libcuda -o bin/gpucheck ./conformance/gpucheck
	$(LIBCUDA) $(GO) test -c -tags libcuda -o bin/kernels.test ./exec/cuda

conformance: build venv models
	$(PESTI_PYTHON) conformance/report.py --write CONFORMANCE.md

# --- made again from source ---

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

# The PTX of the CUDA kernels, by compilers that pip fetches, and what they take of a GPU.
cuda:
	$(PYTHON) $(CUDA_KERNELS)/build.py
	$(PYTHON) $(CUDA_KERNELS)/build.py --ptxas

demo:
	conformance/demo/make.sh

# The layout engine, out of the module that go.mod pins.
graphviz:
	gzip -9n < $$($(GO) list -m -f '{{.Dir}}' github.com/goccy/go-graphviz)/internal/wasm/graphviz.wasm > graph/draw/graphviz/graphviz.wasm.gz

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
	$(GO) vet ./... && PESTI_MODELS="$$copy/no-models" $(GO) test -short -p 1 -timeout 20m ./... && \
	cd $(ASM) && $(GO) vet ./... && $(GO) test ./...

# --- what tests run on ---

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
