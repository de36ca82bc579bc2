//go:build libcuda

package driver

// The calls that package cu lacks, by the symbol names that libcuda exports. The header maps some of the
// documented names to other symbols, depending on the version.

/*
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Package cu initializes CUDA before main begins; if that fails, it prints to standard output and exits.
// This constructor runs earlier, and reports the error to standard error in the form of this program.
// CUDA_MODULE_LOADING=EAGER loads kernels with their module: lazy loading at the first launch can fail
// during a capture.
__attribute__((constructor)) static void initialize(void) {
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	CUresult r = cuInit(0);
	if (r == CUDA_SUCCESS) {
		return;
	}
	const char *text = NULL;
	cuGetErrorString(r, &text);
	fprintf(stderr, "pesti: CUDA cannot be used here: error %d, %s\n", (int)r, text != NULL ? text : "unknown");
	_exit(1);
}

static CUresult load(CUmodule *module, const void *ptx, char *log, size_t size) {
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)size};
	return cuModuleLoadDataEx(module, ptx, 2, options, values);
}

static CUresult launch(CUfunction f, const unsigned int d[6], unsigned int shared, CUstream stream, void *params, size_t size) {
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	return cuLaunchKernel(f, d[0], d[1], d[2], d[3], d[4], d[5], shared, stream, NULL, extra);
}

// Relaxed mode does not bind a capture to a thread: goroutines move between threads.
static CUresult beginCapture(CUstream stream) {
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult endCapture(CUstream stream, CUgraphExec *replayed) {
	CUgraph graph;
	CUresult r = cuStreamEndCapture(stream, &graph);
	if (r != CUDA_SUCCESS) {
		return r;
	}
	r = cuGraphInstantiateWithFlags(replayed, graph, 0);
	cuGraphDestroy(graph);
	return r;
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"pesti/exec/cuda"
)

const maxSharedOptIn cu.DeviceAttribute = C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

// A status is an error code of libcuda.
type status int

func (s status) Error() string {
	var text *C.char
	if C.cuGetErrorString(C.CUresult(s), &text) != C.CUDA_SUCCESS {
		return fmt.Sprintf("CUDA error %d", int(s))
	}
	return fmt.Sprintf("CUDA error %d, %s", int(s), C.GoString(text))
}

// Is implements the interface of errors.Is.
func (s status) Is(target error) bool { return s == outOfMemory && target == cuda.ErrOutOfMemory }

const (
	outOfMemory        = status(C.CUDA_ERROR_OUT_OF_MEMORY)
	peerAlreadyEnabled = status(C.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
)

func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return status(r)
}

// statusOf converts an error of package cu to a status, whose text comes from libcuda. Package cu does not
// export the type of its errors.
func statusOf(err error) error {
	if v := reflect.ValueOf(err); v.IsValid() && v.CanInt() {
		return status(v.Int())
	}
	return err
}

// failed wraps an error of either kind with the failed operation. nil stays nil.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, statusOf(err))
}

// Values of package cu are structs with one handle, which not all of them export.
func streamOf(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func functionOf(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// load compiles a module for the current context.
func load(ptx []byte) (cu.Module, error) {
	const logSize = 8 << 10
	text := C.CString(string(ptx))
	defer C.free(unsafe.Pointer(text))
	log := (*C.char)(C.calloc(logSize, 1))
	defer C.free(unsafe.Pointer(log))
	var m cu.Module
	err := result(C.load((*C.CUmodule)(unsafe.Pointer(&m)), unsafe.Pointer(text), log, logSize))
	if err == nil {
		return m, nil
	}
	for line := range strings.Lines(C.GoString(log)) {
		if line = strings.TrimSpace(line); line != "" {
			return m, fmt.Errorf("%w: %s", err, line)
		}
	}
	return m, err
}

// allowShared sets the largest dynamic shared memory in bytes that a kernel may be launched with.
func allowShared(f cu.Function, bytes int) error {
	return result(C.cuFuncSetAttribute(functionOf(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

func launch(f cu.Function, l cuda.Launch, s cu.Stream) error {
	d := [6]C.uint{C.uint(l.Grid.X), C.uint(l.Grid.Y), C.uint(l.Grid.Z), C.uint(l.Block.X), C.uint(l.Block.Y), C.uint(l.Block.Z)}
	return result(C.launch(functionOf(f), &d[0], C.uint(l.Shared), streamOf(s), unsafe.Pointer(unsafe.SliceData(l.Params)), C.size_t(len(l.Params))))
}

func beginCapture(s cu.Stream) error { return result(C.beginCapture(streamOf(s))) }

// A replayable is a captured graph, instantiated for execution.
type replayable struct{ exec C.CUgraphExec }

func endCapture(s cu.Stream) (g replayable, err error) {
	err = result(C.endCapture(streamOf(s), &g.exec))
	return g, err
}

func (g replayable) replay(s cu.Stream) error { return result(C.cuGraphLaunch(g.exec, streamOf(s))) }

func (g replayable) destroy() error { return result(C.cuGraphExecDestroy(g.exec)) }

// allocHost returns pinned memory that is portable between contexts.
func allocHost(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := result(C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}
