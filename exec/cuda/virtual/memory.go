package virtual

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"pesti/exec/cuda"
)

// Addresses. The high bits are the number of the allocation. Numbers are never reused, so an access beyond
// an allocation or after it was freed never hits another one. The window with number 0 has the generic
// addresses of shared and local memory; addresses below those are null pointers.
const (
	windowBits   = 36
	windowBegin  = 1 << 30 // offset of an allocation in its window, to detect accesses before it
	windowMost   = 1<<windowBits - 2*windowBegin
	genericSize  = 1 << 30
	genericShare = 1 << 32 // generic address of shared memory
	genericLocal = 1 << 33 // generic address of local memory
)

// An allocation is a range of a device's memory.
type allocation struct {
	device *Device
	base   uint64
	bytes  uint64
	data   []byte // nil once freed
	init   bitmap // a bit for each byte that was written; nil if all were

	// Sectors that the launch in progress has accessed, a bit for each.
	touched         atomic.Bool
	fetched, stored bitmap
}

// A bitmap is shared by the blocks of a launch.
type bitmap []uint64

func newBitmap(n uint64) bitmap { return make(bitmap, (n+63)/64) }

// span returns at most n bits from bit s on.
func span(s, n uint64) uint64 {
	m := ^uint64(0)
	if n < 64 {
		m = 1<<n - 1
	}
	return m << s
}

func (b bitmap) set(at, n uint64) {
	for n > 0 {
		s := at & 63
		m := span(s, n)
		word := &b[at>>6]
		if atomic.LoadUint64(word)&m != m {
			atomic.OrUint64(word, m)
		}
		done := min(64-s, n)
		at, n = at+done, n-done
	}
}

func (b bitmap) has(at, n uint64) bool {
	for n > 0 {
		s := at & 63
		m := span(s, n)
		if atomic.LoadUint64(&b[at>>6])&m != m {
			return false
		}
		done := min(64-s, n)
		at, n = at+done, n-done
	}
	return true
}

// missing returns the first byte from at on that was not written.
func (b bitmap) missing(at uint64) uint64 {
	for {
		if left := ^atomic.LoadUint64(&b[at>>6]) >> (at & 63); left != 0 {
			return at + uint64(bits.TrailingZeros64(left))
		}
		at = at&^63 + 64
	}
}

func (a *allocation) wrote(at, n uint64) {
	if a.init != nil {
		a.init.set(at, n)
	}
}

// written marks bytes as written by the host, while no kernel runs.
func (a *allocation) written(at, n uint64) {
	if n == a.bytes {
		a.init = nil
		return
	}
	a.wrote(at, n)
}

// touch records an access.
func (a *allocation) touch(at, n uint64, write bool) {
	if !a.touched.Load() {
		a.touched.Store(true)
	}
	to := a.fetched
	if write {
		to = a.stored
	}
	to.set(at/sectorBytes, (at+n-1)/sectorBytes-at/sectorBytes+1)
}

// take returns the number of set bits and clears them.
func (b bitmap) take() (n int64) {
	for i, w := range b {
		if w != 0 {
			n += int64(bits.OnesCount64(w))
			b[i] = 0
		}
	}
	return n
}

// settle counts the sectors that a launch has accessed, after its end.
func (m *memory) settle(c *cuda.Counts) {
	for _, a := range m.allocations {
		if a != nil && a.touched.Swap(false) {
			c.Fetched += sectorBytes * a.fetched.take()
			c.Stored += sectorBytes * a.stored.take()
		}
	}
}

// A memory has all allocations of a driver's devices. The set changes only while no kernel runs.
type memory struct {
	allocations []*allocation // by number; the first is nil
	atomics     sync.Mutex    // held by an atomic instruction
}

// place creates an allocation.
func (m *memory) place(d *Device, bytes uint64) *allocation {
	if len(m.allocations) == 0 {
		m.allocations = append(m.allocations, nil)
	}
	a := &allocation{
		device: d,
		base:   uint64(len(m.allocations))<<windowBits + windowBegin,
		bytes:  bytes,
		data:   make([]byte, bytes),
		init:   newBitmap(bytes),

		fetched: newBitmap(bytes/sectorBytes + 1), stored: newBitmap(bytes/sectorBytes + 1),
	}
	m.allocations = append(m.allocations, a)
	return a
}

func (m *memory) at(address uint64) *allocation {
	if number := address >> windowBits; number < uint64(len(m.allocations)) {
		return m.allocations[number]
	}
	return nil
}

// outside says why n bytes at an address are not all inside an allocation, or returns "".
func (m *memory) outside(address, n uint64) string {
	a := m.at(address)
	switch {
	case a == nil && address < genericShare:
		return fmt.Sprintf("a null pointer plus %d", address)
	case a == nil:
		return fmt.Sprintf("%#x, which is in no memory of a device", address)
	case a.data == nil:
		return fmt.Sprintf("%#x, in memory of %d bytes that was freed", address, a.bytes)
	case address < a.base:
		return fmt.Sprintf("%d bytes before memory of %d bytes", a.base-address, a.bytes)
	case address-a.base > a.bytes:
		return fmt.Sprintf("%d bytes behind the end of memory of %d bytes", address-a.base-a.bytes, a.bytes)
	case n > a.bytes-(address-a.base):
		return fmt.Sprintf("byte %d of memory of %d bytes", address-a.base, a.bytes)
	}
	return ""
}

// host returns n bytes of device memory for a call by the host.
func (m *memory) host(p cuda.Ptr, n int64, what string) (*allocation, uint64, error) {
	if n < 0 {
		return nil, 0, fmt.Errorf("virtual device: %s of %d bytes", what, n)
	}
	if why := m.outside(uint64(p), uint64(n)); why != "" {
		return nil, 0, fmt.Errorf("virtual device: %s of %d bytes at %s", what, n, why)
	}
	a := m.at(uint64(p))
	return a, uint64(p) - a.base, nil
}

// free frees an allocation after all pending operations of streams.
func (m *memory) free(p cuda.Ptr) error {
	a, at, err := m.host(p, 0, "free")
	if err != nil {
		return err
	}
	if at != 0 {
		return fmt.Errorf("virtual device: free of an address %d bytes into memory of %d bytes", at, a.bytes)
	}
	a.release()
	return nil
}

func (a *allocation) release() {
	a.device.used -= int64(a.bytes)
	a.data, a.init, a.fetched, a.stored = nil, nil, nil, nil
}

func load32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func load64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
func load16(b []byte) uint32 { return uint32(binary.LittleEndian.Uint16(b)) }
