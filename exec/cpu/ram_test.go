package cpu

import (
	"runtime"
	"testing"
)

func TestParseMeminfo(t *testing.T) {
	for text, want := range map[string]RAM{
		"":                                       {},
		"MemTotal:       1000 kB\n":              {},
		"MemAvailable:   10 kB\n":                {},
		"MemTotal: x kB\nMemAvailable: 10 kB\n":  {},
		"MemTotal: -1 kB\nMemAvailable: 10 kB\n": {},
		"MemTotal: 9000000000000000000 kB\nMemAvailable: 10 kB\n":  {},
		"MemTotal: 20\nMemAvailable: 10 kB\n":                      {},
		"MemTotal:  20 kB\nMemFree: 1 kB\nMemAvailable:\t10 kB":    {20 << 10, 10 << 10},
		"HugeMemTotal: 7 kB\nMemTotal: 0 kB\nMemAvailable: 0 kB\n": {},
	} {
		if got := parseMeminfo(text); got != want {
			t.Errorf("%q: %+v, expected %+v", text, got, want)
		}
	}
}

// TestResident checks that the numbers of this machine are plausible, and that written memory is resident.
func TestResident(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not report resident memory")
	}
	ram := DetectRAM()
	if ram.Total < 64<<20 || ram.Available <= 0 || ram.Available > ram.Total {
		t.Errorf("the machine has %+v", ram)
	}
	const size = 32 << 20
	before, _ := Resident()
	m, err := Allocate(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	mapped, _ := Resident()
	for i := 0; i < size; i += 4096 {
		m.Data[i] = 1
	}
	now, peak := Resident()
	if now-mapped < size*9/10 && now-before < size*9/10 || peak < now {
		t.Errorf("%d bytes written: resident %d, then %d, then %d, at most %d", size, before, mapped, now, peak)
	}
}
