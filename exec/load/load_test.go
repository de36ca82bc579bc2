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
