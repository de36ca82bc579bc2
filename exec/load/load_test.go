package load

import (
	"runtime"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	got, ok := parseStat([]byte("cpu  100 20 300 9000 50 6 7 8 11 12\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if want := 4410 * time.Millisecond; !ok || got != want {
		t.Errorf("busy for %v, %t, want %v", got, ok, want)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "cpu 1 2 3 4 5 6 7 x\n", "intr 1 2 3 4 5 6 7 8\n"} {
		if _, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q is taken for times", text)
		}
	}
}

func TestParseOwn(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7 (a) b) 1 2) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 9 0": 1750 * time.Millisecond,
		"7 (a) S 1 2": 0,
		"":            0,
		"7 (a) S 1 7 7 0 -1 4194304 100 0 0 0 x 25 0 0": 0,
	} {
		if got := parseOwn([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestWatch checks that this process does not count as another program, and that what the caller does not
// name as measured does.
func TestWatch(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the load is known on Linux only")
	}
	w, own := Start(), Own()
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
	}
	used := Own() - own
	with, without := w.Stop(used), w.Stop(0)
	if with.Others == nil || without.Others == nil || *without.Others-*with.Others < used.Seconds()/2/0.4 && used > 200*time.Millisecond && *with.Others > 0 {
		t.Fatalf("used %v: others %v, and %v if that is not named", used, with.Others, without.Others)
	}
	if *without.Others <= 0 && used > 100*time.Millisecond {
		t.Errorf("%v of the processor count as none", used)
	}
	if _, known := with.Busy(); !known || with.Begin == "" || with.End == "" {
		t.Errorf("the load is %+v", with)
	}
}

// TestStopOwn moves the start of a watch back, by a minute of all processors and an hour of this process.
func TestStopOwn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the load is known on Linux only")
	}
	w := Start()
	w.busy -= time.Minute
	w.own -= time.Hour
	if l := w.StopOwn(); l.Others == nil || *l.Others != 0 {
		t.Errorf("own time is not left out: %v", l.Others)
	}
	if l := w.Stop(0); l.Others == nil || *l.Others <= 0 {
		t.Errorf("the minute counts as none: %v", l.Others)
	}
}

func TestBusy(t *testing.T) {
	for _, c := range []struct {
		others      *float64
		busy, known bool
	}{{nil, false, false}, {new(Quiet), false, true}, {new(Quiet * 1.01), true, true}} {
		l := Load{Others: c.others}
		if busy, known := l.Busy(); busy != c.busy || known != c.known {
			t.Errorf("%v: busy %t, known %t", c.others, busy, known)
		}
	}
}

func TestRaise(t *testing.T) {
	for _, c := range []struct{ was, others, want *float64 }{
		{nil, nil, nil}, {nil, new(0.0), new(0.0)}, {new(0.5), nil, new(0.5)},
		{new(0.5), new(0.25), new(0.5)}, {new(0.5), new(0.5), new(0.5)}, {new(0.5), new(0.75), new(0.75)},
	} {
		l := Load{Others: c.was}
		l.Raise(c.others)
		if (l.Others == nil) != (c.want == nil) || c.want != nil && *l.Others != *c.want {
			t.Errorf("%+v: %v", c, l.Others)
		}
	}
}
