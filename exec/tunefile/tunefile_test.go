package tunefile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pesti/exec"
)

var key = Key{"processor", "avx512vnni", 2, "build"}

func tuned(kind, order string) exec.Tuned {
	return exec.Tuned{Type: kind, Order: order, Tried: []exec.TunedOrder{{Order: order, GBs: 1}}}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "tune.json")
	if got, err := Load(path, key); err != nil || got != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
	if err := Save(path, key, []exec.Tuned{{Type: "q4_0", Order: "one-stream"}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a choice that was not measured is saved")
	}
	for _, all := range [][]exec.Tuned{{tuned("q4_k", "one-stream"), tuned("q6_k", "four-streams")}, {tuned("q4_k", "four-streams-prefetch")}} {
		if err := Save(path, key, all); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"q4_k": "four-streams-prefetch", "q6_k": "four-streams"}
	if got, err := Load(path, key); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, expected %v", got, err, want)
	}
	others, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(others) != 1 {
		t.Errorf("%d files, %v, expected one", len(others), err)
	}
	other := key
	other.Threads++
	if _, err := Load(path, other); !errors.Is(err, ErrOtherKey) || !strings.HasPrefix(err.Error(), path+": was measured for something else: processor, avx512vnni, 2 threads") {
		t.Errorf("a file of another key: %v", err)
	}
	if err := Save(path, other, []exec.Tuned{tuned("q4_k", "one-stream")}); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path, other); err != nil || len(got) != 1 {
		t.Errorf("after another key replaced the file: %v, %v", got, err)
	}
}

// A file that is damaged, or is something else, is refused and stays as it is.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tune.json")
	if err := Save(path, key, []exec.Tuned{tuned("q4_k", "one-stream")}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	for name, damaged := range map[string]string{
		"empty":            "",
		"cut":              text[:len(text)/2],
		"doubled":          text + text,
		"closed again":     text + "}",
		"unknown field":    strings.Replace(text, `"read_orders"`, `"write_orders"`, 1),
		"unknown type":     strings.Replace(text, "q4_k", "q4_x", 1),
		"another case":     strings.Replace(text, "q4_k", "Q4_K", 1),
		"unknown order":    strings.Replace(text, "one-stream", "two-streams", 1),
		"large":            strings.Repeat(" ", 1<<17) + text,
		"not text":         "\x00\xff",
		"a model":          "GGUF\x03\x00\x00\x00",
		"another language": "tune: yes",
	} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(path, key)
		if err == nil || !strings.HasPrefix(err.Error(), path+": is damaged or no tune file (") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v, expected one line with the file", name, got, err)
		}
		if saved := Save(path, key, []exec.Tuned{tuned("q6_k", "one-stream")}); saved == nil || saved.Error() != err.Error() {
			t.Errorf("%s: saving: %v, expected %v", name, saved, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != damaged {
			t.Errorf("%s: the file is %q now, %v", name, after, err)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Replace(text, `"tune_format": 1`, `"tune_format": 2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, key); !errors.Is(err, ErrOtherKey) || !strings.Contains(err.Error(), "has tune format 2, expected 1") {
		t.Errorf("another format: %v", err)
	}
	dir := t.TempDir()
	for name, err := range map[string]error{
		"a folder":     func() error { _, err := Load(dir, key); return err }(),
		"to a folder":  Save(dir, key, []exec.Tuned{tuned("q6_k", "one-stream")}),
		"below a file": Save(filepath.Join(path, "below.json"), key, []exec.Tuned{tuned("q6_k", "one-stream")}),
	} {
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	symlink := filepath.Join(dir, "symlink.json")
	if err := os.Symlink(path, symlink); err != nil {
		t.Skip(err)
	}
	if err := Save(symlink, key, []exec.Tuned{tuned("q6_k", "one-stream")}); err != nil {
		t.Error(err)
	}
	st, err := os.Lstat(symlink)
	if got, loaded := Load(path, key); err != nil || loaded != nil || st.Mode()&os.ModeSymlink == 0 || got["q6_k"] == "" {
		t.Errorf("saved through a symlink: %v, %v, %v", got, err, loaded)
	}
}

// A reader sees a whole file while others save.
func TestTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tune.json")
	if err := Save(path, key, []exec.Tuned{tuned("q4_k", "one-stream")}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if err := Save(path, key, []exec.Tuned{tuned("q4_k", "four-streams")}); err != nil {
					t.Error(err)
				}
				if got, err := Load(path, key); err != nil || len(got) != 1 {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}

func TestNewKey(t *testing.T) {
	a, b := NewKey("avx2", 2), NewKey("avx2", 3)
	if a.Processor == "" || a.Build == "" || a.Threads != 2 || a.ISA != "avx2" {
		t.Errorf("%+v", a)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	pa, errA := Path(a)
	pb, errB := Path(b)
	if errA != nil || errB != nil || pa == pb {
		t.Errorf("%s and %s, %v, %v", pa, pb, errA, errB)
	}
	b = a
	b.Build = "another"
	if pb, errB = Path(b); errB != nil || pa != pb {
		t.Errorf("files of two builds: %s and %s, %v", pa, pb, errB)
	}
}
