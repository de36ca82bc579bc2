package pesti_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pesti"
	"pesti/exec"
	"pesti/lower"
)

// A gate stops one forward pass in its middle.
type gate struct {
	armed   atomic.Bool
	entered chan struct{}
	leave   chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan struct{}), leave: make(chan struct{})} }

func (g *gate) observe(exec.Observation) {
	if g.armed.CompareAndSwap(true, false) {
		g.entered <- struct{}{}
		<-g.leave
	}
}

// hold begins a forward pass of a session, which stays in its middle until end is called.
func (g *gate) hold(t *testing.T, s *pesti.Session) (end func()) {
	t.Helper()
	g.armed.Store(true)
	fed := make(chan error, 1)
	go func() { fed <- s.Feed(context.Background(), []int32{1}) }()
	<-g.entered
	t.Cleanup(func() { // where the test failed
		select {
		case g.leave <- struct{}{}:
		default:
		}
	})
	return func() {
		t.Helper()
		g.leave <- struct{}{}
		if err := <-fed; err != nil {
			t.Error(err)
		}
	}
}

// returns fails the test if f does not return while a forward pass is blocked.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second): // nothing that is expected takes that long
		t.Fatalf("%s waits for the forward pass of another sequence", what)
	}
}

// TestNobodyWaits checks that during another sequence's forward pass a canceled generation
// returns, and so do all calls that compute nothing. Their effects apply after the pass.
func TestNobodyWaits(t *testing.T) {
	g := newGate()
	m := open(t, pesti.Options{Compile: lower.Options{Sequences: 3, Ctx: 128, Rows: 8}, Engine: exec.Options{Observe: g.observe}})
	other := must(m.NewSession())
	prompt := "the cat sat on the mat. the cat sat on the mat. the cat sat on"
	enough := errors.New("enough")
	for _, p := range []pesti.Params{{MaxTokens: 12}, {MaxTokens: 12, Speculate: 7}} {
		_, want, _ := collect(t, m, prompt, p)
		for at := range 9 {
			ctx, cancel := context.WithCancelCause(t.Context())
			end := func() {}
			if at == 0 { // before anything is computed
				end = g.hold(t, other)
			}
			var got []int32
			var last error
			returns(t, "a canceled generation", func() {
				if at == 0 {
					time.AfterFunc(time.Millisecond, func() { cancel(enough) })
				}
				for piece, err := range m.Generate(ctx, prompt, p) {
					if last = err; err != nil {
						break
					}
					if got = append(got, piece.ID); len(got) == at {
						end = g.hold(t, other)
						cancel(enough)
					}
				}
			})
			end()
			if !errors.Is(last, enough) || !errors.Is(last, context.Canceled) || !slices.Equal(got, want[:at]) {
				t.Errorf("canceled after %d tokens: error %v with tokens %v, expected %v with %v", at, last, got, enough, want[:at])
			}
			if (at == 0) != strings.Contains(last.Error(), "waiting") {
				t.Errorf("canceled after %d tokens: error %q, and only the first one waits for another pass", at, last)
			}
			if _, again, _ := collect(t, m, prompt, p); !slices.Equal(again, want) {
				t.Errorf("canceled after %d tokens: the next generation has other tokens", at)
			}
		}
	}

	ids := must(m.Tokenize(prompt))
	s := must(m.NewSession())
	if err := s.Feed(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	logits := s.Logits()
	end := g.hold(t, other)
	returns(t, "Pos", func() {
		if s.Pos() != len(ids) {
			t.Errorf("position %d, expected %d", s.Pos(), len(ids))
		}
	})
	for _, n := range []int{5, 3} {
		returns(t, "Truncate", func() {
			if err := s.Truncate(n); err != nil || s.Pos() != n {
				t.Errorf("error %v at %d, expected %d", err, s.Pos(), n)
			}
		})
	}
	returns(t, "Truncate", func() {
		if err := s.Truncate(4); err == nil || s.Pos() != 3 {
			t.Errorf("truncating 3 tokens to 4: error %v at %d", err, s.Pos())
		}
	})
	returns(t, "a refused Feed", func() {
		if err := s.Feed(t.Context(), make([]int32, 126)); !errors.Is(err, pesti.ErrContextFull) {
			t.Errorf("error %v, expected %v", err, pesti.ErrContextFull)
		}
	})
	returns(t, "NewSession with Close", func() {
		for range 3 {
			if err := must(m.NewSession()).Close(); err != nil {
				t.Error(err)
			}
		}
	})
	returns(t, "a generation with nothing to do", func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range m.Generate(ctx, prompt, pesti.Params{}) {
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "waiting") {
				t.Errorf("error %v, expected %v without words about waiting", err, context.Canceled)
			}
		}
	})
	end()
	if err := s.Feed(t.Context(), ids[3:]); err != nil || !slices.Equal(s.Logits(), logits) {
		t.Errorf("after Truncate during another pass: error %v, or other logits", err)
	}
	end = g.hold(t, other)
	returns(t, "Close", func() {
		if err := s.Close(); err != nil || s.Pos() != 0 {
			t.Errorf("error %v at %d", err, s.Pos())
		}
	})
	end()
	next := must(m.NewSession()) // has the sequence that s had
	if next.Pos() != 0 {
		t.Errorf("a new session is at %d", next.Pos())
	}
	if err := next.Feed(t.Context(), ids); err != nil || !slices.Equal(next.Logits(), logits) {
		t.Errorf("a sequence that was given back during another pass: error %v, or other logits", err)
	}
}

// TestTimesOfPasses checks that the times of a generation do not include waiting for the forward passes of another
// sequence. A pass begins at the earliest when the other one may go on.
func TestTimesOfPasses(t *testing.T) {
	g := newGate()
	m := open(t, pesti.Options{Compile: lower.Options{Sequences: 2, Ctx: 128, Ubatch: 2}, Engine: exec.Options{Observe: g.observe}})
	other := must(m.NewSession())
	block := func() (began <-chan time.Time) {
		end, at := g.hold(t, other), make(chan time.Time, 1)
		go func() {
			time.Sleep(300 * time.Millisecond)
			now := time.Now()
			end()
			at <- now
		}()
		return at
	}
	began := block()
	var prompt, decode time.Duration
	for piece, err := range m.Generate(t.Context(), once, pesti.Params{MaxTokens: 2}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case prompt == 0:
			prompt, began = time.Since(<-began), block()
		case decode == 0:
			decode = time.Since(<-began)
		}
		if r := piece.Result; r != nil && (r.PromptTime <= 0 || r.PromptTime > prompt || r.DecodeTime <= 0 || r.DecodeTime > decode) {
			t.Errorf("prompt %v and decode %v, expected at most %v and %v", r.PromptTime, r.DecodeTime, prompt, decode)
		}
	}
}
