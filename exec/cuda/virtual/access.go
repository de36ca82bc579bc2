package virtual

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// A space is the state space of an access.
type space uint8

const (
	generic space = iota // determined by the address
	global
	sharedSpace
	localSpace
	paramSpace
)

var spaceNames = map[string]space{
	"global": global, "const": global, "shared": sharedSpace, "shared::cta": sharedSpace, "local": localSpace,
	"param": paramSpace, "param::entry": paramSpace,
}

// An access has what ld, st, atom and cp.async have in common.
type access struct {
	opcode string
	space  space
	size   uint64 // bytes of an element
	total  uint64 // bytes of a lane
	signed bool   // a load extends the sign
	bits   []int  // of the registers: 32, 64; 16 for predicates and halves; 0 where there is none
	slots  []int  // of the registers
	base   int    // slot of the address's register, −1 for none
	long   bool   // of 64 bits
	offset uint64
	write  bool
	atomic bool
	quiet  bool // a load; nothing writes to shared memory between the barriers around it
}

// Suffixes of loads and stores that are ignored: there are no caches, and writes are visible to other
// threads at once.
var hints = []string{"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "cta", "gpu", "sys", "cluster",
	"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"}

func isHint(suffix string) bool {
	return slices.Contains(hints, suffix) || strings.HasPrefix(suffix, "L1::") || strings.HasPrefix(suffix, "L2::")
}

// newAccess reads suffixes: space, vector and type.
func (c *compiler) newAccess(in *ptx.Instr) (access, int, error) {
	a := access{opcode: in.Opcode(), base: -1, quiet: c.quiet}
	vector := 1
	for _, s := range in.Suffix[:max(0, len(in.Suffix)-1)] {
		if sp, ok := spaceNames[s]; ok {
			a.space = sp
		} else if s == "v2" {
			vector = 2
		} else if s == "v4" {
			vector = 4
		} else if !isHint(s) {
			return a, 0, unknown(in)
		}
	}
	kind := in.Type()
	a.size = uint64(ptx.Size(kind))
	if a.size == 0 || a.size > 8 {
		return a, 0, unknown(in)
	}
	a.signed = kind[0] == 's'
	a.total = a.size * uint64(vector)
	if a.total > 16 {
		return a, 0, unknown(in)
	}
	return a, vector, nil
}

// to reads the address operand.
func (c *compiler) to(in *ptx.Instr, a *access, o *ptx.Operand) error {
	if o.Kind != ptx.Address {
		return unknown(in)
	}
	a.offset = o.Value
	a.base, a.long = o.Index, o.Class == ptx.Long
	if o.Name != "" {
		a.offset = c.address(o)
		if a.space == generic && o.Space != ptx.Global {
			return ptx.Errorf(in.Line, "%s of %s without a space", in.Opcode(), o.Name)
		}
	}
	return nil
}

// registers reads the operands of the value; a store may have constants.
func (c *compiler) registers(in *ptx.Instr, a *access, o *ptx.Operand, vector int) error {
	parts := []ptx.Operand{*o}
	if o.Kind == ptx.Vector {
		parts = o.Parts
	}
	if len(parts) != vector {
		return unknown(in)
	}
	for i := range parts {
		p := &parts[i]
		var slot int
		var err error
		bits := 32
		switch {
		case p.Kind == ptx.Sink && !a.write:
			bits = 0
		case p.Kind == ptx.Register && p.Class == ptx.Long:
			slot, bits = p.Index, 64
		case p.Kind == ptx.Register && p.Class == ptx.Word:
			slot = p.Index
			if ptx.Size(p.Type) == 2 {
				bits = 16
			}
		case a.write && a.size == 8:
			slot, err = c.long(in, p)
			bits = 64
		case a.write:
			slot, err = c.word(in, p)
		default:
			return unknown(in)
		}
		if err != nil {
			return err
		}
		if bits > 0 && uint64(bits) < 8*a.size {
			return ptx.Errorf(in.Line, "%s: a register smaller than the type", in.Opcode())
		}
		a.slots, a.bits = append(a.slots, slot), append(a.bits, bits)
	}
	return nil
}

func (c *compiler) load(in *ptx.Instr) (func(w *warp), error) {
	a, vector, err := c.newAccess(in)
	if err != nil {
		return nil, err
	}
	if len(in.Args) != 2 {
		return nil, unknown(in)
	}
	if err := c.to(in, &a, &in.Args[1]); err != nil {
		return nil, err
	}
	if err := c.registers(in, &a, &in.Args[0], vector); err != nil {
		return nil, err
	}
	return func(w *warp) { w.load(&a) }, nil
}

func (c *compiler) store(in *ptx.Instr) (func(w *warp), error) {
	a, vector, err := c.newAccess(in)
	if err != nil {
		return nil, err
	}
	a.write = true
	if len(in.Args) != 2 || a.space == paramSpace {
		return nil, unknown(in)
	}
	if err := c.to(in, &a, &in.Args[0]); err != nil {
		return nil, err
	}
	if err := c.registers(in, &a, &in.Args[1], vector); err != nil {
		return nil, err
	}
	return func(w *warp) { w.store(&a) }, nil
}

// addresses computes the addresses of all lanes.
func (w *warp) addresses(a *access) *longs {
	at := &w.at
	switch {
	case a.base < 0:
		for i := range at {
			at[i] = a.offset
		}
	case a.long:
		r := &w.longs[a.base]
		for i := range at {
			at[i] = r[i] + a.offset
		}
	default:
		r := &w.words[a.base]
		for i := range at {
			at[i] = uint64(r[i]) + a.offset
		}
	}
	return at
}

// A pattern of addresses.
type pattern uint8

const (
	scattered pattern = iota
	oneBehindAnother
	theSame
)

// patternOf classifies the addresses of a whole warp.
func patternOf(at *longs, total uint64) pattern {
	base := at[0]
	var same, apart uint64
	want := base
	for i := range at {
		same |= at[i] ^ base
		apart |= at[i] ^ want
		want += total
	}
	switch {
	case apart == 0:
		return oneBehindAnother
	case same == 0:
		return theSame
	}
	return scattered
}

func (w *warp) load(a *access) {
	at := w.addresses(a)
	sp := w.where(a, at)
	counts := w.group.traffic(sp)
	counts.Requests++
	counts.Read += int64(bits.OnesCount32(w.mask)) * int64(a.total)
	switch sp {
	case global:
		counts.Cut(w.loadGlobal(a, at))
	case sharedSpace:
		period := w.period(at)
		counts.Cut(passes(at, w.mask, period, a.total))
		w.loadShared(a, at, period)
	case paramSpace:
		w.loadParam(a, at)
	default:
		w.loadLanes(a, sp, at)
	}
}

// loadGlobal handles runs of lanes that load consecutive memory together. It returns the sectors, see
// coalesced.
func (w *warp) loadGlobal(a *access, at *longs) (touched, least int64) {
	if w.mask == 0xffffffff {
		switch patternOf(at, a.total) {
		case oneBehindAnother:
			if b := w.whole(a, global, at[0], 32*a.total); b != nil {
				w.unpack(a, b, 0, 32)
				return sectors(at[0], 32*a.total), int64(a.total)
			}
		case theSame:
			if b := w.whole(a, global, at[0], a.total); b != nil {
				w.unpackOne(a, b)
				return 1, 1
			}
		}
	}
	for m := w.mask; m != 0; {
		lane := first(m)
		n := 1
		for lane+n < 32 && m>>(lane+n)&1 != 0 && at[lane+n] == at[lane]+uint64(n)*a.total {
			n++
		}
		b := w.whole(a, global, at[lane], uint64(n)*a.total)
		if b == nil { // one of the accesses is invalid
			w.loadLanes(a, global, at)
			return 0, 0
		}
		w.unpack(a, b, lane, n)
		m &^= uint32(span(uint64(lane), uint64(n)))
	}
	return coalesced(at, w.mask, a.total)
}

// loadParam loads once if all lanes have the same address.
func (w *warp) loadParam(a *access, at *longs) {
	address := at[first(w.mask)]
	for m := w.mask; m != 0 && a.base >= 0; m &= m - 1 {
		if at[first(m)] != address {
			w.loadLanes(a, paramSpace, at)
			return
		}
	}
	b := w.bytes(a, paramSpace, first(w.mask), address)
	switch {
	case b == nil:
	case w.mask == w.alive:
		w.unpackOne(a, b)
	default:
		for m := w.mask; m != 0; m &= m - 1 {
			w.unpack(a, b, first(m), 1)
		}
	}
}

// loadLanes loads lane by lane.
func (w *warp) loadLanes(a *access, sp space, at *longs) {
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		b := w.bytes(a, sp, lane, at[lane])
		if b == nil {
			return
		}
		w.unpack(a, b, lane, 1)
	}
}

// loadShared has fast paths for loads between two barriers without a write in between, and for lanes that
// repeat the addresses of earlier lanes, which is the common case.
func (w *warp) loadShared(a *access, at *longs, period int) {
	s := &w.group.shared
	if !a.quiet || s.strict || a.size != 4 {
		w.loadLanes(a, sharedSpace, at)
		return
	}
	for m := w.mask & uint32(span(0, uint64(period))); m != 0; m &= m - 1 {
		lane := first(m)
		address := at[lane]
		if address%a.total != 0 || address+a.total > uint64(len(s.data)) || s.verified[address/16] != s.epoch {
			if w.bytes(a, sharedSpace, lane, address) == nil {
				return
			}
			s.verify(address / 16)
		}
		b := s.data[address : address+a.total]
		for k, slot := range a.slots {
			if a.bits[k] == 32 {
				w.words[slot][lane] = load32(b[4*k:])
			} else if a.bits[k] == 64 {
				w.longs[slot][lane] = a.extend(uint64(load32(b[4*k:])))
			}
		}
	}
	if period == 32 {
		return
	}
	for k, slot := range a.slots {
		if a.bits[k] == 32 {
			d := &w.words[slot]
			for n := period; n < 32; n *= 2 {
				copy(d[n:], d[:n])
			}
		} else if a.bits[k] == 64 {
			d := &w.longs[slot]
			for n := period; n < 32; n *= 2 {
				copy(d[n:], d[:n])
			}
		}
	}
}

// period returns the number of lanes after which addresses repeat: 1, 2, 4, 8, 16 or 32. It is 32 if some
// lanes are inactive.
func (w *warp) period(at *longs) int {
	if w.mask != 0xffffffff {
		return 32
	}
	period := 1
	for period < 32 && at[period] != at[0] {
		period *= 2
	}
	for i := period; i < 32; i++ {
		if at[i] != at[i-period] {
			return 32
		}
	}
	return period
}

// where resolves the space of a generic access. All active lanes must access the same space; compiled
// code does.
func (w *warp) where(a *access, at *longs) space {
	if a.space != generic {
		return a.space
	}
	sp := spaceOf(at[first(w.mask)])
	if sp == global {
		return sp
	}
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		if spaceOf(at[lane]) != sp {
			w.fail(lane, "%s: lanes of a warp access different spaces", a.opcode)
		}
		at[lane] &= genericSize - 1
	}
	return sp
}

// spaceOf returns the space of a generic address.
func spaceOf(address uint64) space {
	switch {
	case address >= genericShare && address < genericShare+genericSize:
		return sharedSpace
	case address >= genericLocal && address < genericLocal+genericSize:
		return localSpace
	}
	return global
}

func element(b []byte, size uint64) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(load32(b))
	}
	return load64(b)
}

// extend sign-extends values of signed types.
func (a *access) extend(v uint64) uint64 {
	if a.signed {
		s := 64 - 8*a.size
		return uint64(int64(v<<s) >> s)
	}
	return v
}

func (a *access) narrow(v uint64, bits int) uint32 {
	if bits == 16 {
		return uint32(uint16(v))
	}
	return uint32(v)
}

// unpack distributes b to n lanes, whose values are consecutive.
func (w *warp) unpack(a *access, b []byte, lane, n int) {
	step := int(a.total)
	for k, slot := range a.slots {
		part := b[k*int(a.size):]
		switch {
		case a.bits[k] == 0:
		case a.bits[k] == 64:
			d := w.longs[slot][lane : lane+n]
			for i := range d {
				d[i] = a.extend(element(part[i*step:], a.size))
			}
		case a.size == 4:
			d := w.words[slot][lane : lane+n]
			for i := range d {
				d[i] = load32(part[i*step:])
			}
		case a.size == 2 && !a.signed:
			d := w.words[slot][lane : lane+n]
			for i := range d {
				d[i] = load16(part[i*step:])
			}
		default:
			d := w.words[slot][lane : lane+n]
			for i := range d {
				d[i] = a.narrow(a.extend(element(part[i*step:], a.size)), a.bits[k])
			}
		}
	}
}

// unpackOne gives all lanes the same value.
func (w *warp) unpackOne(a *access, b []byte) {
	for k, slot := range a.slots {
		v := a.extend(element(b[uint64(k)*a.size:], a.size))
		switch a.bits[k] {
		case 0:
		case 64:
			d := &w.longs[slot]
			for i := range d {
				d[i] = v
			}
		default:
			n := a.narrow(v, a.bits[k])
			d := &w.words[slot]
			for i := range d {
				d[i] = n
			}
		}
	}
}

func (w *warp) store(a *access) {
	at := w.addresses(a)
	sp := w.where(a, at)
	counts := w.group.traffic(sp)
	counts.Requests++
	counts.Written += int64(bits.OnesCount32(w.mask)) * int64(a.total)
	if w.mask == 0xffffffff && sp == global && patternOf(at, a.total) == oneBehindAnother {
		if b := w.whole(a, sp, at[0], 32*a.total); b != nil {
			counts.Cut(sectors(at[0], 32*a.total), int64(a.total))
			for i := range at {
				w.pack(a, i, b[i*int(a.total):])
			}
			return
		}
	}
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		b := w.bytes(a, sp, lane, at[lane])
		if b == nil {
			return
		}
		w.pack(a, lane, b)
	}
	switch sp {
	case global:
		counts.Cut(coalesced(at, w.mask, a.total))
	case sharedSpace:
		counts.Cut(passes(at, w.mask, 32, a.total))
	}
}

// pack puts a lane's registers into b.
func (w *warp) pack(a *access, lane int, b []byte) {
	for k, slot := range a.slots {
		part := b[uint64(k)*a.size:]
		if a.size == 8 {
			binary.LittleEndian.PutUint64(part, w.longs[slot][lane])
			continue
		}
		var v uint32
		if a.bits[k] == 64 {
			v = uint32(w.longs[slot][lane])
		} else {
			v = w.words[slot][lane]
		}
		switch a.size {
		case 1:
			part[0] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(part, uint16(v))
		default:
			binary.LittleEndian.PutUint32(part, v)
		}
	}
}

// find returns the allocation that contains an address, if the launch may use it.
func (w *warp) find(address uint64) *allocation {
	number := int(address >> windowBits)
	if number == w.near {
		return w.nearest
	}
	a := w.group.memory.at(address)
	if a == nil || a.data == nil || !w.group.device.reaches(a.device) {
		return nil
	}
	if only := w.group.launch.only; only != nil && !slices.Contains(only, a) {
		return nil
	}
	w.near, w.nearest = number, a
	return a
}

// whole returns n bytes that the lanes access together, or nil if an access is invalid. The invalid lane
// is then found by accessing the lanes one by one.
func (w *warp) whole(a *access, sp space, address, n uint64) []byte {
	if address%a.total != 0 {
		return nil
	}
	if sp == paramSpace {
		p := w.group.launch.params
		if address > uint64(len(p)) || n > uint64(len(p))-address {
			return nil
		}
		return p[address : address+n]
	}
	m := w.find(address)
	if m == nil {
		return nil
	}
	at := address - m.base
	if at > m.bytes || n > m.bytes-at {
		return nil
	}
	if m.init != nil {
		if a.write {
			m.init.set(at, n)
		} else if !m.init.has(at, n) {
			return nil
		}
	}
	m.touch(at, n, a.write)
	return m.data[at : at+n]
}

// bytes returns the memory that a lane accesses, or nil after a fault.
func (w *warp) bytes(a *access, sp space, lane int, address uint64) []byte {
	n := a.total
	if address%n != 0 {
		w.fail(lane, "%s: misaligned address %#x", a.opcode, address)
		return nil
	}
	switch sp {
	case sharedSpace:
		s := &w.group.shared
		if address > uint64(len(s.data)) || n > uint64(len(s.data))-address {
			w.fail(lane, "%s: %s %d bytes at byte %d of %d bytes of shared memory", a.opcode, a.verb(), n, address, len(s.data))
			return nil
		}
		if wrong := s.check(w, lane, address, n, a.write, a.atomic); wrong != "" && !w.harmless(a, lane, wrong, s.data[address:]) {
			w.fail(lane, "%s: %s %d bytes at byte %d of shared memory: %s", a.opcode, a.verb(), n, address, wrong)
			return nil
		}
		return s.data[address : address+n]
	case localSpace:
		size := uint64(w.group.program.local)
		if address > size || n > size-address {
			w.fail(lane, "%s: %s %d bytes at byte %d of %d bytes of local memory", a.opcode, a.verb(), n, address, size)
			return nil
		}
		from := uint64(lane)*size + address
		return w.local[from : from+n]
	case paramSpace:
		if b := w.whole(a, sp, address, n); b != nil {
			return b
		}
		w.fail(lane, "%s: byte %d of %d bytes of parameters", a.opcode, address, len(w.group.launch.params))
		return nil
	}
	if b := w.whole(a, global, address, n); b != nil {
		return b
	}
	w.fail(lane, "%s: %s %d bytes at %s", a.opcode, a.verb(), n, w.reason(a, address))
	return nil
}

func (a *access) verb() string {
	if a.write {
		return "writes"
	}
	return "reads"
}

// reason says why an access to global memory is invalid.
func (w *warp) reason(a *access, address uint64) string {
	if why := w.group.memory.outside(address, a.total); why != "" {
		return why
	}
	m := w.group.memory.at(address)
	at := address - m.base
	switch {
	case !w.group.device.reaches(m.device):
		return "memory of a device that is no peer"
	case w.group.launch.only != nil && !slices.Contains(w.group.launch.only, m):
		return "memory that the graph's launches do not name when they are captured"
	case m.init != nil && !m.init.has(at, a.total):
		return fmt.Sprintf("byte %d of memory of %d bytes: byte %d was never written", at, m.bytes, m.init.missing(at))
	}
	return fmt.Sprintf("%#x", address)
}

// harmless reports whether a race is only between writes of the value that is already there.
func (w *warp) harmless(a *access, lane int, wrong string, there []byte) bool {
	if !a.write || a.atomic || !strings.HasPrefix(wrong, "race") || !strings.Contains(wrong, "wrote") {
		return false
	}
	var mine [16]byte
	w.pack(a, lane, mine[:])
	return string(mine[:a.total]) == string(there[:a.total])
}
