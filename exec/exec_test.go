package exec_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/lower"
)

// mixed lists the weight types with integer kernels, so that models with them run every integer
// kernel.
var mixed = []quant.Type{quant.Q4_0, quant.Q5_0, quant.Q8_0, quant.Q4_1, quant.Q5_1, quant.F16, quant.F32}

var configs = map[string]tiny.Config{
	"llama":   {Arch: "llama", Types: mixed, Tied: true},
	"qwen2":   {Arch: "qwen2", Types: mixed, Heads: 6, HeadDim: 32, KVHeads: 1},
	"k-quant": {Arch: "qwen2", Embd: 256, FF: 512, Heads: 4, Types: []quant.Type{quant.Q4_K, quant.Q5_K, quant.Q6_K}},
	"gemma3":  {Arch: "gemma3", Types: mixed, Layers: 7, Window: 20, HeadDim: 32, KVHeads: 1, Tied: true},
}

func load(t rapid.TB, c tiny.Config) *frontend.Model {
	t.Helper()
	m, err := frontend.Load(tiny.File(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bestISA returns the default instruction set of tests, at most the one in PESTI_ISA.
func bestISA(t testing.TB) string {
	t.Helper()
	testenv.Inputs(t)
	best, err := exec.BestISA(os.Getenv("PESTI_ISA"))
	if err != nil {
		t.Fatal(err)
	}
	return best
}

func compile(t testing.TB, m *frontend.Model, o lower.Options) *lower.Result {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 3
	}
	if o.ISA == "" {
		o.ISA = bestISA(t)
	}
	r, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t testing.TB, m *frontend.Model, p *plan.Plan, threads int) *exec.Engine {
	t.Helper()
	e, err := exec.Open(p, m.File, exec.Options{Threads: threads, Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func session(t testing.TB, e *exec.Engine) *exec.Session {
	t.Helper()
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func prompt(n int) []int32 {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(250))
	}
	return ids
}

func feed(t testing.TB, s *exec.Session, ids []int32) []float32 {
	t.Helper()
	logits, err := s.Feed(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// interpret evaluates the unfused graph with the reference functions and returns the logits of
// the last token.
func interpret(t *testing.T, m *frontend.Model, g *graph.Graph, ids []int32) []float32 {
	t.Helper()
	logits, err := graphtest.LastLogits(g, graphtest.FromFile(m.File), ids)
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// apart returns the largest difference of two vectors relative to the largest element.
func apart(a, b []float32) float64 {
	var worst, size float64
	for i := range a {
		d := math.Abs(float64(a[i] - b[i]))
		if d != d {
			return math.Inf(1)
		}
		worst, size = max(worst, d), max(size, math.Abs(float64(b[i])))
	}
	return worst / size
}

// TestAgainstInterpreter checks plans, fused and not, against the graph's reference semantics.
func TestAgainstInterpreter(t *testing.T) {
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			m := load(t, c)
			ids := prompt(45)
			var want []float32
			for _, o := range []lower.Options{
				{Precision: "exact"},
				{Precision: "exact", Passes: "none"},
				{Precision: "exact", Passes: "-fuse_attention", Ubatch: 40},
				{Precision: "exact", Passes: "-choose_kernels"},
				{Precision: "fast", KV: "f32", Activations: "q8x2"},
				{Precision: "fast", KV: "f32", Activations: "q8"},
				{Precision: "fast", KV: "f32", Activations: "mixed"},
				{Precision: "fast", Activations: "q8x2"},
			} {
				r := compile(t, m, o)
				if want == nil {
					want = interpret(t, m, r.Built, ids)
				}
				got := feed(t, session(t, open(t, m, r.Plan, 2)), ids)
				limit := 1e-5
				switch {
				case o.Activations == "q8" || o.Activations == "mixed":
					limit = 0.1 // some or all activations in 8 bits, whose rounding step is 128 times as large
				case o.Precision == "fast" && o.KV == "":
					limit = 5e-3 // a float16 cache
				case o.Precision == "fast":
					limit = 1e-3 // 15-bit activations
				}
				if d := apart(got, want); d > limit {
					t.Errorf("%+v: logits are %g apart from the interpreter's, expected up to %g", o, d, limit)
				}
			}
		})
	}
}

// TestSameBits checks that neither the number of workers, nor the cut of the prompt, nor the
// program changes a bit.
func TestSameBits(t *testing.T) {
	for name, c := range configs {
		for _, o := range []lower.Options{{Precision: "exact"}, {Precision: "fast", Activations: "q8x2"}, {Precision: "fast", Activations: "q8"}, {Precision: "fast", Activations: "mixed"}} {
			t.Run(name+" "+o.Precision+o.Activations, func(t *testing.T) {
				m := load(t, c)
				ids := prompt(70)
				var want []float32
				ubatches := []int64{512, 64, 33, 7, 1}
				if testing.Short() { // slow under the race detector
					ubatches = []int64{64, 7}
				}
				for _, ubatch := range ubatches {
					o.Ubatch = ubatch
					p := compile(t, m, o).Plan
					for threads := 1; threads <= 3; threads++ {
						got := feed(t, session(t, open(t, m, p, threads)), ids)
						if want == nil {
							want = got
						}
						if !slices.Equal(got, want) {
							t.Errorf("ubatch %d on %d threads: logits differ", ubatch, threads)
						}
					}
				}
			})
		}
	}
}

// TestSequences runs two sequences in the same batches and checks that each has the bits that it
// has alone.
func TestSequences(t *testing.T) {
	m := load(t, configs["gemma3"])
	p := compile(t, m, lower.Options{Sequences: 3, Ubatch: 64}).Plan
	a, b := prompt(60), prompt(90)[60:]
	alone := func(ids []int32) []float32 { return feed(t, session(t, open(t, m, p, 1)), ids) }
	wantA, wantB := alone(a), alone(b)

	e := open(t, m, p, 2)
	var at [2]int
	for at[0] < len(a) || at[1] < len(b) {
		var batch exec.Batch
		for seq, ids := range [][]int32{a, b} {
			n := min([]int{7, 3}[seq], len(ids)-at[seq])
			for range n {
				batch.Tokens = append(batch.Tokens, ids[at[seq]])
				batch.Pos = append(batch.Pos, int32(at[seq]))
				batch.Seq = append(batch.Seq, int32(2-seq)) // slots 2 and 1
				at[seq]++
			}
			if n > 0 && at[seq] == len(ids) {
				batch.Rows = append(batch.Rows, int32(len(batch.Tokens)-1))
			}
		}
		if err := e.Forward(context.Background(), &batch); err != nil {
			t.Fatal(err)
		}
		for r, row := range batch.Rows {
			want := wantA
			if batch.Seq[row] == 1 {
				want = wantB
			}
			if !slices.Equal(e.Logits(r), want) {
				t.Errorf("sequence %d differs from itself alone", batch.Seq[row])
			}
		}
	}
}

// TestSessions opens, fills, truncates, resets and closes sessions.
func TestSessions(t *testing.T) {
	m := load(t, configs["qwen2"])
	e := open(t, m, compile(t, m, lower.Options{Sequences: 2, Ubatch: 16, Ctx: 80}).Plan, 1)
	first, second := session(t, e), session(t, e)
	if _, err := exec.NewSession(e); err == nil || !strings.Contains(err.Error(), "all 2 sequences of the plan are in use") {
		t.Errorf("a third session of two: error %v", err)
	}
	ids := prompt(75)
	want := feed(t, first, ids)
	feed(t, second, ids[:10]) // pages of the two alternate from here on
	for _, n := range []int{74, 40, 16, 1, 0} {
		if err := first.Truncate(n); err != nil {
			t.Fatal(err)
		}
		if first.Pos() != n {
			t.Errorf("position %d after truncation to %d", first.Pos(), n)
		}
		feed(t, second, ids[second.Pos():second.Pos()+13])
		if got := feed(t, first, ids[n:]); !slices.Equal(got, want) {
			t.Errorf("truncated to %d and fed again: logits differ", n)
		}
	}
	for _, n := range []int{-1, 76} {
		if err := first.Truncate(n); err == nil {
			t.Errorf("truncating 75 positions to %d: no error", n)
		}
	}
	first.Reset()
	if got := feed(t, first, ids); first.Pos() != 75 || !slices.Equal(got, want) {
		t.Errorf("after a reset: position %d, or logits differ", first.Pos())
	}
	first.Close()
	if again := session(t, e); again.Pos() != 0 {
		t.Errorf("a new session begins at %d", again.Pos())
	}
}

// TestClosed checks that a closed session does not affect the session that now has its sequence.
func TestClosed(t *testing.T) {
	m := load(t, configs["llama"])
	e := open(t, m, compile(t, m, lower.Options{Ubatch: 16}).Plan, 1)
	closed := session(t, e)
	feed(t, closed, prompt(5))
	closed.Close()
	if closed.Pos() != 0 {
		t.Errorf("closed: at position %d, expected 0", closed.Pos())
	}
	s := session(t, e)
	feed(t, s, prompt(9))
	if _, err := closed.Feed(context.Background(), prompt(1)); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("Feed: error %v, expected %v", err, exec.ErrClosed)
	}
	if err := closed.Truncate(0); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("Truncate: error %v, expected %v", err, exec.ErrClosed)
	}
	closed.Reset()
	closed.Close()
	if closed.Pos() != 0 || s.Pos() != 9 {
		t.Errorf("positions %d and %d, expected 0 of the closed session and 9", closed.Pos(), s.Pos())
	}
	if _, err := exec.NewSession(e); err == nil {
		t.Error("closing twice gave a sequence back that is in use")
	}
}

// TestFeedRefuses checks that tokens which do not fit are an error with both numbers before
// anything is computed.
func TestFeedRefuses(t *testing.T) {
	m := load(t, configs["llama"])
	e := open(t, m, compile(t, m, lower.Options{Ctx: 64, Ubatch: 16}).Plan, 1)
	s := session(t, e)
	want := feed(t, s, prompt(30))
	cases := []struct {
		ids  []int32
		want string
	}{
		{nil, "no tokens to evaluate"},
		{prompt(35), "35 tokens at position 30 do not fit the context of 64"},
		{append(prompt(20), 300), "token id 300, expected 0 to 299"},
		{append(prompt(20), -1), "token id -1, expected 0 to 299"},
	}
	for _, tc := range cases {
		if _, err := s.Feed(context.Background(), tc.ids); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d tokens: error %v, expected one with %q", len(tc.ids), err, tc.want)
		}
		if s.Pos() != 30 || !slices.Equal(e.Logits(0), want) {
			t.Errorf("%d tokens: something was computed before the error", len(tc.ids))
		}
	}
	feed(t, s, prompt(34)) // to the last position of the context
	if _, err := s.Feed(context.Background(), prompt(1)); err == nil {
		t.Error("one token more than the context: no error")
	}
}

// TestSmallestVocabulary gives one program a smaller table of embeddings than the others. Ids
// beyond it are refused, whichever program is bound last.
func TestSmallestVocabulary(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{Ubatch: 16}).Plan
	small := &p.Programs[0].Waves[0].Steps[0]
	for i := range small.Args {
		if a := &small.Args[i]; a.Role == "table" {
			a.Weight = "blk.0.attn_q.weight" // as many elements in a row
		}
	}
	for i := range small.Params {
		if v := &small.Params[i]; v.Name == "vocab" {
			v.Value = int64(64)
		}
	}
	s := session(t, open(t, m, p, 1))
	if _, err := s.Feed(context.Background(), []int32{64}); err == nil || !strings.Contains(err.Error(), "token id 64, expected 0 to 63") {
		t.Errorf("an id beyond one of the tables: error %v", err)
	}
	feed(t, s, []int32{63})
}

func TestForwardRefuses(t *testing.T) {
	m := load(t, configs["llama"])
	e := open(t, m, compile(t, m, lower.Options{Ctx: 64, Ubatch: 16, Sequences: 2}).Plan, 1)
	cases := []struct {
		batch exec.Batch
		want  string
	}{
		{exec.Batch{}, "batch of 0 tokens"},
		{exec.Batch{Tokens: []int32{1, 2}, Pos: []int32{0}, Seq: []int32{0, 0}}, "batch of 2 tokens with 1 positions and 2 sequences"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{2}}, "sequence 2, expected 0 to 1"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{-1}, Seq: []int32{0}}, "position -1, expected 0 to 63"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{64}, Seq: []int32{0}}, "position 64, expected 0 to 63"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{3}, Seq: []int32{0}}, "position 3, expected at most 0"},
		{exec.Batch{Tokens: []int32{1, 1}, Pos: []int32{0, 2}, Seq: []int32{0, 0}}, "position 2 follows 0"},
		{exec.Batch{Tokens: []int32{1, 1}, Pos: []int32{0, 0}, Seq: []int32{0, 0}}, "position 0 follows 0"},
		{exec.Batch{Tokens: []int32{1, 1, 1}, Pos: []int32{0, 0, 1}, Seq: []int32{0, 1, 0}}, "sequence 0 again"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{0}, Rows: []int32{1}}, "token 1, expected 0 to 0"},
		{exec.Batch{Tokens: make([]int32, 17), Pos: []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Seq: make([]int32, 17)}, "batch of 17 tokens and 0 rows of logits: the plan is for up to 16 and"},
		{exec.Batch{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{0}, Rows: make([]int32, 9)}, "9 rows of logits"},
	}
	for _, tc := range cases {
		if err := e.Forward(context.Background(), &tc.batch); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, expected one with %q", tc.batch, err, tc.want)
		}
	}
}

// TestWindowForgets checks, with fused and unfused attention, that a sequence can be truncated
// exactly to the positions whose window its ring still holds.
func TestWindowForgets(t *testing.T) {
	m := load(t, configs["gemma3"])
	ids := prompt(100)
	for _, passes := range []string{"", "-fuse_attention", "none"} {
		t.Run(passes, func(t *testing.T) {
			// A ring of 20 + 16 positions in whole pages: 48.
			p := compile(t, m, lower.Options{Ubatch: 16, Passes: passes, Ctx: 256}).Plan
			s := session(t, open(t, m, p, 1))
			want := feed(t, s, ids)
			if err := s.Truncate(60); err == nil || !strings.Contains(err.Error(), "cannot go back from position 100 to 60") {
				t.Errorf("back by 40 in a ring of 48 with a window of 20: error %v", err)
			}
			if s.Pos() != 100 {
				t.Errorf("position %d after a refusal, expected 100", s.Pos())
			}
			if err := s.Truncate(80); err != nil {
				t.Fatal(err)
			}
			if got := feed(t, s, ids[80:]); !slices.Equal(got, want) {
				t.Error("back by 20 and again: logits differ")
			}
			if err := s.Truncate(0); err != nil {
				t.Fatal(err)
			}
			if got := feed(t, s, ids); !slices.Equal(got, want) {
				t.Error("from the start again: logits differ")
			}
		})
	}
}

// TestWindowForgetsWhatWasOverwritten truncates twice. The second time, the ring still lacks the
// positions that the tokens removed by the first truncation had overwritten.
func TestWindowForgetsWhatWasOverwritten(t *testing.T) {
	m := load(t, configs["gemma3"])
	s := session(t, open(t, m, compile(t, m, lower.Options{Ubatch: 16}).Plan, 1))
	ids := prompt(100)
	feed(t, s, ids)
	if err := s.Truncate(80); err != nil {
		t.Fatal(err)
	}
	feed(t, s, ids[80:81])
	if err := s.Truncate(60); err == nil || !strings.Contains(err.Error(), "cannot go back from position 100 to 60") {
		t.Errorf("back to 60, where position 41 was overwritten by 89: error %v", err)
	}
	s.Reset()
	want := feed(t, s, ids[:61])
	if err := s.Truncate(60); err != nil {
		t.Fatal(err)
	}
	if got := feed(t, s, ids[60:61]); !slices.Equal(got, want) {
		t.Error("back by one after a reset: logits differ")
	}
}

// TestValue reads a block's output and checks its shape and that it changes with the tokens. The
// numbers are compared with the oracle elsewhere.
func TestValue(t *testing.T) {
	m := load(t, configs["llama"])
	r := compile(t, m, lower.Options{Precision: "exact", Outputs: []string{"blk.0.out"}})
	e := open(t, m, r.Plan, 2)
	ids := prompt(9)
	feed(t, session(t, e), ids)
	name := ""
	for _, b := range r.Plan.Buffers {
		if b.Class == plan.IO && strings.HasPrefix(b.Name, "blk.0") {
			name = b.Name
		}
	}
	v, err := e.Value(name)
	if err != nil {
		t.Fatal(err)
	}
	if v.Rows != 9 || v.Cols != 64 || len(v.Data) != 9*64 {
		t.Errorf("%s has %d elements, %d rows of %d, expected 9 of 64", name, len(v.Data), v.Rows, v.Cols)
	}
	logits, err := e.Value("logits")
	if err != nil {
		t.Fatal(err)
	}
	if logits.Rows != 1 || logits.Cols != 300 {
		t.Errorf("logits have %d rows of %d, expected 1 of 300", logits.Rows, logits.Cols)
	}
	if !slices.Equal(logits.Data, e.Logits(0)) {
		t.Error("the value logits differs from Logits")
	}
	if _, err := e.Value("blk.7.out"); err == nil || !strings.Contains(err.Error(), `value "blk.7.out": it is no output of the plan`) {
		t.Errorf("a value that is not there: error %v", err)
	}
}

// TestLogits checks that rows of logits are found by the plan's formula and not by the buffer's
// size.
func TestLogits(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{Ubatch: 16}).Plan
	batch := exec.Batch{Tokens: []int32{5, 6, 7}, Pos: []int32{0, 1, 2}, Seq: make([]int32, 3), Rows: []int32{2, 0}}
	var want [][]float32
	for _, more := range []int64{0, 4096} {
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Name == "logits" {
				b.Size += more
				p.Memory.IO += more
			}
		}
		e := open(t, m, p, 1)
		if e.Logits(0) != nil {
			t.Error("there are logits before the first step")
		}
		if err := e.Forward(context.Background(), &batch); err != nil {
			t.Fatal(err)
		}
		if e.Logits(-1) != nil || e.Logits(2) != nil || e.Logits(1000) != nil {
			t.Error("there are logits beyond the two rows asked for")
		}
		got := [][]float32{slices.Clone(e.Logits(0)), slices.Clone(e.Logits(1))}
		if want == nil {
			want = got
		}
		for r := range got {
			if len(got[r]) != 300 || !slices.Equal(got[r], want[r]) {
				t.Errorf("with %d bytes more, row %d has %d logits or differs", more, r, len(got[r]))
			}
		}
	}
}

// TestOpenRefuses checks that a plan for another model, a missing instruction set, or too many
// threads is refused with the reason.
func TestOpenRefuses(t *testing.T) {
	m := load(t, configs["llama"])
	other := configs["llama"]
	other.Seed = 7
	larger := configs["llama"]
	larger.Vocab = 310
	missing := "avx2"
	if runtime.GOARCH == "amd64" {
		missing = "neondot"
	}
	cases := []struct {
		name, want string
		file       *gguf.File
		threads    int
		change     func(p *plan.Plan)
	}{
		{"another size", "the plan is for another model: this one has", load(t, larger).File, 1, nil},
		{"another directory", "the plan is for another model: the directory of this one is sha256:", m.File, 1, func(p *plan.Plan) { p.Model.HeaderDigest = "sha256:00" }},
		{"a missing instruction set", "instruction set " + missing + ": this machine lacks", m.File, 1, func(p *plan.Plan) { p.Target.ISA = missing }},
		{"an unknown instruction set", `instruction set is "mmx"`, m.File, 1, func(p *plan.Plan) { p.Target.ISA = "mmx" }},
		{"another backend", `backend is "metal"`, m.File, 1, func(p *plan.Plan) { p.Target.Backend = "metal" }},
		{"too many threads", "4 threads, expected 1 to the 3", m.File, 4, nil},
		{"negative threads", "Threads is -1, expected 1 or more, or 0", m.File, -1, nil},
		{"a plan that does not verify", "plan: ", m.File, 1, func(p *plan.Plan) { p.Memory.Arena -= 64 }},
		{"a weight of another type", `tensor "token_embd.weight": is`, m.File, 1, func(p *plan.Plan) {
			for i := range p.Weights {
				w := &p.Weights[i]
				if w.Name != "token_embd.weight" {
					continue
				}
				w.Type = "q4_1"
				if l, ok := plan.LookupLayout(w.Layout, w.Type); ok { // the plan is valid apart from the model
					size, err := l.Size(w.Dims[0], w.Dims[1])
					if err != nil {
						t.Fatal(err)
					}
					p.Memory.Packed += size - w.Packed
					w.Packed = size
				}
			}
			for i := range p.Programs {
				for _, w := range p.Programs[i].Waves {
					for _, st := range w.Steps {
						for j := range st.Args {
							if a := &st.Args[j]; a.Weight == "token_embd.weight" {
								a.Kernel = strings.Replace(a.Kernel, "q4_0", "q4_1", 1)
							}
						}
					}
				}
			}
		}},
	}
	for _, tc := range cases {
		for _, set := range []string{"portable", bestISA(t)} { // weights as in the file, and packed
			p := compile(t, m, lower.Options{ISA: set}).Plan
			if tc.change != nil {
				tc.change(p)
			}
			_, err := exec.Open(p, tc.file, exec.Options{Threads: tc.threads})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: error %v, expected one line with %q", tc.name, set, err, tc.want)
			}
		}
	}
}

// TestCheckModel checks that the weights are compared too, not only the digests.
func TestCheckModel(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{}).Plan
	if err := exec.CheckModel(p, m.File); err != nil {
		t.Error(err)
	}
	other := configs["llama"]
	other.Seed = 7
	if err := exec.CheckModel(p, load(t, other).File); err != nil {
		t.Errorf("other weights under the same directory: error %v; they are not read here", err)
	}
	p.Weights[0].Dims[0]++
	if err := exec.CheckModel(p, m.File); err == nil || !strings.Contains(err.Error(), p.Weights[0].Name) {
		t.Errorf("a weight of other dims: error %v", err)
	}
	p.Model.Size++
	if err := exec.CheckModel(p, m.File); err == nil || !strings.Contains(err.Error(), "the plan is for another model") {
		t.Errorf("another size: error %v", err)
	}
}

// TestFileCutShort truncates a model's file while the engine has it mapped. Portable kernels read
// matrices from the mapping.
func TestFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	f := tiny.Mapped(t, tiny.Config{Arch: "llama", FF: 2048}) // several pages for each block
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, open(t, m, compile(t, m, lower.Options{ISA: "portable"}).Plan, 2))
	feed(t, s, prompt(5))
	if err := os.Truncate(f.Path, f.Size/4); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Feed(context.Background(), prompt(1)); err == nil || err.Error() != f.Path+": became shorter while it was read; open it again" {
		t.Errorf("a step on a file cut short: error %v", err)
	}
	if s.Pos() != 5 {
		t.Errorf("position %d after a step of 1 that failed at 5", s.Pos())
	}
}

// TestUnalignedFileCutShort opens a plan on a truncated file whose float32 data is unaligned, so
// that Open copies it.
func TestUnalignedFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	unaligned := 0
	for pad := range 4 {
		f := tiny.Mapped(t, tiny.Config{Arch: "llama", FF: 2048, Edit: func(m *tiny.Model) {
			m.Meta.SetUint32("general.alignment", 1)
			m.Meta.SetStr("general.name", strings.Repeat("x", pad))
		}})
		m, err := frontend.Load(f)
		if err != nil {
			t.Fatal(err)
		}
		p := compile(t, m, lower.Options{}).Plan
		feed(t, session(t, open(t, m, p, 1)), prompt(5))
		if f.Tensors()[0].Offset%4 == 0 {
			continue
		}
		unaligned++
		if err := os.Truncate(f.Path, f.Size/4); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.Open(p, f, exec.Options{}); err == nil || !strings.Contains(err.Error(), f.Path+": became shorter while it was read") {
			t.Errorf("padding of %d: error %v", pad, err)
		}
	}
	if unaligned != 3 {
		t.Errorf("%d of 4 paddings are not aligned, expected 3", unaligned)
	}
}

// TestNoAllocations checks that neither a decoded token nor a chunk of a prompt allocates.
func TestNoAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("counts take long where workers share one processor, as they do while allocations are counted")
	}
	for name, c := range configs {
		m := load(t, c)
		for _, precision := range []string{"exact", "fast"} {
			e := open(t, m, compile(t, m, lower.Options{Precision: precision, Ubatch: 64}).Plan, 2)
			s := session(t, e)
			for _, n := range []int{1, 20, 40} {
				ids := prompt(n)
				count := math.Inf(1)
				for range 4 { // the Go scheduler sometimes starts a thread, which counts as an allocation
					s.Reset()
					count = min(count, testing.AllocsPerRun(1, func() {
						if _, err := s.Feed(context.Background(), ids); err != nil {
							t.Fatal(err)
						}
					}))
				}
				if count != 0 {
					t.Errorf("%s %s: feeding %d tokens allocates %v times", name, precision, n, count)
				}
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, c := range configs {
		for _, precision := range []string{"exact", "fast"} {
			b.Run(fmt.Sprint(name, "/", precision), func(b *testing.B) {
				m := load(b, c)
				s := session(b, open(b, m, compile(b, m, lower.Options{Precision: precision}).Plan, 2))
				id := []int32{5}
				for b.Loop() {
					if s.Pos() == 200 {
						s.Reset()
					}
					feed(b, s, id)
				}
			})
		}
	}
}
