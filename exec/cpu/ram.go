package cpu

import (
	"os"
	"strconv"
	"strings"
)

// A RAM is memory in bytes: that of the machine, or the limit of this process if it is smaller. It is
// zero if the system does not report it.
type RAM struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // without swapping; includes memory that caches files
}

// Holds reports whether a number of bytes is available. It is true if the memory is unknown.
func (r RAM) Holds(bytes int64) bool { return r.Total == 0 || bytes <= r.Available }

// DetectRAM returns the memory of this machine on Linux (/proc/meminfo, see proc(5)), within the limits of
// control groups such as a container's.
func DetectRAM() RAM {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return RAM{}
	}
	return within(parseMeminfo(string(text)), os.DirFS("/"))
}

func parseMeminfo(text string) RAM {
	total, ok := kibibytes(text, "MemTotal:")
	available, also := kibibytes(text, "MemAvailable:")
	if !ok || !also {
		return RAM{}
	}
	return RAM{total, available}
}

// Resident returns the current and the peak resident memory of this process in bytes, or zeros if the
// system does not report them (/proc/pid/status, see proc(5)).
func Resident() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	now, _ = kibibytes(string(text), "VmRSS:")
	peak, _ = kibibytes(string(text), "VmHWM:")
	return now, peak
}

// kibibytes returns the value of a line such as "MemTotal:  1024 kB" in bytes.
func kibibytes(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != name || f[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		return n << 10, err == nil && n >= 0 && n < 1<<52
	}
	return 0, false
}
