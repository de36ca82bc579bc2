package conformance

import (
	"slices"
	"strconv"
	"testing"

	"pesti/conformance/testenv"
	"pesti/lower"
)

func itoa(i int) string { return strconv.Itoa(i) }

// foxIDs come from an independent source, so that tokenizer and forward pass are checked
// separately.
var foxIDs = map[string][]int32{
	testenv.SmolLM2: {504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30},
	testenv.Qwen:    {785, 3974, 13876, 38835, 34208, 916, 279, 15678, 5562, 13},
	testenv.Gemma:   {2, 818, 3823, 8864, 37423, 38167, 1024, 506, 31770, 4799, 236761},
}

// TestExactAgainstOracle checks the bounds on every layer and every logit of every position.
func TestExactAgainstOracle(t *testing.T) {
	for _, name := range models {
		for _, prompt := range []string{"fox", "tides"} {
			t.Run(name+"/"+prompt, func(t *testing.T) {
				m := openModel(t, name)
				ids := m.prompt(t, prompt)
				if want := foxIDs[name]; want != nil && prompt == "fox" && !slices.Equal(ids, want) {
					t.Fatalf("ids %v, want %v", ids, want)
				}
				if prompt == "tides" && len(ids) < 40 {
					t.Fatalf("%d tokens, want 40 or more", len(ids))
				}
				v := compare(m.pass(t, ids, 512, nil, nil), askOracle(t, m.path, ids, 0))
				t.Log(v)
				if !v.passes() {
					t.Errorf("%d tokens: %v", len(ids), v)
				}
			})
		}
	}
}

// TestGreedyAgainstOracle generates 64 tokens. The oracle computes, in one teacher-forced pass,
// which token it would have chosen at each position.
func TestGreedyAgainstOracle(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			m.checkGreedy(t, m.prompt(t, "fox"))
		})
	}
}

// checkGreedy compares 64 greedy tokens after a prompt with the oracle.
func (m *model) checkGreedy(t *testing.T, prompt []int32) {
	t.Helper()
	ids := m.greedy(t, prompt, 64, lower.Options{Precision: "exact", Ubatch: 64, Rows: 8, Threads: 2})
	last := len(prompt) - 1
	for i, a := range askArgmax(t, m.path, ids[:len(ids)-1], last) {
		if a.pos != last+i {
			t.Fatalf("the oracle answered for position %d, expected %d", a.pos, last+i)
		}
		if got := int(ids[a.pos+1]); got != a.id && a.margin > logitTolerance {
			t.Errorf("token %d is %d, the oracle says %d by a margin of %g", i, got, a.id, a.margin)
		}
	}
}

// TestCapital asks for a fact that the model knows.
func TestCapital(t *testing.T) {
	m := openModel(t, testenv.Qwen)
	prompt := m.encode(t, "The capital of France is")
	for _, precision := range []string{"exact", "fast"} {
		ids := m.greedy(t, prompt, 1, lower.Options{Precision: precision, Ubatch: 64, Rows: 8, Threads: 2})
		if want := m.encode(t, " Paris"); len(want) != 1 || ids[len(ids)-1] != want[0] {
			t.Errorf("%s: continues with %d, want %d", precision, ids[len(ids)-1], want)
		}
	}
}

// TestWindowAgainstOracle runs a prompt that is longer than gemma's window, in chunks, so that its
// local layers drop positions and their ring wraps.
func TestWindowAgainstOracle(t *testing.T) {
	m := openModel(t, testenv.Gemma)
	ids := m.passage(t)
	for len(ids) < 640 {
		ids = append(ids, ids[1:]...)
	}
	ids = ids[:640]
	oracle := askOracle(t, m.path, ids, len(ids)-4)
	v := compare(m.last(t, ids, 64, 4), oracle)
	t.Log(v)
	if !v.passes() {
		t.Errorf("%d tokens: %v", len(ids), v)
	}
}
