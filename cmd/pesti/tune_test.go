package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pesti/exec"
	"pesti/exec/tunefile"
)

// The table has each type of weights with its order; the demo has too few weights to measure.
func TestTuneVerb(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tune.json")
	out := ok(t, "tune", "demo", "--tune", file)
	if !strings.Contains(out, "not measured: fewer than 32.0 MiB") && !strings.Contains(out, "no weights with a choice of order") {
		t.Errorf("tune demo prints %q", out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("tune demo keeps choices that it did not measure")
	}
	if out := ok(t, "tune", "demo", "--isa", "portable"); out != "no weights with a choice of order on portable\n" {
		t.Errorf("tune demo --isa portable prints %q", out)
	}
	if out := ok(t, "tune", "--isa", "portable"); out != "no weights with a choice of order on portable\n" {
		t.Errorf("tune --isa portable prints %q", out)
	}
	pesti("tune", "--target", "cuda").fails(t, exitUsage, "expected cpu")
	pesti("tune", "--model", "x").fails(t, exitUsage, "there is no PLAN")
	r := decoded[struct {
		Key   tunefile.Key
		Types []exec.Tuned
	}](t, "tune", "demo", "--json", "--tune", file)
	if r.Key.Threads < 1 || r.Key.ISA == "" || r.Key.Processor == "" {
		t.Errorf("tune --json prints %+v", r)
	}
}

// A file that --tune names must be valid and for this machine. A file in the cache is replaced, with a notice.
func TestTuneFiles(t *testing.T) {
	dir := t.TempDir()
	run := func(env map[string]string, more ...string) result {
		return call{args: append([]string{"run", "-p", "Once", "-n", "3", "--temp", "0"}, more...), env: env}.run()
	}
	want := run(nil)
	if want.code != 0 {
		t.Fatal(want.err)
	}
	damaged, foreign, missing := filepath.Join(dir, "damaged"), filepath.Join(dir, "foreign"), filepath.Join(dir, "missing")
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	measured := exec.Tuned{Type: "q4_k", Order: "one-stream", Tried: []exec.TunedOrder{{Order: "one-stream", GBs: 1}}}
	if err := tunefile.Save(foreign, tunefile.Key{Processor: "another"}, []exec.Tuned{measured}); err != nil {
		t.Fatal(err)
	}
	run(nil, "--tune", damaged).fails(t, exitError, damaged+": is damaged or no tune file (unexpected EOF); delete it")
	run(nil, "--tune", foreign).fails(t, exitError, foreign+": was measured for something else: another")
	if r := run(map[string]string{tuneVariable: foreign}); r.code != 0 || r.out != want.out || !strings.Contains(r.err, foreign+": was measured for") {
		t.Errorf("%s=%s: exit code %d, %q, %s", tuneVariable, foreign, r.code, r.out, r.err)
	}
	run(nil, "--tune", dir).fails(t, exitError, dir+": is not a regular file")
	run(nil, "--tune", missing, "--trace", missing).fails(t, exitUsage, "--tune and another flag both name "+missing)
	model := demoFile(t, nil)
	before, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	call{args: []string{"tune", model, "--tune", model}}.run().fails(t, exitError, model+": is damaged or no tune file")
	call{args: []string{"tune", model}, env: map[string]string{tuneVariable: model}}.run().fails(t, exitError, model+": is damaged or no tune file")
	if after, err := os.ReadFile(model); err != nil || !bytes.Equal(after, before) {
		t.Errorf("tune replaced a model, %v", err)
	}
	for _, args := range [][]string{{"--tune", missing}, {"--tune", "off"}} {
		if r := run(nil, args...); r.code != 0 || r.out != want.out || r.err != "" {
			t.Errorf("%q: exit code %d, %q, %s", args, r.code, r.out, r.err)
		}
	}

	if out := ok(t, "tune", "demo", "--json", "--tune", "off"); !strings.Contains(out, `"threads":`) || strings.Contains(out, `"threads": 0`) {
		t.Errorf("tune --tune off prints %s", out)
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	best, err := exec.BestISA("")
	if err != nil {
		t.Fatal(err)
	}
	key := tunefile.NewKey(best, 1)
	path, err := tunefile.Path(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := tunefile.Save(path, key, []exec.Tuned{measured}); err != nil {
		t.Fatal(err)
	}
	inCache := map[string]string{tuneVariable: ""}
	forInfo := tunefile.NewKey(best, exec.DefaultThreads())
	if path, err := tunefile.Path(forInfo); err != nil || tunefile.Save(path, forInfo, []exec.Tuned{measured}) != nil {
		t.Fatal(err)
	}
	if r := (call{args: []string{"info"}, env: inCache}).run(); !strings.Contains(r.out, "q4_k: one-stream (") {
		t.Errorf("info does not say what was measured: %s%s", r.out, r.err)
	}
	if out := ok(t, "info"); !strings.Contains(out, "no: PESTI_TUNE is off") {
		t.Errorf("info without tuning: %s", out)
	}
	if r := run(inCache, "-t", "1"); r.code != 0 || r.out != want.out || r.err != "" {
		t.Errorf("with choices in the cache: exit code %d, %q, %s", r.code, r.out, r.err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(inCache, "-t", "1"); r.code != 0 || r.out != want.out || !strings.Contains(r.err, path+": is damaged") {
		t.Errorf("with a damaged file in the cache: exit code %d, %q, %s", r.code, r.out, r.err)
	}
}
