package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/lower"
)

// updateBits is not named update as for golden files: make golden must not rewrite what shows that bits changed.
var updateBits = flag.Bool("update-bits", false, "rewrite the recorded hashes of logits")

// bitsFile has one line per case: model, precision, activations, instruction set or cuda, scenario,
// and the SHA-256 of the logits of the scenario's steps as little-endian float32.
//
// The hashes are valid on amd64. Other processors round some functions of package math differently.
var bitsFile = filepath.Join("testdata", "bits.txt")

// A span is consecutive tokens of one sequence in a step: n tokens of a text, from position pos on.
type span struct{ seq, text, pos, n int }

// A scenario is a list of steps for a plan, starting with empty sequences. The logits of the last
// two tokens of each span are wanted.
type scenario struct {
	name  string
	steps [][]span
}

// bitsScenarios run all programs of a plan without a program for whole chunks.
var bitsScenarios = []scenario{
	{"decode", [][]span{{{0, 0, 0, 5}}, {{0, 0, 5, 1}}, {{0, 0, 6, 1}}, {{0, 0, 7, 1}}, {{0, 0, 8, 1}}}},
	{"sequences", [][]span{
		{{0, 0, 0, 5}, {1, 1, 0, 3}, {2, 2, 0, 4}},
		{{0, 0, 5, 1}, {1, 1, 3, 1}, {2, 2, 4, 1}},
		{{2, 2, 5, 1}, {1, 1, 4, 1}},
	}},
	{"truncate", [][]span{{{0, 0, 0, 8}}, {{0, 1, 4, 2}}, {{0, 0, 4, 5}}}},
	{"mixed", [][]span{{{0, 0, 0, 5}}, {{1, 1, 0, 32}, {0, 0, 5, 1}}, {{0, 0, 6, 1}, {1, 1, 32, 3}}}},
	{"prompt", [][]span{{{0, 0, 0, 34}}, {{0, 0, 34, 6}}}},
}

// chunkScenario runs the program for whole chunks, and some tokens after it.
var chunkScenario = scenario{"chunk", [][]span{{{0, 0, 0, 64}}, {{0, 0, 64, 3}}}}

// TestBits compares hashes of logits with the recorded ones. Logits after the same tokens must also
// have the same bits in every scenario, with any number of threads, and on all instruction sets
// except portable, which sums in another order.
func TestBits(t *testing.T) { checkBits(t, false) }

// TestProveBits does the same for all cases, including slow ones.
func TestProveBits(t *testing.T) {
	testenv.Prove(t)
	checkBits(t, true)
}

func checkBits(t *testing.T, prove bool) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("%s has hashes for amd64 alone", bitsFile)
	}
	best, err := exec.BestISA("")
	if err != nil {
		t.Fatal(err)
	}
	usable, err := isa.UpTo(best)
	if err != nil {
		t.Fatal(err)
	}
	recorded := readBits(t)
	for _, name := range models {
		for _, o := range []lower.Options{
			{Precision: "exact"}, {Precision: "fast", Activations: "q8x2"}, {Precision: "fast", Activations: "mixed"}, {Precision: "fast", Activations: "q8"},
		} {
			t.Run(strings.Join([]string{name, o.Precision, o.Activations}, "/"), func(t *testing.T) {
				m := openModel(t, name)
				portable, vector := rowsByHistory{}, rowsByHistory{}
				for _, o.ISA = range usable {
					rows := vector
					if o.ISA == "portable" {
						rows = portable
					}
					threads := []int{2}
					if name == "demo" {
						threads = []int{2, 1, 3}
					} else if testing.Short() || !bitsOfModel(o, prove) {
						continue
					}
					for _, o.Threads = range threads {
						o.Tiles, o.Sequences = "off", 3
						recorded.run(t, m, rows, o, bitsScenarios)
					}
				}
			})
		}
	}
	t.Run("tiles", func(t *testing.T) {
		m := openModel(t, "demo")
		portable, vector := rowsByHistory{}, rowsByHistory{}
		for _, set := range usable {
			rows := vector
			if set == "portable" {
				rows = portable
			}
			recorded.run(t, m, rows, lower.Options{Precision: "fast", Activations: "q8x2", ISA: set, Tiles: "on", Threads: 2}, []scenario{chunkScenario})
		}
	})
	t.Run("cuda", func(t *testing.T) {
		scenarios := bitsScenarios[:2] // the virtual device takes half a second for ten tokens
		if prove {
			scenarios = append(slices.Clip(bitsScenarios), chunkScenario)
		}
		m := openModel(t, "demo")
		for _, precision := range []string{"exact", "fast"} {
			recorded.run(t, m, rowsByHistory{}, lower.Options{Target: plan.CUDA, Precision: precision, Sequences: 3}, scenarios)
		}
	})
	if *updateBits {
		recorded.write(t)
	}
}

// bitsOfModel reports whether a real model runs with these options. Without prove only cases that
// take seconds run.
func bitsOfModel(o lower.Options, prove bool) bool {
	if prove {
		return o.ISA != "portable" || o.Activations != "mixed" // mixed on portable takes a minute, and is the default only on avx2
	}
	return o.ISA == "avx2" || o.ISA == "avx512vnni" && o.Activations == "q8x2"
}

// bits are the lines of bitsFile: hashes by all words before them.
type bits map[string]string

func readBits(t *testing.T) bits {
	t.Helper()
	text, err := os.ReadFile(bitsFile)
	if err != nil {
		t.Fatal(err)
	}
	b := bits{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			t.Fatalf("%s: line %q, expected a case and its hash", bitsFile, line)
		}
		b[line[:at]] = line[at+1:]
	}
	return b
}

func (b bits) write(t *testing.T) {
	t.Helper()
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(b)) {
		fmt.Fprintln(&text, name, b[name])
	}
	if err := os.WriteFile(bitsFile, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs scenarios with the plan of options, and compares or sets their lines.
func (b bits) run(t *testing.T, m *model, rows rowsByHistory, o lower.Options, scenarios []scenario) {
	t.Helper()
	o.Ubatch, o.Ctx = 64, 128
	e := m.engine(t, o, exec.Options{Poison: true}, nil)
	ids := m.passage(t)
	activations, on := o.Activations, o.ISA
	if activations == "" {
		activations = "auto"
	}
	if o.Target == plan.CUDA {
		on = "cuda"
	}
	for _, sc := range scenarios {
		name := strings.Join([]string{m.name, o.Precision, activations, on, sc.name}, " ")
		hash := rows.run(t, e, ids, fmt.Sprintf("%s, %d threads", name, o.Threads), sc.steps)
		switch want, ok := b[name]; {
		case *updateBits:
			b[name] = hash
		case !ok:
			t.Errorf("%s has no line for %q; add it with: PESTI_PROVE=1 go test ./conformance -run Bits -update-bits", bitsFile, name)
		case hash != want:
			t.Errorf("%s, %d threads: the logits have SHA-256 %s, expected %s", name, o.Threads, hash, want)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// rowsByHistory maps the tokens of a sequence to the hash of the last one's logits, and to the run that
// computed it first.
type rowsByHistory map[string]struct{ hash, from string }

// run runs steps and returns the SHA-256 of all their logits. The rows of all runs must agree.
func (rows rowsByHistory) run(t *testing.T, e *exec.Engine, ids []int32, from string, steps [][]span) string {
	t.Helper()
	all := sha256.New()
	history := map[int][]int32{} // by sequence
	for _, step := range steps {
		var b exec.Batch
		var keys []string
		for _, s := range step {
			for i := range s.n {
				pos := s.pos + i
				id := ids[5*s.text+pos]
				history[s.seq] = append(history[s.seq][:pos], id)
				if i >= s.n-2 {
					b.Rows = append(b.Rows, int32(len(b.Tokens)))
					keys = append(keys, fmt.Sprint(history[s.seq]))
				}
				b.Tokens, b.Pos, b.Seq = append(b.Tokens, id), append(b.Pos, int32(pos)), append(b.Seq, int32(s.seq))
			}
		}
		if err := e.Forward(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for r, key := range keys {
			var row bytes.Buffer
			binary.Write(&row, binary.LittleEndian, e.Logits(r))
			all.Write(row.Bytes())
			hash := fmt.Sprintf("%x", sha256.Sum256(row.Bytes()))
			if first, ok := rows[key]; !ok {
				rows[key] = struct{ hash, from string }{hash, from}
			} else if hash != first.hash {
				t.Errorf("%s: the logits after %d tokens differ from those of %s", from, len(strings.Fields(key)), first.from)
			}
		}
	}
	return fmt.Sprintf("%x", all.Sum(nil))
}
