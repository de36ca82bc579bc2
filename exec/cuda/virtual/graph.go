package virtual

import (
	"fmt"
	"slices"

	"pesti/exec/cuda"
)

// A graph is a captured sequence of operations, with the allocations that its replays may access.
//
// These are the allocations that the parameters of its launches refer to: every aligned 8 bytes that are
// an address inside an allocation refer to the whole of it. A replayed kernel that accesses another
// allocation, through a pointer that it read from memory, faults. On a GPU it would work until that
// memory is reallocated, since the graph is not updated.
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
		return fmt.Errorf("virtual device: the stream is already capturing")
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
		return nil, fmt.Errorf("virtual device: the stream is not capturing")
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
		return fmt.Errorf("virtual device: replay while the stream is capturing")
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
