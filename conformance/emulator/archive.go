package main

import (
	"bytes"
	"fmt"
)

// An archive is an initial RAM file system of Linux: see
// Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
type archive struct{ bytes.Buffer }

func (a *archive) file(name string, data []byte) { a.entry(name, 0o100755, 0, data) }

func (a *archive) directory(name string) { a.entry(name, 0o041777, 0, nil) }

// null is the device /dev/null.
func (a *archive) null() {
	a.directory("dev")
	a.entry("dev/null", 0o020666, 3, nil)
}

// end returns the archive.
func (a *archive) end() []byte {
	a.entry("TRAILER!!!", 0, 0, nil)
	return a.Bytes()
}

func (a *archive) entry(name string, mode, minor int, data []byte) {
	const (
		links = 1
		major = 1 // of devices: memory
	)
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		0, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(data)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() { a.Write(make([]byte, -a.Len()&3)) }
