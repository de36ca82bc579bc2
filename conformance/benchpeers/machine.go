package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A machine describes where the measurements were made.
type machine struct {
	Processor string `json:"processor"`
	CPUs      int    `json:"cpus"`
	System    string `json:"system"`
	Governor  string `json:"governor,omitempty"` // of the clock frequency, if the system reports it
}

func thisMachine() machine {
	m := machine{Processor: runtime.GOARCH, CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); err == nil {
		m.Governor = strings.TrimSpace(string(text))
	}
	return m
}

// A load describes the other work of the machine.
type load struct {
	Begin string `json:"begin,omitempty"` // the system's averages over 1, 5 and 15 minutes, if it reports them
	End   string `json:"end,omitempty"`

	// Others is the average number of processors that other programs kept busy, or nil if the system
	// does not report it.
	Others *float64 `json:"others,omitempty"`
}

// quiet is the largest value of Others that needs no warning.
const quiet = 0.05

// busy reports whether other programs used so much that speeds mean little, and whether that is
// known.
func (l *load) busy() (busy, known bool) {
	if l.Others == nil {
		return false, false
	}
	return *l.Others > quiet, true
}

// A watch measures how busy the machine is, from its start on.
type watch struct {
	load
	start time.Time
	busy  time.Duration // of all processors, at the start
	known bool
}

func startWatch() *watch {
	w := &watch{start: time.Now()}
	w.Begin = loadAverage()
	w.busy, w.known = busyTime()
	return w
}

// stop returns the load. measured is the processor time of the measured programs.
func (w *watch) stop(measured time.Duration) load {
	w.End = loadAverage()
	if busy, ok := busyTime(); ok && w.known {
		others := max(0, (busy-w.busy-measured).Seconds()/time.Since(w.start).Seconds())
		w.Others = &others
	}
	return w.load
}

// loadAverage returns the system's three averages, "" if it does not report them.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// busyTime returns how long all processors were busy since the system started.
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
	return time.Duration(ticks) * time.Second / 100, true
}
