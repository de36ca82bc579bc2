package conformance

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/graph"
	"pesti/lower"
)

// models are the models that every proof runs on.
var models = append([]string{"demo"}, testenv.Models[:]...)

// A model is an open model.
type model struct {
	name string
	path string // a file, so that the oracle can read it too
	file *gguf.File
}

// openModel opens a model by its name.
func openModel(t testing.TB, name string) *model {
	t.Helper()
	var path string
	if name == "demo" {
		path = filepath.Join(t.TempDir(), "demo.gguf")
		if err := os.WriteFile(path, demo.GGUF(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else {
		path = testenv.Model(t, name)
	}
	return openFile(t, name, path)
}

func openFile(t testing.TB, name, path string) *model {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &model{name, path, f}
}

// prompt returns the ids of a prompt of testdata/prompts.json.
func (m *model) prompt(t testing.TB, name string) []int32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "prompts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var prompts map[string]string
	if err := json.Unmarshal(text, &prompts); err != nil {
		t.Fatal(err)
	}
	if prompts[name] == "" {
		t.Fatalf("no prompt %q", name)
	}
	return m.encode(t, prompts[name])
}

func (m *model) encode(t testing.TB, text string) []int32 {
	t.Helper()
	tok, err := tokenizer.FromGGUF(m.file)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(t.Context(), []byte(text), tokenizer.Options{BOS: true, ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// engine compiles the model and opens the plan. If edit is not nil it changes the graph first; an
// edit needs ubatch and rows to be set, and one sequence. Plans for CUDA devices run on the virtual
// device.
func (m *model) engine(t testing.TB, o lower.Options, run exec.Options, edit func(*graph.Graph)) *exec.Engine {
	t.Helper()
	loaded, err := frontend.Load(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if o.Ctx == 0 {
		o.Ctx = min(512, loaded.Params.Context)
	}
	if o.Target == plan.CUDA {
		o.Threads = 0
		run.Driver = virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, max(o.Devices, 1))})
	} else if o.ISA == "" { // the default for users
		if o.ISA, err = exec.BestISA(os.Getenv("PESTI_ISA")); err != nil {
			t.Fatal(err)
		}
	}
	run.Sidecar = o.Sidecar
	compile := lower.Compile
	if edit != nil {
		compile = func(loaded *frontend.Model, o lower.Options) (*lower.Result, error) {
			g, err := loaded.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: 1, Rows: o.Rows, Context: o.Ctx})
			if err != nil {
				return nil, err
			}
			edit(g)
			return lower.CompileGraph(loaded, g, o)
		}
	}
	res, err := compile(loaded, o)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.Open(res.Plan, m.file, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// session returns a session of an engine for one sequence, without an edit.
func (m *model) session(t testing.TB, o lower.Options) *exec.Session {
	t.Helper()
	s, err := exec.NewSession(m.engine(t, o, exec.Options{Poison: true}, nil))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An ourPass is one forward pass of PESTI, position by position.
type ourPass struct {
	layers [][][]float32 // by layer, position, dim
	logits [][]float32
}

// pass runs ids in precision exact, in chunks of ubatch, and collects the residual stream after
// each block and the logits of every position. between is called after each chunk.
func (m *model) pass(t testing.TB, ids []int32, ubatch int, edit func(*graph.Graph), between func(*exec.Engine)) *ourPass {
	t.Helper()
	return m.collect(t, ids, lower.Options{Ubatch: int64(ubatch)}, len(ids), edit, between)
}

// last is pass with the logits of the last rows positions only. They must all be in the last chunk.
func (m *model) last(t testing.TB, ids []int32, ubatch, rows int) *ourPass {
	t.Helper()
	return m.collect(t, ids, lower.Options{Ubatch: int64(ubatch)}, rows, nil, nil)
}

// collect is pass with options and with the logits of the last rows positions only. Of the options
// it uses target, ubatch, passes and devices.
func (m *model) collect(t testing.TB, ids []int32, o lower.Options, rows int, edit func(*graph.Graph), between func(*exec.Engine)) *ourPass {
	t.Helper()
	ubatch := min(int(o.Ubatch), len(ids))
	o.Precision, o.Ubatch, o.Rows, o.Sequences = "exact", int64(ubatch), int64(min(ubatch, rows)), 1
	o.Threads, o.Ctx, o.Outputs = 2, int64(len(ids)), []string{"blk.*.out"}
	e := m.engine(t, o, exec.Options{Poison: true}, edit)
	var p ourPass
	for l := 0; hasOutput(e.Plan(), l); l++ {
		p.layers = append(p.layers, nil)
	}
	if len(p.layers) == 0 {
		t.Fatal("the plan has no outputs blk.N.out")
	}
	for at := 0; at < len(ids); at += ubatch {
		chunk := ids[at:min(at+ubatch, len(ids))]
		var b exec.Batch
		for i, id := range chunk {
			b.Tokens, b.Pos, b.Seq = append(b.Tokens, id), append(b.Pos, int32(at+i)), append(b.Seq, 0)
			if at+i >= len(ids)-rows {
				b.Rows = append(b.Rows, int32(i))
			}
		}
		if err := e.Forward(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		for l := range p.layers {
			v, err := e.Value(layerOut(l))
			if err != nil {
				t.Fatal(err)
			}
			if v.Rows != len(chunk) {
				t.Fatalf("%s has %d rows for %d tokens", layerOut(l), v.Rows, len(chunk))
			}
			for row := range slices.Chunk(v.Data, v.Cols) {
				p.layers[l] = append(p.layers[l], row)
			}
		}
		for i := range b.Rows {
			p.logits = append(p.logits, slices.Clone(e.Logits(i)))
		}
		if between != nil {
			between(e)
		}
	}
	return &p
}

func layerOut(l int) string { return "blk." + itoa(l) + ".out" }

func hasOutput(p *plan.Plan, l int) bool {
	return slices.ContainsFunc(p.Buffers, func(b plan.Buffer) bool { return b.Class == plan.IO && b.Name == layerOut(l) })
}

// greedy continues ids by n tokens, each the argmax.
func (m *model) greedy(t testing.TB, ids []int32, n int, o lower.Options) []int32 {
	t.Helper()
	s := m.session(t, o)
	out := slices.Clone(ids)
	for fresh := ids; len(out) < len(ids)+n; fresh = out[len(out)-1:] {
		logits, err := s.Feed(context.Background(), fresh)
		if err != nil {
			t.Fatal(err)
		}
		best, _ := metrics.Top(logits)
		out = append(out, int32(best))
	}
	return out
}
