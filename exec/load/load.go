// Package load measures how busy the machine is with other programs. Speeds measured on a busy
// machine mean little: programs that spin at barriers, like this one, lose far more speed than
// others.
//
// It reads /proc of Linux. Elsewhere the load is not known. It imports nothing of this module.
package load

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Load describes the other work of the machine during a measurement.
type Load struct {
	Begin string `json:"begin,omitempty"` // the system's averages over 1, 5 and 15 minutes, if it reports them
	End   string `json:"end,omitempty"`

	// Others is the average number of processors that other programs kept busy, or nil if the system
	// does not report it. Time that a hypervisor gave to other machines counts too.
	Others *float64 `json:"others,omitempty"`
}

// Quiet is the largest value of Others that needs no warning.
const Quiet = 0.05

// Busy reports whether other programs used so many processors that speeds mean little, and whether
// that is known.
func (l *Load) Busy() (busy, known bool) {
	if l.Others == nil {
		return false, false
	}
	return *l.Others > Quiet, true
}

// Raise raises Others to a number of processors of another measurement, nil if that is not known, so that it
// becomes the largest one.
func (l *Load) Raise(others *float64) {
	if others != nil && (l.Others == nil || *others > *l.Others) {
		l.Others = others
	}
}

// A Watch measures the load from its start on.
type Watch struct {
	load  Load
	start time.Time
	busy  time.Duration // of all processors, at the start
	known bool
	own   time.Duration // processor time of this process at the start
}

// Start starts a watch.
func Start() *Watch {
	w := &Watch{start: time.Now()}
	w.load.Begin = average()
	w.busy, w.known = busyTime()
	w.own = Own()
	return w
}

// resolution is the largest inconsistency of the system's counters, a few of its ticks.
const resolution = 30 * time.Millisecond

// Stop returns the load. measured is the processor time of the measured programs.
func (w *Watch) Stop(measured time.Duration) Load {
	w.load.End = average()
	if busy, ok := busyTime(); ok && w.known {
		others := max(0, (busy-w.busy-measured-resolution).Seconds()/time.Since(w.start).Seconds())
		w.load.Others = &others
	}
	return w.load
}

// StopOwn is Stop with the processor time of this process since the start.
func (w *Watch) StopOwn() Load { return w.Stop(Own() - w.own) }

// Own returns the processor time of this process, 0 if the system does not report it.
func Own() time.Duration {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	return parseOwn(text)
}

// parseOwn reads /proc/self/stat (proc(5)). The name of the program is in parentheses and may contain
// anything; after it come a letter, ten numbers, and the times in user and kernel mode in hundredths of a
// second.
func parseOwn(text []byte) time.Duration {
	words := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const user, kernel = 11, 12
	if len(words) <= kernel {
		return 0
	}
	a, err1 := strconv.ParseInt(words[user], 10, 64)
	b, err2 := strconv.ParseInt(words[kernel], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(a+b) * tick
}

// tick is the unit of times in /proc: USER_HZ is 100 on all platforms of Go.
const tick = time.Second / 100

// average returns the system's three averages, "" if it does not report them.
func average() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// busyTime returns the total busy time of all processors since the system started.
func busyTime() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	return parseStat(text)
}

// parseStat reads the first line of /proc/stat, in hundredths of a second (proc(5)): user, nice,
// system, idle, iowait, irq, softirq, steal. The guest times after them are part of user.
func parseStat(text []byte) (time.Duration, bool) {
	const (
		idle, iowait = 3, 4
		counters     = 8
	)
	s := bufio.NewScanner(bytes.NewReader(text))
	if !s.Scan() {
		return 0, false
	}
	words := strings.Fields(s.Text())
	if len(words) < 1+counters || words[0] != "cpu" {
		return 0, false
	}
	var ticks int64
	for i, word := range words[1 : 1+counters] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, false
		}
		if i != idle && i != iowait {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, true
}
