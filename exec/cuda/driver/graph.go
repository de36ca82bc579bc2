//go:build libcuda

package driver

import (
	"errors"

	"pesti/exec/cuda"
)

type graph struct {
	device *device
	graph  replayable
	closed bool
}

func (s *stream) Capture() error {
	return s.device.do("capturing", func() error { return beginCapture(s.stream) })
}

func (s *stream) EndCapture() (cuda.Graph, error) {
	g := &graph{device: s.device}
	err := s.device.do("ending a capture", func() (err error) {
		g.graph, err = endCapture(s.stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.device.graphs[g] = true
	return g, nil
}

func (s *stream) Replay(of cuda.Graph) error {
	g, ok := of.(*graph)
	if !ok || g.closed {
		return errors.New("replaying: the graph is closed or belongs to another driver")
	}
	return s.device.do("replaying", func() error { return g.graph.replay(s.stream) })
}

func (g *graph) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	delete(g.device.graphs, g)
	return g.device.do("closing a graph", g.graph.destroy)
}
