package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	"pesti/gguf"
)

// overwriting are command lines of all verbs that write files: MODEL is read, OUT is written. For a
// verb that chooses file names itself, one of its files is a link to OUT.
var overwriting = []struct {
	args, ext, link string
	models          bool // it writes a model, which may replace another
}{
	{args: "compile MODEL -o OUT"},
	{args: "compile MODEL -o FREE --dump DIR", link: "index.html"},
	{args: "inspect MODEL --extract output_norm.weight -o OUT"},
	{args: "dot MODEL -o OUT", ext: ".dot"},
	{args: "dot MODEL --view memory -o OUT", ext: ".svg"},
	{args: "dump MODEL --ids 1,2 -o DIR", link: "tokens.npy"},
	{args: "dump MODEL --ids 1,2 -o DIR", link: "layer_01.npy"},
	{args: "convert MODEL --type f16 -o OUT", models: true},
	{args: "quantize MODEL --type fp8_e4m3 -o OUT"},
}

// No verb overwrites the model that it reads, under any of its names, nor replaces a model by
// another kind of file.
func TestNoModelIsLost(t *testing.T) {
	f, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]bool{}
	for _, c := range overwriting {
		writes[strings.Fields(c.args)[0]] = true
		for _, what := range []string{"itself", "link to itself", "second shard", "other model"} {
			t.Run(c.args+" "+c.link+" "+what, func(t *testing.T) {
				dir := t.TempDir()
				path := func(name string) string { return filepath.Join(dir, name) }
				model := path("model" + c.ext)
				saveFile(t, model, string(demo.GGUF()))
				out := model
				switch what {
				case "link to itself":
					out = path("link" + c.ext)
					link(t, model, out)
				case "second shard":
					paths := writeShards(t, f, path("split"))
					model, out = paths[0], path("link"+c.ext)
					link(t, paths[1], out)
				case "other model":
					out = path("other" + c.ext)
					saveFile(t, out, string(demo.GGUF()))
				}
				if c.link != "" {
					if err := os.Mkdir(path("dir"), 0o777); err != nil {
						t.Fatal(err)
					}
					link(t, out, path("dir/"+c.link))
				}
				before := contents(t, dir)
				args := strings.Fields(c.args)
				for i, a := range args {
					args[i] = strings.NewReplacer("MODEL", model, "OUT", out, "DIR", path("dir"), "FREE", path("free")).Replace(a)
				}
				r := pesti(args...)
				if c.models && what == "other model" {
					if r.code != 0 {
						t.Errorf("exit code %d: %s", r.code, r.err)
					}
					return
				}
				r.fails(t, exitUsage, "expected another file")
				after := contents(t, dir)
				for name, text := range before {
					if after[name] != text {
						t.Errorf("%s is another file now", name)
					}
				}
				for name := range after {
					if strings.Contains(name, ".tmp") {
						t.Errorf("%s is left", name)
					}
				}
			})
		}
	}
	for _, cmd := range (&app{}).root().Commands() {
		if cmd.Flags().Lookup("output") != nil && !writes[cmd.Name()] {
			t.Errorf("%s writes files, and is not tried", cmd.Name())
		}
	}
}

// Nor does a verb overwrite a plan that it reads, except to seal it.
func TestNoPlanIsLost(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.dot")
	ok(t, "compile", "demo", "-o", plan, "-t", "1", "--ctx", "64")
	text := readFile(t, plan)
	pesti("dot", plan, "-o", plan).fails(t, exitUsage, plan+": is read by this command, expected another file to write")
	if readFile(t, plan) != text {
		t.Error("the plan is another file now")
	}
	ok(t, "plan", "verify", plan, "--seal")
	ok(t, "compile", "demo", "-o", plan) // reads no plan, so it may replace one
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		testenv.Lacks(t, err)
	}
}

// writeShards writes the model in shards and returns their paths.
func writeShards(t *testing.T, f *gguf.File, prefix string) []string {
	t.Helper()
	w := gguf.NewWriter()
	w.SetAll(f)
	for _, x := range f.Tensors() {
		w.AddTensor(x.Name, x.Type, x.Dims, f.Bytes(&x))
	}
	paths, err := w.WriteSplit(context.Background(), prefix, gguf.SplitLimit{Tensors: 20})
	if err != nil || len(paths) < 2 {
		t.Fatalf("%q, %v", paths, err)
	}
	return paths
}

// contents returns the contents of a folder's files, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range slices.DeleteFunc(entries, os.DirEntry.IsDir) {
		all[e.Name()] = readFile(t, filepath.Join(dir, e.Name()))
	}
	return all
}
