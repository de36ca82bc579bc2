package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuantize checks that verbs that compile accept the sidecar, that verbs that run a plan find
// it, also from another folder, and that check compares its values with gorgonia's.
func TestQuantize(t *testing.T) {
	dir := t.TempDir()
	weights, path := filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "m.plan")
	r := pesti("quantize", demoName, "--type", "fp8_e4m3", "-o", weights)
	if r.code != 0 || r.out != "" || !strings.Contains(r.err, weights+": 29 matrices in FP8_E4M3, ") {
		t.Fatalf("quantize: %+v", r)
	}
	prompt := []string{"-p", "Once upon a time", "-n", "8", "--temp", "0"}
	direct := ok(t, append([]string{"run", demoName, "--weights", weights}, prompt...)...)
	ok(t, "compile", demoName, "--weights", weights, "-o", path)
	if got := ok(t, append([]string{"run", path}, prompt...)...); got != direct {
		t.Errorf("the plan continues with %q, the model and the file with %q", got, direct)
	}
	if got := ok(t, "plan", "show", path); !strings.Contains(got, "w.safetensors, 2.7 MiB") {
		t.Errorf("plan show tells nothing of the file:\n%s", got)
	}
	var shown struct{ Sidecar string }
	if err := json.Unmarshal([]byte(ok(t, "plan", "show", path, "--json")), &shown); err != nil || shown.Sidecar != "w.safetensors" {
		t.Errorf("plan show --json has sidecar %q, %v", shown.Sidecar, err)
	}
	ok(t, "plan", "verify", path, "--model", demoName)
	ok(t, "check", demoName, "--weights", weights, "-p", "Once upon")
	ok(t, "check", path, "-p", "Once upon")
	if got := ok(t, "compare", demoName, demoName, "--but", "weights="+weights, "-p", "Once upon a time"); !strings.Contains(got, "(weights=") {
		t.Errorf("compare does not say what B is:\n%s", got)
	}
	ok(t, "inspect", demoName, "--memory", "--weights", weights, "--ctx", "64")
	ok(t, "dot", demoName, "--weights", weights, "-o", filepath.Join(dir, "p.dot"))

	// The sidecar was moved, and --weights names it.
	moved := filepath.Join(t.TempDir(), "elsewhere.safetensors")
	if err := os.Rename(weights, moved); err != nil {
		t.Fatal(err)
	}
	if r := pesti(append([]string{"run", path}, prompt...)...); r.code != exitError || !strings.Contains(r.err, "its weights: "+weights) || !strings.Contains(r.err, "--weights") {
		t.Errorf("a plan whose weights are gone: %+v", r)
	}
	if got := ok(t, append([]string{"run", path, "--weights", moved}, prompt...)...); got != direct {
		t.Errorf("with the moved file it continues with %q, expected %q", got, direct)
	}
}

// TestQuantizeBad passes files to --weights that are no sidecars of this model.
func TestQuantizeBad(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ok(t, "quantize", demoName, "--type", "fp8_e4m3", "-o", at("good"))
	other := at("other.gguf")
	ok(t, "convert", demoName, "--type", "q8_0", "-o", other)
	ok(t, "quantize", other, "--type", "fp8_e4m3", "-o", at("other"))
	good, err := os.ReadFile(at("good"))
	if err != nil {
		t.Fatal(err)
	}
	saveFile(t, at("cut"), string(good[:len(good)-100]))
	saveFile(t, at("empty"), "")
	changed := append([]byte{}, good...)
	changed[len(changed)-1] ^= 1
	saveFile(t, at("changed"), string(changed))
	ok(t, "compile", demoName, "--weights", at("good"), "-o", at("m.plan"))
	ok(t, "compile", demoName, "-o", at("plain.plan"))

	// Another fine-tune has the same header and differs only in the weights.
	tuned := demoFile(t, func(b []byte) { b[len(b)-1000] ^= 1 })
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"quantize demo -o x", exitUsage, "expected --type fp8_e4m3"},
		{"quantize demo --type q4_0 -o x", exitUsage, "fp8_e4m3"},
		{"quantize demo --type fp8_e4m3", exitUsage, "expected -o"},
		{"quantize " + tuned + " --type fp8_e4m3 -o " + tuned, exitUsage, "expected another file"},
		{"compile demo -o x.plan --weights " + at("none"), exitError, at("none") + ": cannot be opened"},
		{"compile demo -o x.plan --weights " + at("empty"), exitError, "truncated: the file is empty"},
		{"compile demo -o x.plan --weights " + at("cut"), exitError, "truncated: has "},
		{"compile demo -o x.plan --weights " + other, exitError, "expected a safetensors file"},
		{"compile demo -o x.plan --weights " + at("other"), exitError, "is for another model than demo"},
		{"compile " + tuned + " -o x.plan --weights " + at("good"), exitError, "was made from other weights than the model's"},
		{"run demo -p a --weights " + at("cut"), exitError, "truncated"},
		{"run " + at("m.plan") + " -p a --weights " + at("other"), exitError, "is for another model"},
		{"run " + at("plain.plan") + " -p a --weights " + at("good"), exitUsage, "all weights in the model"},
		{"plan verify " + at("m.plan") + " --weights " + at("good"), exitUsage, "--model"},
		{"plan verify " + at("m.plan") + " --model demo --weights " + at("changed"), exitError, "they changed since it was compiled"},
		{"compile demo -o " + at("good") + " --weights " + at("good"), exitUsage, "is read by this command"},
	} {
		r := pesti(strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit code %d, expected %d and %q:\n%s", c.args, r.code, c.code, c.want, r.err)
		}
	}
}
