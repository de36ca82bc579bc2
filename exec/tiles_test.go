package exec_test

import (
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/quant"
	"pesti/lower"
)

// chunked lists models whose rows are whole tiles, one of them with window layers.
var chunked = map[string]tiny.Config{
	"llama":   {Arch: "llama", Types: mixed, Embd: 64, Tied: true},
	"k-quant": configs["k-quant"],
	"gemma3":  {Arch: "gemma3", Types: mixed, Embd: 64, Layers: 7, Window: 70, HeadDim: 32, KVHeads: 1, Tied: true},
}

// withTiles compiles a model with a program for chunks of 64 tokens, most of whose products are on
// bf16.
func withTiles(t *testing.T, name string, o lower.Options) (*exec.Engine, *plan.Plan) {
	t.Helper()
	m := load(t, chunked[name])
	o.Tiles = "on"
	p := compile(t, m, o).Plan
	g := p.Programs[len(p.Programs)-1]
	if g.Chunk != 64 || g.MinT != 64 || g.MaxT%64 != 0 {
		t.Fatalf("the last program is %s for %d to %d tokens by %d, expected tiles", g.Name, g.MinT, g.MaxT, g.Chunk)
	}
	return open(t, m, p, p.Target.Threads), p
}

// TestChunks checks that a prompt has the same bits for any ubatch and any number of workers, also
// if fed in chunks; that it runs on tiles; and that it does not if fed token by token.
func TestChunks(t *testing.T) {
	for name := range chunked {
		t.Run(name, func(t *testing.T) {
			ids := prompt(200) // three chunks and a remainder
			var want []float32
			for _, c := range []struct {
				ubatch  int64
				threads int
				cut     bool
			}{{64, 1, false}, {100, 2, true}, {128, 3, false}, {200, 2, false}, {256, 1, true}} {
				e, _ := withTiles(t, name, lower.Options{Ubatch: c.ubatch, Threads: c.threads})
				s := session(t, e)
				var got []float32
				for left := ids; len(left) > 0; {
					n := len(left)
					if c.cut {
						n = s.NextChunk(n)
					}
					got = feed(t, s, left[:n])
					left = left[n:]
				}
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v: other logits than with ubatch 64", c)
				}
			}
			m := load(t, chunked[name])
			off := session(t, open(t, m, compile(t, m, lower.Options{Tiles: "off", Ubatch: 64}).Plan, 1))
			exact := feed(t, off, ids)
			if slices.Equal(exact, want) {
				t.Error("the same logits as without tiles, expected other rounding")
			}
			if d := apart(want, exact); d > 0.05 {
				t.Errorf("%.2g apart from the logits without tiles", d)
			}
			e, _ := withTiles(t, name, lower.Options{Ubatch: 64})
			s := session(t, e)
			var got []float32
			for i := range ids {
				got = feed(t, s, ids[i:i+1])
			}
			if !slices.Equal(got, exact) {
				t.Error("token by token other logits than without tiles")
			}
		})
	}
}

// TestChunksOfSequences checks that a batch with whole chunks of two sequences runs on tiles and
// gives each the bits that it has alone, and that one more token in the batch changes the program.
func TestChunksOfSequences(t *testing.T) {
	for name := range chunked {
		t.Run(name, func(t *testing.T) {
			var ran string
			m := load(t, chunked[name])
			p := compile(t, m, lower.Options{Tiles: "on", Ubatch: 256, Sequences: 3}).Plan
			e, err := exec.Open(p, m.File, exec.Options{Threads: 2, Poison: true, Observe: func(o exec.Observation) { ran = o.Program.Name }})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			a, b := prompt(128), prompt(100)[36:]
			alone := [][]float32{feed(t, session(t, e), a), feed(t, session(t, e), b)}
			if ran != "tiles" {
				t.Fatalf("whole chunks ran %s", ran)
			}
			batch := func(counts ...int) *exec.Batch {
				batch := &exec.Batch{}
				for seq, n := range counts {
					for i := range n {
						batch.Tokens = append(batch.Tokens, [][]int32{a, b, a}[seq][i])
						batch.Pos, batch.Seq = append(batch.Pos, int32(i)), append(batch.Seq, int32(seq))
					}
					if n > 0 {
						batch.Rows = append(batch.Rows, int32(len(batch.Tokens)-1))
					}
				}
				return batch
			}
			if err := e.Forward(t.Context(), batch(128, 64)); err != nil || ran != "tiles" {
				t.Fatalf("chunks of two sequences ran %s, error %v", ran, err)
			}
			for i, want := range alone {
				if !slices.Equal(e.Logits(i), want) {
					t.Errorf("sequence %d has other logits than alone", i)
				}
			}
			for _, counts := range [][]int{{128, 63}, {65, 64}, {128, 64, 1}} {
				if err := e.Forward(t.Context(), batch(counts...)); err != nil || ran != "prefill" {
					t.Errorf("sequences of %v tokens ran %s, error %v", counts, ran, err)
				}
			}
		})
	}
}

// TestTilesPlan checks the kernels of a plan with tiles: bf16 for tokens, except that q, k, v and
// the rows of logits have the kernels of other programs.
func TestTilesPlan(t *testing.T) {
	_, p := withTiles(t, "k-quant", lower.Options{Ubatch: 100, Activations: "q8x2"})
	g := p.Programs[len(p.Programs)-1]
	if g.MaxT != 64 || g.MaxR > 63 {
		t.Errorf("tiles are for up to %d tokens and %d rows", g.MaxT, g.MaxR)
	}
	formats := map[string]int{}
	for _, w := range g.Waves {
		for _, st := range w.Steps {
			for _, a := range st.Args {
				if a.Kernel != "" {
					of := st.Rows
					if len(st.Args) > 5 {
						of = "qkv"
					}
					formats[of+a.Kernel[len(a.Kernel)-4:]]++
				}
			}
		}
	}
	if formats["Tbf16"] == 0 || formats["qkvq8x2"] == 0 || formats["Rq8x2"] == 0 || len(formats) != 3 {
		t.Errorf("products are %v, expected bf16 for T and q8x2 for q, k and v and for R", formats)
	}
	seen := 0
	odd := load(t, tiny.Config{Arch: "llama", Embd: 48, Types: []quant.Type{quant.F16}})
	for _, w := range compile(t, odd, lower.Options{Ubatch: 64, Tiles: "on"}).Plan.Programs[3].Waves {
		for _, st := range w.Steps {
			for _, a := range st.Args {
				seen += strings.Count(a.Kernel, "bf16")
				if a.Role == "w0" && a.Kernel != "" && a.Kernel[len(a.Kernel)-3:] != "f32" && st.Params[0].Value.(int64)%32 != 0 {
					t.Errorf("%s: rows of %v elements on %s", st.Name, st.Params[0].Value, a.Kernel)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no product is in tiles, expected those of whole tiles")
	}
}
