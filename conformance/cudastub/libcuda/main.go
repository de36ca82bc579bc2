// Command libcuda is the part of the stub library that does something: the calls of the driver that
// package exec/cuda/driver makes, done by the virtual device. It is built as an archive for C; see
// cudastub, which adds the names of all other calls.
//
// Environment variables tell it what to be:
//
//	CUDASTUB          virtual: there is one device, the virtual one; else calls fail with CUDA_ERROR_NO_DEVICE
//	CUDASTUB_DEVICES  how many there are, which reach each other's memory; each may then be open once
//	CUDASTUB_LOG      a file that each call adds a line to: its name, and what matters of its arguments
//	CUDASTUB_FAIL     NAME=CODE: the call of that name fails so
//
// Names, types and codes are those of cuda.h, https://docs.nvidia.com/cuda/cuda-driver-api, which it
// does without: of the types it is enough to know how wide they are.
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
	trapped code            // what all calls fail with that do not free
	several *virtual.Driver // of several devices, once it is needed
}

var lib = &library{texts: map[code]*C.char{}}

// call does one call of the driver: it notes it, and fails it where it is told to.
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

// getenv asks C, since what the program sets later Go does not know in here.
func getenv(name string) string {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.GoString(C.getenv(c))
}

// driver returns a driver with a device. Each context has its own, so that several can be open; but where
// there are several devices, they are those of one.
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

// devices is how many there are.
func devices() int {
	if n, err := strconv.Atoi(getenv("CUDASTUB_DEVICES")); err == nil && n > 1 {
		return n
	}
	return 1
}

// note adds a line to the log.
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

// fails returns the code that an error of the virtual device is given, whose text is then the error's.
func fails(c code, err error) code {
	if err == nil {
		return success
	}
	lib.texts[c] = C.CString(err.Error())
	return c
}

// A handle stands for an object; 0 for none.
type handle uint64

// give returns a handle for an object.
func give(object any) handle {
	lib.objects = append(lib.objects, object)
	return handle(len(lib.objects))
}

// object returns what a handle stands for, and whether that is a live T.
func object[T any](h handle) (T, bool) {
	var none T
	if h == 0 || h > handle(len(lib.objects)) {
		return none, false
	}
	o, ok := lib.objects[h-1].(T)
	return o, ok
}

// with does something with an object.
func with[T any](h handle, do func(T) code) code {
	o, ok := object[T](h)
	if !ok {
		return invalidHandle
	}
	return do(o)
}

// end takes an object's handle from it.
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
