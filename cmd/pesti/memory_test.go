package main

import (
	"encoding/json"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pesti/conformance/sparsegguf"
	"pesti/conformance/testenv"
	"pesti/exec/cpu"
	"pesti/exec/plan"
	"pesti/frontend/tokenizer"
)

// memoryOf returns the output of inspect --memory.
func memoryOf(t *testing.T, args ...string) (r memoryReport) {
	t.Helper()
	p := start(t, append([]string{"inspect", "--memory", "--json"}, args...)...)
	out, err := io.ReadAll(p.out)
	if code := p.exitCode(); err != nil || code != 0 {
		t.Fatalf("inspect --memory %q: exit code %d, %v: %s", args, code, err, &p.err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A process that evaluates a prompt of a full forward pass and one token has as much resident memory as inspect
// predicted, within 5 %.
func TestMemoryAgainstResident(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell what is resident")
	}
	const most = 0.05
	text := "It was a bright cold day in April, and the clocks of the harbour struck thirteen: sailors, " +
		"bakers, two professors of zoology and a juggler hurried home."
	for _, model := range testenv.Models {
		t.Run(model, func(t *testing.T) {
			file := testenv.Model(t, model)
			f, err := (&app{stderr: io.Discard}).openModel(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			tok, err := tokenizer.FromGGUF(f)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tok.EncodePrompt(t.Context(), []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			ubatch := strconv.Itoa(len(ids))
			options := []string{"--precision", "fast", "--ubatch", ubatch, "--ctx", strconv.Itoa(len(ids) + 2), "-t", "2"}
			said := memoryOf(t, append([]string{file}, options...)...).Plans
			if len(said) != 1 {
				t.Fatalf("inspect has %d plans, expected one", len(said))
			}
			p := start(t, append([]string{"run", file, "-p", text, "-n", "2", "--ignore-eos", "--stats", "json"}, options...)...)
			io.Copy(io.Discard, p.out)
			if code := p.exitCode(); code != 0 {
				t.Fatalf("run: exit code %d: %s", code, &p.err)
			}
			s := statsOf(t, p.err.String())
			if s.PromptTokens != len(ids) || s.GeneratedTokens != 2 {
				t.Fatalf("run: %+v, expected a full step of %d tokens, and one more", s, len(ids))
			}
			resident := s.PeakResident - s.StartResident
			off := float64(said[0].Total)/float64(resident) - 1
			t.Logf("%d tokens: inspect says %s, resident %s: %+.1f %%", len(ids), plan.HumanBytes(said[0].Total), plan.HumanBytes(resident), 100*off)
			if math.Abs(off) > most {
				t.Errorf("inspect says %d bytes (%+v), resident were %d: %+.1f %%, expected at most %.0f %%", said[0].Total, said[0], resident, 100*off, 100*most)
			}
		})
	}
}

// The table has the contexts, the precisions and the numbers of the plans that compile writes.
func TestInspectMemory(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string // precision, KV and ctx of each row
	}{
		{"", []string{"exact f32 512", "fast f16 512"}},
		{"--isa portable", []string{"exact f32 512", "fast f16 512"}}, // weights are not packed, as they are for the best instruction set
		{"--precision exact --ctx 17", []string{"exact f32 17"}},
		{"--precision fast --kv f32 --ctx 511 --ubatch 3 --sequences 2", []string{"fast f32 511"}},
	} {
		var got []string
		for _, row := range memoryOf(t, append([]string{"demo", "-t", "3"}, strings.Fields(c.args)...)...).Plans {
			ctx := strconv.FormatInt(row.Ctx, 10)
			got = append(got, row.Precision+" "+row.KV+" "+ctx)
			args := append([]string{"compile", "demo", "-o", "-", "-t", "3"}, strings.Fields(c.args)...)
			p, err := plan.Parse([]byte(ok(t, append(args, "--precision", row.Precision, "--ctx", ctx)...)))
			if err != nil {
				t.Fatal(err)
			}
			m := &p.Memory
			// A packed weight is not read from the file.
			weights := int64(0)
			for _, w := range p.Weights {
				if w.Layout == "" {
					weights += w.Size
				}
			}
			if row.Weights != weights || row.Packed != m.Packed || row.State != m.State || row.Arena != m.Arena || row.IO != m.IO {
				t.Errorf("%s: %+v, the plan has %+v, and %d bytes of weights that are read in the file", c.args, row, *m, weights)
			}
			if sum := row.Weights + row.Packed + row.State + row.Values + row.Scratch + row.IO + row.Program; sum != row.Total || row.Program < 1<<20 {
				t.Errorf("%s: the total of %+v, expected %d", c.args, row, sum)
			}
			// Sum by wave: a buffer is live in a wave if a step of the wave is in its lifetime. The
			// code under test sums by buffer.
			values := int64(0)
			for _, g := range p.Programs {
				scratch := map[int]bool{}
				for _, w := range g.Waves {
					for _, st := range w.Steps {
						scratch[st.Scratch] = true
					}
				}
				for _, w := range g.Waves {
					live := int64(0)
					for _, b := range g.Buffers {
						lives := func(st plan.Step) bool { return b.First <= st.ID && st.ID < b.Last }
						if !scratch[b.ID] && slices.ContainsFunc(w.Steps, lives) {
							live += (b.Size + 63) &^ 63
						}
					}
					values = max(values, live)
				}
			}
			if row.Values != values || row.Scratch != m.Arena-values || values == 0 || row.Scratch < 0 {
				t.Errorf("%s: values %d and scratch %d of %d, expected %d of values", c.args, row.Values, row.Scratch, m.Arena, values)
			}
			if runtime.GOOS == "linux" && (row.Fits == nil || !*row.Fits) {
				t.Errorf("%s: %+v does not fit", c.args, row)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: plans %q, expected %q", c.args, got, c.want)
		}
	}
	for most, want := range map[int64][]int64{1: {1}, 512: {512}, 513: {512, 513}, 2048: {512, 1024, 2048}, 5000: {512, 1024, 2048, 4096, 5000}} {
		if got := contexts(most); !slices.Equal(got, want) {
			t.Errorf("contexts up to %d: %d, expected %d", most, got, want)
		}
	}
	out := ok(t, "inspect", "demo", "--memory")
	for _, word := range []string{"bounds  ubatch 512, sequences 1", "precision  KV ", "exact      f32  512 ", "fast       f16  512 "} {
		if !strings.Contains(out, word) {
			t.Errorf("inspect --memory prints %q, expected %q", out, word)
		}
	}
}

func TestInspectMemoryErrors(t *testing.T) {
	for args, words := range map[string]string{
		"--memory --check":            "--memory",
		"--memory --tensors":          "--memory",
		"--ctx 5":                     "--ctx without --memory",
		"--check --precision exact":   "--precision without --memory",
		"--memory --ctx 513":          "demo: --ctx is 513, expected 1 to 512",
		"--memory --ctx 1000000":      "demo: --ctx is 1000000, expected 1 to 512",
		"--memory --passes -bogus":    "demo: --passes: ",
		"--memory --ubatch 0":         "1 or more",
		"--memory --extract x -o y.x": "--memory",
	} {
		pesti(append([]string{"inspect", "demo"}, strings.Fields(args)...)...).fails(t, exitUsage, words)
	}
}

// A model that needs more memory than any machine has is refused with the numbers by every verb that would run
// it, before memory is allocated.
func TestRefusedForMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell what is available")
	}
	model := sparsegguf.File(t, &sparsegguf.Shapes[len(sparsegguf.Shapes)-1], 1)
	r := memoryOf(t, model, "--precision", "fast", "--ctx", "4096")
	if len(r.Plans) != 4 || r.RAM.Total < 64<<20 {
		t.Fatalf("inspect prints %+v", r)
	}
	for _, row := range r.Plans {
		if row.Fits == nil || *row.Fits || row.Total < 700<<30 {
			t.Errorf("ctx %d: %+v fits, expected it not to", row.Ctx, row)
		}
	}
	last := &r.Plans[3]
	words := []string{model + ": needs 7", plan.HumanBytes(last.Weights), plan.HumanBytes(last.State), plan.HumanBytes(r.RAM.Total), "available", "--ctx"}
	for _, args := range [][]string{
		{"bench", model},
		{"dump", model, "--ids", "1", "-o", t.TempDir(), "--precision", "fast", "--ubatch", "512"},
	} {
		measured(t, args...).fails(t, exitError, words...)
	}
}

// If the system does not report its memory, the text says so.
func TestRAMText(t *testing.T) {
	for ram, want := range map[cpu.RAM]string{
		{}:                                   "unknown, since the system does not report it",
		{Total: 2 << 30, Available: 1 << 30}: "2.0 GiB, of which 1.0 GiB are available",
	} {
		if got := ramText(ram); got != want {
			t.Errorf("%+v: %q, expected %q", ram, got, want)
		}
	}
}
