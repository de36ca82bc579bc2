package exec_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pesti/exec"
	"pesti/lower"
)

var errEnough = errors.New("enough")

// TestCanceledInEachWave cancels a batch in each of its waves, for a model with window layers
// whose rings the batch overwrites in part. No later wave runs, both sequences of the batch are
// rolled back, a third one is not changed, and the same batch again gives the bits of an
// undisturbed run.
func TestCanceledInEachWave(t *testing.T) {
	m := load(t, configs["gemma3"])
	p := compile(t, m, lower.Options{Ubatch: 16, Sequences: 3, Ctx: 128}).Plan
	ids := prompt(100)
	batch := func(first, second int) *exec.Batch {
		b := &exec.Batch{Rows: []int32{9, 15}}
		for i := range 16 {
			seq, pos := int32(0), first+i
			if i >= 10 {
				seq, pos = 1, second+i-10
			}
			b.Tokens, b.Pos, b.Seq = append(b.Tokens, ids[pos]), append(b.Pos, int32(pos)), append(b.Seq, seq)
		}
		return b
	}
	for _, threads := range []int{1, 3} {
		e := open(t, m, p, threads)
		first, second, third := session(t, e), session(t, e), session(t, e)
		for _, s := range []*exec.Session{first, second, third} {
			feed(t, s, ids[:70])
		}
		b := batch(70, 70)
		if err := e.Forward(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		want := [][]float32{slices.Clone(e.Logits(0)), slices.Clone(e.Logits(1))}
		wantThird := feed(t, third, ids[70:71])
		canceled := 0
		for wave := 0; ; wave++ {
			for _, s := range []*exec.Session{first, second, third} {
				if err := s.Truncate(70); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			waves := 0
			restore := e.BeforeWaves(func(w int) {
				waves++
				if w == wave {
					cancel(errEnough)
				}
			})
			err := e.Forward(ctx, b)
			restore()
			cancel(nil)
			if err == nil {
				if waves > wave+1 {
					t.Fatalf("%d threads: canceled in wave %d of %d: no error", threads, wave, waves)
				}
				break // canceled in the last wave or later
			}
			canceled++
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errEnough) {
				t.Fatalf("error %v, expected one that is %v and %v", err, context.Canceled, errEnough)
			}
			if waves != wave+1 {
				t.Fatalf("%d threads: canceled in wave %d: %d waves ran, expected %d", threads, wave, waves, wave+1)
			}
			if first.Pos() != 70 || second.Pos() != 70 || third.Pos() != 70 {
				t.Fatalf("positions %d, %d and %d, expected 70, where the batch began", first.Pos(), second.Pos(), third.Pos())
			}
			if _, err := e.Value("logits"); err == nil || e.Logits(0) != nil || e.Row(0).Logits != nil {
				t.Fatal("the canceled pass has logits, expected none")
			}
			if wave%2 == 0 && !slices.Equal(feed(t, third, ids[70:71]), wantThird) {
				t.Fatalf("canceled in wave %d: another sequence is disturbed", wave)
			}
			if err := e.Forward(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for r := range want {
				if !slices.Equal(e.Logits(r), want[r]) {
					t.Fatalf("%d threads: the batch again after one that was canceled in wave %d: logits of row %d differ", threads, wave, r)
				}
			}
		}
		if canceled < 10 {
			t.Errorf("%d passes were canceled, expected one in each wave", canceled)
		}
	}
}

// TestNoStepAfterCanceledWave cancels one token and a prompt in each wave, from each worker. No worker begins a later
// wave, the tokens are rolled back, and they give the bits of an undisturbed pass when they are fed again.
func TestNoStepAfterCanceledWave(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{Ubatch: 16, Ctx: 64}).Plan
	for _, threads := range []int{1, 2, 3} {
		for _, tokens := range []int{1, 16} {
			e := open(t, m, p, threads)
			s := session(t, e)
			ids := prompt(10 + tokens)
			feed(t, s, ids[:10])
			want := feed(t, s, ids[10:])
			canceled := 0
			for done := false; !done; canceled++ {
				for by := range threads {
					if err := s.Truncate(10); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					var latest atomic.Int64
					restore := e.BeforeShares(func(worker, wave int) {
						for at := latest.Load(); int64(wave) > at && !latest.CompareAndSwap(at, int64(wave)); at = latest.Load() {
						}
						if worker == by && wave == canceled {
							cancel()
						}
					})
					_, err := s.Feed(ctx, ids[10:])
					restore()
					cancel()
					at := int(latest.Load())
					if err == nil && at <= canceled { // it was the last wave
						done = true
						continue
					}
					if !errors.Is(err, context.Canceled) || at != canceled || s.Pos() != 10 {
						t.Fatalf("%d threads, %d tokens: worker %d canceled in wave %d: error %v at position %d, and wave %d ran", threads, tokens, by, canceled, err, s.Pos(), at)
					}
					if !slices.Equal(feed(t, s, ids[10:]), want) {
						t.Fatalf("%d threads, %d tokens: canceled in wave %d: logits of the same tokens again differ", threads, tokens, canceled)
					}
				}
			}
			if canceled < 10 {
				t.Errorf("%d threads, %d tokens: %d waves, expected more", threads, tokens, canceled)
			}
		}
	}
}

// TestCanceledWithinFeed cancels a prompt of several passes. The session keeps the tokens of the
// completed passes, and feeding the others gives the bits of an undisturbed prompt.
func TestCanceledWithinFeed(t *testing.T) {
	m := load(t, configs["gemma3"])
	e := open(t, m, compile(t, m, lower.Options{Ubatch: 16, Sequences: 2, Ctx: 128}).Plan, 2)
	ids := prompt(90)
	want := feed(t, session(t, e), ids)
	s := session(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	waves := 0
	restore := e.BeforeWaves(func(w int) {
		if w == 0 {
			waves++
		}
		if waves == 4 && w == 5 {
			cancel()
		}
	})
	_, err := s.Feed(ctx, ids)
	restore()
	if !errors.Is(err, context.Canceled) || s.Pos() != 48 {
		t.Fatalf("error %v at position %d, expected a canceled pass at 48", err, s.Pos())
	}
	if got := feed(t, s, ids[s.Pos():]); !slices.Equal(got, want) {
		t.Error("the other tokens of the prompt: logits differ")
	}
}

// TestDeadline checks that a deadline is reported as such and not as a cancellation, and that an
// ended context computes nothing.
func TestDeadline(t *testing.T) {
	m := load(t, configs["llama"])
	e := open(t, m, compile(t, m, lower.Options{Ubatch: 16}).Plan, 2)
	s := session(t, e)
	feed(t, s, prompt(3))
	waves := 0
	defer e.BeforeWaves(func(int) { waves++ })()
	ctx, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	if _, err := s.Feed(ctx, []int32{1}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected one of the deadline", err)
	}
	because, end := context.WithTimeoutCause(t.Context(), 0, errEnough)
	defer end()
	if _, err := s.Feed(because, []int32{1}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errEnough) {
		t.Errorf("error %v, expected one of the deadline with its cause", err)
	}
	if waves != 0 || s.Pos() != 3 {
		t.Errorf("%d waves ran and the session is at %d, expected none and 3", waves, s.Pos())
	}
	//lint:ignore SA1012 it must refuse a nil context
	if _, err := s.Feed(nil, []int32{1}); err == nil || s.Pos() != 3 {
		t.Errorf("a nil context: error %v at position %d", err, s.Pos())
	}
}
