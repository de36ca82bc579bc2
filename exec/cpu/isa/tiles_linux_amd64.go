package isa

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// tilesAllowed requests permission to use AMX tiles, for all threads of this process, and reports whether
// it was granted. Linux saves the tile state (bits 17 and 18 of XCR0) only for processes that requested it
// with arch_prctl. Repeating the request has no effect. See Documentation/arch/x86/xstate.rst of the kernel.
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
