package main

import (
	"fmt"

	"pesti/exec/cuda"
)

// checkSpeed measures what limits a model on the device: its memory, the copies to and from it, and
// a launch. It has no bounds: it fails only if a measurement is impossible.
func checkSpeed(d cuda.Device, quick bool, f found) error {
	return with(d, func(b *bench) error {
		size := min(1<<30, d.Properties().Free/8)
		launches := 1000
		if quick {
			size, launches = 1<<20, 10
		}
		p, err := b.alloc(size)
		if err != nil {
			return err
		}
		q, err := b.alloc(size)
		if err != nil {
			return err
		}
		host, err := d.AllocHost(int(min(size, 1<<28)))
		if err != nil {
			return err
		}
		n := int64(len(host))
		m, nothing, err := b.kernel("nothing", 0)
		if err != nil {
			return err
		}
		l := cuda.Launch{Function: nothing, Grid: cuda.Dim{X: 1, Y: 1, Z: 1}, Block: cuda.Dim{X: 32, Y: 1, Z: 1}, Params: params(p, 0, 0)}
		if err := b.Capture(); err != nil {
			return err
		}
		for range launches {
			if err := b.Launch(l); err != nil {
				return err
			}
		}
		g, err := b.EndCapture()
		if err != nil {
			return err
		}
		for _, t := range []struct {
			name  string
			bytes int64 // read from or written to the device's memory
			run   func() error
		}{
			{"copy_gb_s", 2 * size, func() error { return b.Copy(q, p, size) }},
			{"fill_gb_s", size, func() error { return b.Fill(p, 0, size) }},
			{"upload_gb_s", n, func() error { return b.Upload(p, host) }},
			{"download_gb_s", n, func() error { return b.Download(host, p) }},
			{"launch_us", 0, func() error {
				for range launches {
					if err := b.Launch(l); err != nil {
						return err
					}
				}
				return nil
			}},
			{"graph_launch_us", 0, func() error { return b.Replay(g) }},
		} {
			ms, err := b.best(t.run)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			if t.bytes > 0 {
				f[t.name] = perMillisecond(float64(t.bytes), ms) / 1e6
			} else {
				f[t.name] = ms * 1e3 / float64(launches)
			}
		}
		f["told_gb_s"] = float64(d.Properties().Bandwidth) / 1e9
		return first(d.FreeHost(host), g.Close(), m.Unload())
	})
}

// perMillisecond returns 0 if no time passed.
func perMillisecond(x, ms float64) float64 {
	if ms <= 0 {
		return 0
	}
	return x / ms
}

// best returns the shortest time of several runs in milliseconds. The first run is a warm-up.
func (b *bench) best(run func() error) (least float64, err error) {
	begin, err := b.NewEvent()
	if err != nil {
		return 0, err
	}
	end, err := b.NewEvent()
	if err != nil {
		return 0, err
	}
	for i := range 6 {
		if err := first(b.Record(begin), run(), b.Record(end), b.Wait()); err != nil {
			return 0, err
		}
		ms, err := end.Since(begin)
		if err != nil {
			return 0, err
		}
		if i == 1 || i > 1 && float64(ms) < least {
			least = float64(ms)
		}
	}
	return least, first(begin.Close(), end.Close())
}
