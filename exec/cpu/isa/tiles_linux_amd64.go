package isa

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tilesAllowed reports whether Linux lets a process ask for AMX's tile state (XCR0 bits 17 and
// 18), by arch_prctl(ARCH_GET_XCOMP_SUPP). See the kernel's Documentation/arch/x86/xstate.rst.
func tilesAllowed() bool {
	const (
		getSupported = 0x1021
		tiles        = 1<<17 | 1<<18
	)
	var features uint64
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, getSupported, uintptr(unsafe.Pointer(&features)), 0)
	return errno == 0 && features&tiles == tiles
}
