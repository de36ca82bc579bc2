package conformance

import (
	"context"
	"math"
	"slices"
	"testing"

	"pesti/conformance/gorgoniaref"
	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/frontend"
)

// onTape evaluates the model's unfused graph on gorgonia's tape machine and returns the result in
// the form of a pass of the numpy oracle.
func (m *model) onTape(t testing.TB, ids []int32) *oraclePass {
	t.Helper()
	loaded, err := frontend.Load(m.file)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(len(ids))
	g, err := loaded.Graph(frontend.Bounds{Tokens: n, Sequences: 1, Rows: n, Context: n})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"logits"}
	for l := range loaded.Params.Blocks {
		names = append(names, layerOut(l))
	}
	var p oraclePass
	p.floor.Layers = make([]float64, loaded.Params.Blocks)
	err = gorgoniaref.Run(context.Background(), g, gorgoniaref.FromFile(m.file), ids, names, func(v gorgoniaref.Value) error {
		rows := slices.Collect(slices.Chunk(v.Data, v.Cols))
		if v.Name == "logits" {
			p.logits = rows
		} else {
			p.layers = append(p.layers, rows)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestTapeAgainstOracle checks that two programs which share only the file format agree nearly to
// the last digits of float64.
func TestTapeAgainstOracle(t *testing.T) { checkTape(t, "demo", testenv.SmolLM2) }

// TestProveTapeAgainstOracle does the same with the larger real models.
func TestProveTapeAgainstOracle(t *testing.T) {
	testenv.Prove(t)
	checkTape(t, testenv.Qwen, testenv.Gemma)
}

func checkTape(t *testing.T, models ...string) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			ids := m.prompt(t, "fox")
			got, want := m.onTape(t, ids), askOracle(t, m.path, ids, 0)
			worst := 0.0
			for l := range want.layers {
				for pos, row := range want.layers[l] {
					worst = max(worst, metrics.Layer(got.layers[l][pos], row, len(row)).D)
				}
			}
			logits := 0.0
			for pos, row := range want.logits {
				for i, x := range row {
					logits = max(logits, math.Abs(got.logits[pos][i]-x)) // NaN stays
				}
			}
			t.Logf("%d tokens: worst d %.1e, |Δlogit| %.1e", len(ids), worst, logits)
			if !(worst <= 1e-10 && logits <= 1e-10) || len(got.layers) != len(want.layers) || len(got.logits) != len(want.logits) {
				t.Errorf("worst d %g, |Δlogit| %g, want at most 1e-10", worst, logits)
			}
		})
	}
}

// TestTapeSeesFaults seeds the faults that the numpy oracle catches.
func TestTapeSeesFaults(t *testing.T) {
	m := openModel(t, "demo")
	ids := m.prompt(t, "tides")
	want := m.onTape(t, ids)
	sound := compare(m.pass(t, ids, 32, nil, nil), want)
	if !sound.passes() {
		t.Fatalf("without a fault: %v", sound)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			m, ids, want := m, ids, want
			if f.model == testenv.Gemma { // a tiny model suffices for this fault
				file := tiny.File(t, tiny.Config{Arch: "gemma3"})
				m, ids = &model{name: "tiny", file: file}, []int32{84, 104, 101, 32, 116, 105, 100, 101, 115}
				want = m.onTape(t, ids)
				if v := compare(m.pass(t, ids, 32, nil, nil), want); !v.passes() {
					t.Fatalf("without the fault: %v", v)
				}
			}
			v := compare(m.faulty(t, ids, f), want)
			t.Log(v)
			if v.worst <= 1 {
				t.Errorf("not caught: %v", v)
			}
		})
	}
}
