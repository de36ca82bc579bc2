// Package cuda runs plans for CUDA devices: it holds the interface to a driver, of which there are
// two, the real one and the virtual device of package virtual, and what binds a plan's steps to
// launches.
//
// It imports exec/plan, gguf/quant and ops/ref and neither graph, ops, lower nor frontend. It needs no cgo:
// the real driver is linked by the binary that has one.
package cuda

import "errors"

// A Driver gives access to the devices of a machine. Its methods may be called from one goroutine
// at a time.
type Driver interface {
	// Version is that of CUDA which the driver supports, 1000·major + 10·minor: 12090 is 12.9.
	Version() int
	// Devices returns what is known of each device, in the order of their numbers.
	Devices() ([]Properties, error)
	// Open takes a device. Close gives it back.
	Open(device int) (Device, error)
}

// Properties of a device.
type Properties struct {
	Name         string
	Major, Minor int   // compute capability: 8, 9 is sm_89
	Memory       int64 // bytes in all
	Free         int64 // bytes free when it was opened; of one that is not, 0 where that is not known
	SMs          int   // multiprocessors
	Shared       int   // bytes of shared memory that a block may have, where a function asks for them
	L2           int   // bytes
	Bandwidth    int64 // bytes per second between device and its memory, by its clock and bus; 0 where unknown
}

// A Ptr is an address in a device's memory.
type Ptr uint64

// Dim is the number of blocks of a grid or of threads of a block in x, y and z.
type Dim struct{ X, Y, Z int }

// A Device is one that was opened. What it gave out is freed by Close at the latest. A kernel that
// traps makes every later call fail with the same error.
type Device interface {
	Properties() Properties

	// Alloc returns memory of at least one byte, aligned to 256 bytes, whose contents are undefined.
	Alloc(bytes int64) (Ptr, error)
	Free(Ptr) error
	// AllocHost returns host memory that the device reads and writes without a copy of the driver's own.
	AllocHost(bytes int) ([]byte, error)
	FreeHost([]byte) error

	// Load compiles a module of PTX. An error has the compiler's first complaint.
	Load(ptx []byte) (Module, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)

	// EnablePeer lets streams of this device copy from memory of another of the same driver. Its error
	// is an ErrNoLink where there is no way to do so.
	EnablePeer(other Device) error

	Close() error
}

// A Module holds kernels.
type Module interface {
	// Function returns the kernel of a name. shared is the most bytes of dynamic shared memory that
	// it will be launched with.
	Function(name string, shared int) (Function, error)
	Unload() error
}

// A Function is a kernel of a module, for the device that the module was loaded on.
type Function interface{ Name() string }

// A Launch is one run of a kernel. Every kernel of ours has exactly one parameter, a struct by value,
// whose bytes are Params.
type Launch struct {
	Function    Function
	Grid, Block Dim
	Shared      int // bytes of dynamic shared memory
	Params      []byte
}

// ErrNoLink is that two devices do not reach each other's memory.
var ErrNoLink = errors.New("there is no link between them")

// A Stream runs what it is given in order. Its calls return before that is done, but for Wait.
type Stream interface {
	// Upload copies to the device; src must stay as it is until the stream has come that far.
	Upload(dst Ptr, src []byte) error
	// Download copies from the device.
	Download(dst []byte, src Ptr) error
	// Copy copies within a device, or between devices after EnablePeer.
	Copy(dst, src Ptr, bytes int64) error
	// Fill sets bytes.
	Fill(dst Ptr, value byte, bytes int64) error
	Launch(Launch) error

	// Record sets an event when the stream has come so far; Await holds the stream until it is set.
	Record(Event) error
	Await(Event) error
	// Wait returns when all is done that the stream was given. Errors of kernels come out here.
	Wait() error

	// Capture begins to note what the stream is given in place of running it; EndCapture ends that.
	Capture() error
	EndCapture() (Graph, error)
	// Replay runs what a graph noted, with the same addresses and parameters.
	Replay(Graph) error

	Close() error
}

// An Event is a point in a stream.
type Event interface {
	// Since returns the milliseconds between an earlier event and this one, both set.
	Since(earlier Event) (float32, error)
	Close() error
}

// A Graph is what a stream noted.
type Graph interface{ Close() error }
