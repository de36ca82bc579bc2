package isa

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tilesAllowed reports whether this process may use AMX's tiles, whose state (bits 17 and 18 of XCR0)
// Linux saves only for who has asked for it, by arch_prctl. It asks, for all threads at once; asking
// again changes nothing. See the kernel's Documentation/arch/x86/xstate.rst.
func tilesAllowed() bool {
	const (
		getSupported = 0x1021 // ARCH_GET_XCOMP_SUPP
		request      = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData     = 18
		tiles        = 1<<17 | 1<<tileData
	)
	var features uint64
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, getSupported, uintptr(unsafe.Pointer(&features)), 0)
	if errno != 0 || features&tiles != tiles {
		return false
	}
	_, _, errno = unix.RawSyscall(unix.SYS_ARCH_PRCTL, request, tileData, 0)
	return errno == 0
}
