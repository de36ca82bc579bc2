package cpu

import (
	"os"
	"strconv"
	"strings"
)

// A RAM is the memory in bytes that the machine has, or this process may take of it. It is zero where the
// system does not tell.
type RAM struct {
	Total     int64 `json:"total"`
	Available int64 `json:"available"` // without swapping; what is cached of files counts
}

// DetectRAM asks the system, which tells on Linux (proc(5), /proc/meminfo), and heeds the limits of control
// groups, such as a container's.
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

// Resident returns the bytes of memory that this process has resident, and the most it had; 0 and
// 0 where the system does not tell (proc(5), /proc/pid/status).
func Resident() (now, peak int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	now, _ = kibibytes(string(text), "VmRSS:")
	peak, _ = kibibytes(string(text), "VmHWM:")
	return now, peak
}

// kibibytes returns, in bytes, what a line such as "MemTotal:  1024 kB" says after its name.
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
