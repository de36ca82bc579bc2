package main

import (
	"os"
	"runtime"
	"strings"
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
