package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/frontend"
	"pesti/lower"
)

// The fourth witness: logits that transformers, from which the files of models are converted, computed
// in float64 for small random models. They are stored; transformers/README.md says how they were made.

// A seededModel is a model of transformers/models, with the stored logits.
type seededModel struct {
	*tiny.Seeded
	want [][]float64
}

// seededModels returns all models.
func seededModels(t testing.TB) []seededModel {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("transformers", "models", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no models: %v", err)
	}
	var all []seededModel
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		s, err := tiny.ParseSeeded(name, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seededModel{s, storedLogits(t, name)})
		if rows := len(all[len(all)-1].want); rows != len(s.Tokens) {
			t.Fatalf("%s: %d rows of logits are stored for %d tokens; run make transformers", name, rows, len(s.Tokens))
		}
	}
	return all
}

// supportedModels returns the models whose architectures are not in the list ahead.
func supportedModels(t testing.TB) []seededModel {
	t.Helper()
	return slices.DeleteFunc(seededModels(t), func(s seededModel) bool { return slices.Contains(ahead, s.Arch) })
}

// storedLogits reads a file of testdata/transformers: for each position a line with the float32 logits,
// little-endian, in base64.
func storedLogits(t testing.TB, name string) (rows [][]float64) {
	t.Helper()
	path := filepath.Join("testdata", "transformers", name+".txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		data, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(line, "\n"))
		if err != nil || len(data)%4 != 0 {
			t.Fatalf("%s: a line of %d bytes: %v", path, len(data), err)
		}
		row := make([]float64, len(data)/4)
		for i := range row {
			row[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		}
		rows = append(rows, row)
	}
	return rows
}

// open writes the model and opens it.
func (s seededModel) open(t testing.TB) *model {
	t.Helper()
	data, err := s.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), s.Name+".gguf")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return openFile(t, s.Name, path)
}

// The bounds of squareError against transformers.
const (
	// The oracle and transformers compute in float64. Storing logits in float32 costs 7e-16, and keys that a file
	// stores in float32 cost less than a hundred times as much.
	storedTolerance = 1e-13
	// exact computes in float32, which costs 2e-13.
	transformersTolerance = 1e-10
	// A fault must be far from what passes. The smallest cause 5e-8.
	faultTolerance = 100 * transformersTolerance
)

// TestSeededWeights compares the weights that Go and numpy compute from the names of tensors.
func TestSeededWeights(t *testing.T) {
	out, err := testenv.Python(t, filepath.Join("transformers", "hashes.py")).Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		at := strings.LastIndexByte(line, ' ')
		theirs[line[:max(at, 0)]] = strings.TrimSpace(line[at+1:])
	}
	ours := 0
	for _, s := range seededModels(t) {
		m, err := s.Model()
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Tensors {
			data := new(bytes.Buffer)
			if err := binary.Write(data, binary.LittleEndian, m.Tensors[i].Data); err != nil {
				t.Fatal(err)
			}
			name := s.Name + " " + m.Tensors[i].Name
			if want := fmt.Sprintf("%x", sha256.Sum256(data.Bytes())); theirs[name] != want {
				t.Errorf("%s: SHA-256 %q in numpy, %q in Go", name, theirs[name], want)
			}
			ours++
		}
	}
	if ours != len(theirs) {
		t.Errorf("%d tensors in Go, %d in numpy", ours, len(theirs))
	}
}

// TestTransformers compares the stored logits of transformers with the oracle and with exact, fused and
// unfused, and every layer of exact with the oracle.
func TestTransformers(t *testing.T) {
	for _, s := range supportedModels(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			m := s.open(t)
			oracle := askOracle(t, m.path, s.Tokens, 0)
			e := squareError(oracle.logits, s.want)
			t.Logf("oracle: normalized square error %.1e", e)
			if !(e <= storedTolerance) {
				t.Errorf("oracle: normalized square error %.1e, want at most %.0e", e, storedTolerance)
			}
			for _, passes := range []string{"", "none"} {
				ours := m.collect(t, s.Tokens, lower.Options{Ubatch: 7, Passes: passes}, len(s.Tokens), nil, nil)
				e := squareError(ours.logits, s.want)
				worst := slices.Max(compare(ours, oracle).layers)
				t.Logf("exact, passes %q: normalized square error %.1e, worst d of a layer %.1e", passes, e, worst)
				if !(e <= transformersTolerance) {
					t.Errorf("exact, passes %q: normalized square error %.1e, want at most %.0e", passes, e, transformersTolerance)
				}
				if !(worst <= metrics.Tolerance) || len(ours.layers) != s.Layers || len(oracle.layers) != s.Layers {
					t.Errorf("exact, passes %q: worst d %.1e of %d layers, want at most %.0e of %d", passes, worst, len(ours.layers), metrics.Tolerance, s.Layers)
				}
			}
		})
	}
}

// TestTransformersCoverArchitectures: every architecture has a model, with faults that the test below must
// catch.
func TestTransformersCoverArchitectures(t *testing.T) {
	seeded, names := make(map[string]bool), make(map[string]bool)
	for _, s := range supportedModels(t) {
		names[s.Name] = true
		seeded[s.Arch] = true
		if len(seededFaults[s.Name]) < 4 {
			t.Errorf("%s: %d faults in seededFaults, want at least 4", s.Name, len(seededFaults[s.Name]))
		}
	}
	for _, arch := range frontend.Architectures() {
		if !seeded[arch] {
			t.Errorf("no model of architecture %s in transformers/models, or the list ahead still has it", arch)
		}
	}
	for name := range seededFaults {
		if !names[name] {
			t.Errorf("seededFaults has faults of %s, which is no model", name)
		}
	}
}

// TestTransformersFaults seeds each fault into the graph. The comparison with transformers must catch it.
func TestTransformersFaults(t *testing.T) {
	for _, s := range supportedModels(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			m := s.open(t)
			for _, f := range seededFaults[s.Name] {
				ours := m.collect(t, s.Tokens, lower.Options{Ubatch: 7}, len(s.Tokens), f.seed(t), nil)
				e := squareError(ours.logits, s.want)
				t.Logf("%s: normalized square error %.1e", f.name, e)
				if !(e > faultTolerance) {
					t.Errorf("%s: not caught: normalized square error %.1e, want above %.0e", f.name, e, faultTolerance)
				}
			}
		})
	}
}

// TestProveTransformersLlamaCpp compares the same models with llama.cpp: its logits with those of transformers and
// with ours, if the architecture is supported.
func TestProveTransformersLlamaCpp(t *testing.T) {
	testenv.Prove(t)
	for _, s := range seededModels(t) {
		t.Run(s.Name, func(t *testing.T) {
			m := s.open(t)
			most := witnessSiLUTolerance
			if usesGELU[s.Arch] {
				most = witnessTolerance
			}
			check := func(pair string, e float64) {
				t.Logf("%s: normalized square error %.1e", pair, e)
				if !(e <= most) {
					t.Errorf("%s: normalized square error %.1e, want at most %.0e", pair, e, most)
				}
			}
			theirs := askLlamaCpp(t, m.path, s.Tokens, "--cache", "f32")
			check("llama.cpp and transformers", squareError(theirs, s.want))
			if !slices.Contains(ahead, s.Arch) {
				ours := m.collect(t, s.Tokens, lower.Options{Ubatch: 7}, len(s.Tokens), nil, nil)
				check("exact and llama.cpp", squareError(ours.logits, theirs))
			}
		})
	}
}
