// Command libcuda implements the driver calls that package exec/cuda/driver makes, on the virtual device.
// It is built as a C archive; cudastub adds stubs for all other calls.
//
// Environment variables configure it:
//
//	CUDASTUB          virtual: there is one virtual device; otherwise calls fail with CUDA_ERROR_NO_DEVICE
//	CUDASTUB_DEVICES  number of devices, which have peer access; each can then be opened once
//	CUDASTUB_LOG      a file to which each call appends a line with its name and its main arguments
//	CUDASTUB_FAIL     NAME=CODE: the call NAME fails with CODE
//
// Names, types and codes are those of cuda.h, https://docs.nvidia.com/cuda/cuda-driver-api. The header
// itself is not needed: only the sizes of the types matter.
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

func main() {}

// A code is a CUresult.
type code int32

const (
	success        code = 0
	invalidValue   code = 1
	outOfMemory    code = 2
	noDevice       code = 100
	invalidDevice  code = 101
	invalidPTX     code = 218
	invalidHandle  code = 400
	illegalState   code = 401
	notFound       code = 500
	illegalAddress code = 700
	notSupported   code = 801
)

// A library is the state that libcuda has for a process.
type library struct {
	sync.Mutex
	device  cuda.Device // of the context that is current
	objects []any       // by handle − 1; nil is one that was destroyed
	texts   map[code]*C.char
	trapped code            // code of all calls after a trap, except calls that free memory
	several *virtual.Driver // of several devices, once it is needed
}

var lib = &library{texts: map[code]*C.char{}}

// call executes a call of the driver. It logs the call, or lets it fail, as configured.
func call(name, args string, do func() code) code {
	lib.Lock()
	defer lib.Unlock()
	if getenv("CUDASTUB") != "virtual" {
		return noDevice
	}
	note(strings.TrimSpace(name + " " + args))
	var fail code
	if _, err := fmt.Sscanf(getenv("CUDASTUB_FAIL"), name+"=%d", &fail); err == nil {
		if fail >= illegalAddress {
			lib.trapped = fail
		}
		return fail
	}
	if lib.trapped != success && !strings.Contains(name, "Destroy") && !strings.Contains(name, "Free") {
		return lib.trapped
	}
	return do()
}

// getenv uses C's getenv, because this Go runtime does not see variables that the program sets later.
func getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c))
}

// driver returns a driver. With one device, each context has a driver of its own, so that several contexts
// can be open. Several devices belong to one driver.
func driver() *virtual.Driver {
	n := devices()
	if n == 1 {
		return virtual.New(virtual.Config{})
	}
	if lib.several == nil {
		lib.several = virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, n)})
	}
	return lib.several
}

// devices returns the number of devices.
func devices() int {
	if n, err := strconv.Atoi(getenv("CUDASTUB_DEVICES")); err == nil && n > 1 {
		return n
	}
	return 1
}

// note appends a line to the log.
func note(line string) {
	path := getenv("CUDASTUB_LOG")
	if path == "" {
		return
	}
	if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
		fmt.Fprintln(f, line)
		f.Close()
	}
}

// fails returns the code for an error of the virtual device. The text of the code is then that of the error.
func fails(c code, err error) code {
	if err == nil {
		return success
	}
	lib.texts[c] = C.CString(err.Error())
	return c
}

// A handle identifies an object; 0 is none.
type handle uint64

// give returns a handle for an object.
func give(object any) handle {
	lib.objects = append(lib.objects, object)
	return handle(len(lib.objects))
}

// object returns the object of a handle, and whether it is a live T.
func object[T any](h handle) (T, bool) {
	var none T
	if h == 0 || h > handle(len(lib.objects)) {
		return none, false
	}
	o, ok := lib.objects[h-1].(T)
	return o, ok
}

// with calls do with the object of a handle.
func with[T any](h handle, do func(T) code) code {
	o, ok := object[T](h)
	if !ok {
		return invalidHandle
	}
	return do(o)
}

// end destroys an object and invalidates its handle.
func end[T any](h handle, do func(T) error) code {
	return with(h, func(o T) code {
		lib.objects[h-1] = nil
		return fails(invalidHandle, do(o))
	})
}

//export cudastub_missing
func cudastub_missing(name *C.char) code {
	return call(C.GoString(name), "", func() code { return notSupported })
}
