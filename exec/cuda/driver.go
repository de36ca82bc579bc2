// Package cuda contains the parts that run a plan's steps on CUDA devices: the interface to a CUDA
// driver, the parameters and launch dimensions of kernels, the binding of steps to launches, and
// weight layouts. The interface has two implementations: package driver (libcuda) and package
// virtual (an interpreter of PTX).
//
// It imports exec/plan, gguf/quant and ops/ref, and not graph, ops, lower or frontend. It needs no cgo:
// only binaries that use the real driver link it.
package cuda

import "errors"

// A Driver gives access to the devices of a machine. Its methods may be called from one goroutine
// at a time.
type Driver interface {
	// Version returns the CUDA version that the driver supports as 1000·major + 10·minor: 12090 is 12.9.
	Version() int
	// Devices returns the properties of each device, in order of device number.
	Devices() ([]Properties, error)
	// Open opens a device, which the caller must close.
	Open(device int) (Device, error)
}

// A Canceller is a driver whose kernels can be canceled, such as the slow kernels of the virtual
// device. After done is closed, devices skip the queued work of streams, and a stream's Wait
// returns ErrCanceled. Outputs of interrupted kernels are partly written. The next call replaces
// done; nil cancels nothing. It must not be called while a stream waits.
type Canceller interface{ CancelOn(done <-chan struct{}) }

// ErrCanceled is the error of Wait if a device skipped work: see Canceller. The device stays
// usable.
var ErrCanceled = errors.New("canceled")

// Properties of a device.
type Properties struct {
	Name         string
	Major, Minor int   // compute capability: 8, 9 is sm_89
	Memory       int64 // bytes in total
	Free         int64 // bytes free when the device was opened; 0 if it is not open and the driver does not know
	SMs          int   // multiprocessors
	Shared       int   // largest shared memory of a block in bytes, if a function opts in
	L2           int   // bytes
	Bandwidth    int64 // of the memory in bytes per second, from its clock and bus width; 0 if unknown
}

// ErrOutOfMemory is wrapped by the error of a call that needs more memory than is free on the device, or on the
// host for pinned memory.
var ErrOutOfMemory = errors.New("out of memory")

// A Ptr is an address in a device's memory.
type Ptr uint64

// Dim is the number of blocks of a grid or of threads of a block in x, y and z.
type Dim struct{ X, Y, Z int }

// A Device is an open device. Close frees everything that was allocated from it. After a kernel traps,
// every later call fails with the same error.
type Device interface {
	Properties() Properties

	// Alloc returns memory of at least one byte, aligned to 256 bytes, whose contents are undefined.
	Alloc(bytes int64) (Ptr, error)
	Free(Ptr) error
	// AllocHost returns pinned host memory.
	AllocHost(bytes int) ([]byte, error)
	FreeHost([]byte) error

	// Load compiles a module of PTX. An error has the first line of the compiler's log.
	Load(ptx []byte) (Module, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)

	// EnablePeer lets streams of this device copy from the memory of another device of the same driver.
	// The error wraps ErrNoLink if the devices do not support peer access.
	EnablePeer(other Device) error

	Close() error
}

// A Module holds kernels.
type Module interface {
	// Function returns the kernel with that name. shared is the largest dynamic shared memory in bytes
	// that it will be launched with.
	Function(name string, shared int) (Function, error)
	Unload() error
}

// A Function is a kernel of a module, for the device that the module was loaded on.
type Function interface{ Name() string }

// A Launch is one execution of a kernel. All our kernels have exactly one parameter, a struct by value;
// Params has its bytes.
type Launch struct {
	Function    Function
	Grid, Block Dim
	Shared      int // bytes of dynamic shared memory
	Params      []byte
}

// ErrNoLink means that two devices cannot access each other's memory.
var ErrNoLink = errors.New("there is no peer access between them")

// A Stream executes operations in order. All calls but Wait return before the operation is complete.
type Stream interface {
	// Upload copies to the device. src must not change until the copy is complete.
	Upload(dst Ptr, src []byte) error
	// Download copies from the device.
	Download(dst []byte, src Ptr) error
	// Copy copies within a device, or between devices after EnablePeer.
	Copy(dst, src Ptr, bytes int64) error
	// Fill sets bytes to value.
	Fill(dst Ptr, value byte, bytes int64) error
	Launch(Launch) error

	// Record sets an event after all earlier operations. Await makes later operations wait for an event.
	Record(Event) error
	Await(Event) error
	// Wait waits for all operations. It returns the errors of kernels.
	Wait() error

	// Capture begins to record operations instead of executing them. EndCapture returns the recorded graph.
	Capture() error
	EndCapture() (Graph, error)
	// Replay executes the operations of a graph with the same addresses and parameters.
	Replay(Graph) error

	Close() error
}

// An Event is a point in a stream.
type Event interface {
	// Since returns the time in milliseconds from an earlier event to this one. Both must be set.
	Since(earlier Event) (float32, error)
	Close() error
}

// A Graph is a sequence of captured operations.
type Graph interface{ Close() error }
