package exec_test

import (
	"slices"
	"strings"
	"testing"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/lower"
)

// TestWritten checks that the rows of a cache are the values that steps stored into it, rounded to its
// format, in the layouts of fused and unfused attention and in the ring of a layer with a window.
func TestWritten(t *testing.T) {
	const unfused = "-fuse_attention"
	rounded := map[string]func(x []float32) []float32{
		"f32": func(x []float32) []float32 { return x },
		"f16": func(x []float32) []float32 {
			y := slices.Clone(x)
			for i := range y {
				y[i] = numfmt.F16ToF32(numfmt.F32ToF16(y[i]))
			}
			return y
		},
		"q8_0": func(x []float32) []float32 {
			y, block := make([]float32, len(x)), make([]byte, numfmt.Q8_0Bytes)
			for at := 0; at < len(x); at += numfmt.BlockLen {
				numfmt.QuantizeQ8_0(block, x[at:])
				numfmt.DequantizeQ8_0(y[at:], block)
			}
			return y
		},
	}
	for name, c := range configs {
		for kv, round := range rounded {
			for _, passes := range []string{"", unfused} {
				t.Run(name+"/"+kv+passes, func(t *testing.T) {
					m := load(t, c)
					res, err := lower.Compile(m, lower.Options{Precision: "exact", KV: kv, Passes: passes, Ctx: 128, Ubatch: 16})
					if kv == "q8_0" && err != nil {
						return // its blocks do not fit the heads of this model
					} else if err != nil {
						t.Fatal(err)
					}
					p, seen := res.Plan, map[string][]float32{}
					e, err := exec.Open(p, m.File, exec.Options{Threads: 1, Observe: func(v exec.Observation) { seen[v.Name] = slices.Clone(v.Data) }})
					if err != nil {
						t.Fatal(err)
					}
					defer e.Close()
					s, compared := session(t, e), 0
					for _, n := range []int{16, 15, 1, 16, 16, 16, 1} {
						feed(t, s, prompt(n))
						for _, b := range p.Buffers {
							if b.Class != plan.State {
								continue
							}
							from := strings.Replace(strings.Replace(b.Name, "cache_v", "v", 1), "cache_k", "k_rope", 1)
							rows, err := e.Written(b.Name)
							if err != nil || rows.Rows != n || len(rows.Data) != n*rows.Cols {
								t.Fatalf("%s: %d rows of %d in %d elements, %v", b.Name, rows.Rows, rows.Cols, len(rows.Data), err)
							}
							if want := seen[from]; want != nil {
								compared++
								if !slices.Equal(rows.Data, round(want)) {
									t.Errorf("%d tokens: %s is not %s in %s", n, b.Name, from, kv)
								}
							} else if passes == unfused || strings.Contains(b.Name, "cache_v") {
								t.Errorf("%s: %s is not seen", b.Name, from)
							}
						}
					}
					if compared == 0 {
						t.Error("no cache was compared")
					}
					if _, err := e.Written("blk.9.cache_k"); err == nil || !strings.Contains(err.Error(), `state "blk.9.cache_k"`) {
						t.Errorf("a cache that is not there: %v", err)
					}
				})
			}
		}
	}
}
