package main

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"pesti/exec/cuda"
)

//go:embed contract.ptx
var contractPTX []byte

// contract lists the rules that package exec/cuda states for a Device, with one check for each.
var contract = []struct {
	name  string
	check func(cuda.Device, found) error
}{
	{"properties", checkProperties},
	{"memory", checkMemory},
	{"host memory", checkHostMemory},
	{"too much memory", checkTooMuch},
	{"modules", checkModules},
	{"launches", checkLaunches},
	{"shared memory", checkShared},
	{"streams and events", checkEvents},
	{"graphs", checkGraphs},
}

func checkProperties(d cuda.Device, f found) error {
	p := d.Properties()
	for _, c := range []struct {
		what  string
		least int64
		found int64
	}{
		{"compute capability", 75, int64(10*p.Major + p.Minor)},
		{"multiprocessors", 1, int64(p.SMs)},
		{"bytes of memory", 1 << 20, p.Memory},
		{"bytes free", 1 << 20, p.Free},
		{"bytes of shared memory for a block", 48 << 10, int64(p.Shared)},
	} {
		if c.found < c.least {
			return fmt.Errorf("%s: %d, expected at least %d", c.what, c.found, c.least)
		}
	}
	if p.Free > p.Memory || p.Name == "" {
		return fmt.Errorf("%q has %d bytes free of %d", p.Name, p.Free, p.Memory)
	}
	return nil
}

// pattern returns bytes without short repetitions.
func pattern(n int, seed uint32) []byte {
	b := make([]byte, n)
	x := seed*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// A bench has what most checks need: a stream, and memory that is freed at the end.
type bench struct {
	cuda.Device
	cuda.Stream
	memory []cuda.Ptr
}

func newBench(d cuda.Device) (*bench, error) {
	s, err := d.NewStream()
	return &bench{Device: d, Stream: s}, err
}

func (b *bench) alloc(bytes int64) (cuda.Ptr, error) {
	p, err := b.Alloc(bytes)
	if err == nil {
		b.memory = append(b.memory, p)
		if p%256 != 0 {
			err = fmt.Errorf("%d bytes lie at %#x, expected a multiple of 256", bytes, p)
		}
	}
	return p, err
}

// end frees everything. It returns err, or the first error of freeing.
func (b *bench) end(err error) error {
	for _, p := range b.memory {
		err = first(err, b.Free(p))
	}
	return first(err, b.Stream.Close())
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// with runs a check with a bench.
func with(d cuda.Device, check func(*bench) error) error {
	b, err := newBench(d)
	if err != nil {
		return err
	}
	return b.end(check(b))
}

// words returns n words of device memory.
func (b *bench) words(p cuda.Ptr, n int) ([]uint32, error) {
	raw := make([]byte, 4*n)
	if err := first(b.Download(raw, p), b.Wait()); err != nil {
		return nil, err
	}
	w := make([]uint32, n)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return w, nil
}

func checkMemory(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		for _, n := range []int{1, 255, 256, 257, 1<<20 + 3} {
			p, err := b.alloc(int64(n))
			if err != nil {
				return err
			}
			q, err := b.alloc(int64(n))
			if err != nil {
				return err
			}
			src, dst := pattern(n, uint32(n)), make([]byte, n)
			if err := first(b.Upload(p, src), b.Copy(q, p, int64(n)), b.Fill(p, 0xa5, int64(n)), b.Download(dst, q), b.Wait()); err != nil {
				return err
			}
			if !bytes.Equal(src, dst) {
				return fmt.Errorf("%d bytes come back changed", n)
			}
			if err := first(b.Download(dst, p), b.Wait()); err != nil {
				return err
			}
			if bytes.Count(dst, []byte{0xa5}) != n {
				return fmt.Errorf("%d bytes are not all filled", n)
			}
			// At an odd address. The bytes next to it must not change.
			if n > 256 {
				if err := first(b.Upload(q+3, []byte{1, 2}), b.Download(dst, q), b.Wait()); err != nil {
					return err
				}
				src[3], src[4] = 1, 2
				if !bytes.Equal(src, dst) {
					return errors.New("two bytes at an odd address change others")
				}
			}
		}
		return nil
	})
}

func checkHostMemory(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		const n = 1 << 16
		host, err := d.AllocHost(n)
		if err != nil {
			return err
		}
		p, err := b.alloc(n)
		if err != nil {
			return err
		}
		src := pattern(n, 7)
		copy(host, src)
		err = first(b.Upload(p, host), b.Wait())
		clear(host)
		err = first(err, b.Download(host, p), b.Wait())
		if err == nil && !bytes.Equal(host, src) {
			err = errors.New("bytes come back changed")
		}
		return first(err, d.FreeHost(host))
	})
}

// checkTooMuch requests more memory than exists. The device must report that, and nothing else may
// change.
func checkTooMuch(d cuda.Device, f found) error {
	if _, err := d.Alloc(2 * d.Properties().Memory); err == nil {
		return errors.New("allocated twice the device's memory, expected an error")
	} else if strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("more than a line: %w", err)
	}
	p, err := d.Alloc(1 << 20)
	if err != nil {
		return fmt.Errorf("after that: %w", err)
	}
	return d.Free(p)
}

func checkModules(d cuda.Device, f found) error {
	for _, text := range []string{"", "hello", strings.Replace(string(contractPTX), "add.u32 %r18", "add.u32 %nothing", 1)} {
		if m, err := d.Load([]byte(text)); err == nil {
			m.Unload()
			return fmt.Errorf("%.20q was compiled, expected an error", text)
		}
	}
	m, err := d.Load(contractPTX)
	if err != nil {
		return err
	}
	if _, err := m.Function("missing", 0); err == nil {
		err = errors.New("found a kernel that the module does not have")
		return first(err, m.Unload())
	}
	_, err = m.Function("add", 0)
	return first(err, m.Unload())
}

// kernel loads the contract module and returns one of its kernels.
func (b *bench) kernel(name string, shared int) (cuda.Module, cuda.Function, error) {
	m, err := b.Load(contractPTX)
	if err != nil {
		return nil, nil, err
	}
	k, err := m.Function(name, shared)
	return m, k, err
}

func params(dst cuda.Ptr, n, value uint32) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(dst))
	p = binary.LittleEndian.AppendUint32(p, n)
	return binary.LittleEndian.AppendUint32(p, value)
}

// checkLaunches runs one thread per word, with grids and blocks of all shapes.
func checkLaunches(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		m, add, err := b.kernel("add", 0)
		if err != nil {
			return err
		}
		p, err := b.alloc(4 * 5000)
		for _, l := range []cuda.Launch{
			{Grid: cuda.Dim{X: 1, Y: 1, Z: 1}, Block: cuda.Dim{X: 1, Y: 1, Z: 1}},
			{Grid: cuda.Dim{X: 5, Y: 1, Z: 1}, Block: cuda.Dim{X: 1000, Y: 1, Z: 1}},
			{Grid: cuda.Dim{X: 2, Y: 3, Z: 5}, Block: cuda.Dim{X: 7, Y: 4, Z: 2}},
			{Grid: cuda.Dim{X: 1, Y: 1, Z: 39}, Block: cuda.Dim{X: 1, Y: 16, Z: 8}},
		} {
			threads := l.Grid.X * l.Grid.Y * l.Grid.Z * l.Block.X * l.Block.Y * l.Block.Z
			n := max(threads-1, 1) // the last thread has nothing to do
			l.Function, l.Params = add, params(p, uint32(n), 100)
			err = first(err, b.Fill(p, 0, 4*5000), b.Launch(l))
			if err != nil {
				return err
			}
			clear(l.Params) // the launch has copied them
			got, err := b.words(p, 5000)
			if err != nil {
				return err
			}
			for i, w := range got {
				want := uint32(0)
				if i < n {
					want = uint32(i) + 100
				}
				if w != want {
					return fmt.Errorf("grid %v, block %v: word %d is %d, expected %d", l.Grid, l.Block, i, w, want)
				}
			}
		}
		return first(err, m.Unload())
	})
}

// checkShared launches a block with all the shared memory that the device reports for a block, and
// one with more.
func checkShared(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		most := d.Properties().Shared
		f["bytes"] = most
		m, last, err := b.kernel("last", most)
		if err != nil {
			return err
		}
		p, err := b.alloc(4 * 64)
		if err != nil {
			return err
		}
		l := cuda.Launch{Function: last, Grid: cuda.Dim{X: 1, Y: 1, Z: 1}, Block: cuda.Dim{X: 64, Y: 1, Z: 1}, Shared: most, Params: params(p, uint32(most/4), 12345)}
		if err := b.Launch(l); err != nil {
			return err
		}
		got, err := b.words(p, 64)
		if err != nil {
			return err
		}
		for i, w := range got {
			if w != 12345 {
				return fmt.Errorf("thread %d reads %d from shared memory, expected 12345", i, w)
			}
		}
		if _, err := m.Function("last", 16*most); err == nil {
			return fmt.Errorf("a kernel was allowed %d bytes of shared memory, expected at most the %d of the device", 16*most, most)
		}
		return m.Unload()
	})
}

// checkEvents makes one stream wait for the work of another.
func checkEvents(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		const n = 1 << 20
		other, err := d.NewStream()
		if err != nil {
			return err
		}
		begin, err := d.NewEvent()
		if err != nil {
			return err
		}
		done, err := d.NewEvent()
		if err != nil {
			return err
		}
		p, err := b.alloc(n)
		if err != nil {
			return err
		}
		dst := make([]byte, n)
		err = first(b.Fill(p, 1, n), b.Record(begin), b.Fill(p, 2, n), b.Record(done), other.Await(done), other.Download(dst, p), other.Wait())
		if err != nil {
			return err
		}
		if bytes.Count(dst, []byte{2}) != n {
			return errors.New("a stream did not wait for an event")
		}
		ms, err := done.Since(begin)
		if err == nil && !(ms >= 0) {
			err = fmt.Errorf("the time between two events is %g ms, expected at least 0", ms)
		}
		return first(err, begin.Close(), done.Close(), other.Close())
	})
}

// checkGraphs captures launches, which must not run them, and replays the graph.
func checkGraphs(d cuda.Device, f found) error {
	return with(d, func(b *bench) error {
		m, add, err := b.kernel("add", 0)
		if err != nil {
			return err
		}
		const n = 1000
		p, err := b.alloc(4 * n)
		if err != nil {
			return err
		}
		l := cuda.Launch{Function: add, Grid: cuda.Dim{X: 4, Y: 1, Z: 1}, Block: cuda.Dim{X: 256, Y: 1, Z: 1}, Params: params(p, n, 3)}
		if err := first(b.Fill(p, 0, 4*n), b.Wait(), b.Capture(), b.Launch(l), b.Launch(l)); err != nil {
			return err
		}
		clear(l.Params)
		g, err := b.EndCapture()
		if err != nil {
			return err
		}
		expect := func(runs uint32) error {
			got, err := b.words(p, n)
			if err != nil {
				return err
			}
			for i, w := range got {
				if want := runs * (uint32(i) + 3); w != want {
					return fmt.Errorf("after %d runs word %d is %d, expected %d", runs, i, w, want)
				}
			}
			return nil
		}
		err = first(expect(0), b.Replay(g), expect(2), b.Replay(g), b.Replay(g), expect(6), g.Close())
		if err == nil && b.Replay(g) == nil {
			err = errors.New("a closed graph was replayed, expected an error")
		}
		return first(err, m.Unload())
	})
}

// checkTrap writes to an address without memory. All later calls must fail, and Close must end the
// device.
func checkTrap(d cuda.Device) error {
	b, err := newBench(d)
	if err != nil {
		return err
	}
	_, add, err := b.kernel("add", 0)
	if err := first(err, b.Wait()); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	l := cuda.Launch{Function: add, Grid: cuda.Dim{X: 1, Y: 1, Z: 1}, Block: cuda.Dim{X: 32, Y: 1, Z: 1}, Params: params(1<<20, 32, 0)}
	trap := first(b.Launch(l), b.Wait())
	if trap == nil {
		return errors.New("a kernel that writes outside of memory succeeded, expected a trap")
	}
	if strings.Contains(trap.Error(), "\n") {
		return fmt.Errorf("more than a line: %w", trap)
	}
	if _, err := d.Alloc(1); err == nil {
		return errors.New("an allocation after a trap succeeded, expected an error")
	}
	d.Close() // may report the trap again
	if _, err := d.Alloc(1); err == nil {
		return errors.New("an allocation on a closed device succeeded, expected an error")
	}
	return nil
}
