//go:build unix

package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"pesti/gguf/quant"
)

// beforePage returns a copy of data that ends at an inaccessible page.
func beforePage(t *testing.T, data []byte) []byte {
	t.Helper()
	page := unix.Getpagesize()
	size := (len(data) + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(all[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	copy(all[size-len(data):], data)
	return all[size-len(data) : size : size]
}

// TestMatmulReads places weights and activations directly before an inaccessible page, so that a read
// beyond their end crashes, and checks that products are the same there.
func TestMatmulReads(t *testing.T) {
	for _, mm := range runnable() {
		if mm.Layout == "" && mm.ISA == "portable" { // Go checks bounds
			continue
		}
		info, _ := quant.ByName(mm.Type.String())
		block := info.BlockLen
		if l, ok := LookupLayout(mm.Layout, mm.Type); ok {
			block = l.Block
		}
		k := max(96, 2*block)
		n := 2*panelRows + 3 // more than AMX multiplies at a time
		orders := ReadOrders(mm.Name, []string{mm.ISA})
		if orders != nil {
			n = 5*panelRows + 3 // more than all orders read at a time
		} else {
			orders = make([]ReadOrder, 1)
		}
		for _, m := range []int{1, 2, 5, 8, 17} {
			c := newGroup(t, rand.New(rand.NewPCG(1, uint64(m))), mm, m, k, []int{n})
			c.isa = mm.ISA
			c.run(t, 1, Run{T: m}, "out0")
			want := bytes.Clone(c.mem["out0"].data())
			for _, role := range []string{"x", "w0"} {
				o := c.ops[role]
				o.Data = beforePage(t, o.Data)
				c.ops[role] = o
			}
			for _, order := range orders {
				c.choices = &Choices{ReadOrder: map[quant.Type]ReadOrder{mm.Type: order}}
				c.run(t, 2, Run{T: m}, "out0")
				if !bytes.Equal(c.mem["out0"].data(), want) {
					t.Errorf("%s %s: %d rows differ at the end of memory", mm.Name, mm.ISA, m)
				}
				if m > 1 {
					break
				}
			}
		}
	}
}

// TestPackersRead places first the file and then the panels directly before an inaccessible page, so
// that an access beyond their end crashes.
func TestPackersRead(t *testing.T) {
	for _, p := range runnablePacks() {
		l, _ := LookupLayout("panel16", p.kind)
		info, _ := quant.Lookup(p.kind)
		const n = 2 * panelRows
		k := 3 * p.group
		file := beforePage(t, randomBlocks(rand.New(rand.NewPCG(1, 2)), info, n*k))
		dst := beforePage(t, make([]byte, l.Size(n, k)))
		want := make([]byte, len(dst))
		l.Pack(want, file, n, k, 0, l.Panels(n))
		l.packer(p)(dst, file, n, k, 0, l.Panels(n))
		if !bytes.Equal(dst, want) {
			t.Errorf("%s %s: panels differ at the end of memory", p.isa, p.kind)
		}
	}
}
