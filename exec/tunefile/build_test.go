package tunefile

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pesti/conformance/testenv"
)

// The key of this process has the build ID that the go command reads from its executable.
func TestBuildID(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the note is one of ELF")
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("go", "tool", "buildid", path).Output()
	if err != nil {
		testenv.Lacks(t, err)
	}
	want := strings.TrimSpace(string(text))
	if want == "" {
		testenv.Lacks(t, "a build ID of the test")
	}
	if k := NewKey("avx2", 1); !strings.HasSuffix(k.Build, " "+want) {
		t.Errorf("the build is %q, expected it to end with %q", k.Build, want)
	}
}

// Executables without an ID differ by size and time.
func TestExecutableID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	day := time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)
	seen := map[string]string{}
	for _, c := range []struct {
		text string
		at   time.Time
	}{{"", day}, {"\x7fELF", day}, {"MZ program", day}, {"MZ program, larger", day}, {"MZ program", day.Add(time.Second)}} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, c.at, c.at); err != nil {
			t.Fatal(err)
		}
		got := executableID(path)
		if other, twice := seen[got]; twice || got == "" {
			t.Errorf("%q of %v: %q, like %q", c.text, c.at, got, other)
		}
		seen[got] = c.text
	}
	if got := executableID(path + ".missing"); got != "" {
		t.Errorf("a missing file: %q", got)
	}
}
