package virtual

import (
	"fmt"
	"slices"

	"pesti/exec/cuda"
)

// A graph is what a stream noted, and what its replays may touch.
//
// Those are the allocations that its launches name: each aligned 8 bytes of a launch's parameters
// that are an address inside an allocation name it, as a whole. A replayed kernel that touches
// another, found through a pointer that it read in memory, faults: on a GPU it works until that
// memory moves, which nothing tells the graph.
type graph struct {
	device   *Device
	commands []command
	named    []*allocation
	closed   bool
}

// Capture implements cuda.Stream.
func (s *stream) Capture() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.capturing {
		return fmt.Errorf("virtual device: the stream captures already")
	}
	s.capturing, s.noted = true, nil
	return nil
}

// EndCapture implements cuda.Stream.
func (s *stream) EndCapture() (cuda.Graph, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if !s.capturing {
		return nil, fmt.Errorf("virtual device: the stream does not capture")
	}
	g := &graph{device: s.device, commands: s.noted}
	s.capturing, s.noted = false, nil
	for _, c := range g.commands {
		for _, a := range c.names(&s.device.driver.memory) {
			if !slices.Contains(g.named, a) {
				g.named = append(g.named, a)
			}
		}
	}
	s.device.graphs++
	return g, nil
}

type replay struct{ graph *graph }

// Replay implements cuda.Stream.
func (s *stream) Replay(of cuda.Graph) error {
	g, ok := of.(*graph)
	if !ok || g.device != s.device || g.closed {
		return fmt.Errorf("virtual device: replay of a closed graph or one of another device")
	}
	if s.capturing {
		return fmt.Errorf("virtual device: replay while the stream captures")
	}
	return s.push(&replay{g})
}

func (r *replay) do(s *stream) error {
	for _, c := range r.graph.commands {
		if l, ok := c.(*launch); ok {
			only := *l
			only.only = r.graph.named
			c = &only
		}
		if err := c.do(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) names(m *memory) []*allocation { return nil }

// Close implements cuda.Graph. It waits for the streams.
func (g *graph) Close() error {
	if g.device.closed {
		return errClosed
	}
	if g.closed {
		return g.device.err
	}
	g.closed = true
	g.device.graphs--
	return g.device.drain()
}
