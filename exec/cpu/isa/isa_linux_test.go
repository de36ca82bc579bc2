package isa

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestAgainstLinux compares the detected sets with /proc/cpuinfo. Kernels of a set that is not detected
// would be neither used nor tested.
func TestAgainstLinux(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	word := map[string]string{"amd64": "flags", "arm64": "Features"}[runtime.GOARCH]
	var flags []string
	for line := range strings.Lines(string(info)) {
		if name, list, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == word {
			flags = strings.Fields(list)
			break
		}
	}
	if len(flags) == 0 {
		t.Skip("/proc/cpuinfo does not list the features, or is that of the host of an emulator")
	}
	needs := map[string]string{
		"portable":   "",
		"neondot":    "asimddp",
		"avx2":       "avx2 fma f16c",
		"avx512vnni": "avx512f avx512bw avx512vl avx512_vnni",
		"amx":        "avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16",
	}
	for _, s := range Detect() {
		list, ok := needs[s.Name]
		if !ok {
			t.Errorf("%s: has no row in this test", s.Name)
		}
		want := true
		for _, flag := range strings.Fields(list) {
			want = want && slices.Contains(flags, flag)
		}
		if got := s.Has || s.Withheld; got != want {
			t.Errorf("%s: detected %v, /proc/cpuinfo has %v", s.Name, got, want)
		}
	}
}
