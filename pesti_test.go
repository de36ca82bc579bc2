package pesti_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pesti"
	"pesti/conformance/demo"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/lower"
)

const once = "Once upon a time"

func open(t testing.TB, o pesti.Options) *pesti.Model {
	t.Helper()
	m, err := pesti.Open(pesti.Demo, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// collect returns the text, the ids and the result of a generation.
func collect(t testing.TB, m *pesti.Model, prompt string, p pesti.Params) (text string, ids []int32, r *pesti.Result) {
	t.Helper()
	for piece, err := range m.Generate(t.Context(), prompt, p) {
		if err != nil {
			t.Fatal(err)
		}
		if r != nil {
			t.Fatal("a piece follows the one with the result")
		}
		text += piece.Text
		if r = piece.Result; r == nil {
			ids = append(ids, piece.ID)
		} else if piece.ID != -1 {
			t.Errorf("the last piece has id %d, expected -1", piece.ID)
		}
	}
	if r == nil {
		t.Fatal("no piece has a result")
	}
	return text, ids, r
}

// refusal returns the error of a generation that yields nothing else, or nil if it yields anything else.
func refusal(generation iter.Seq2[pesti.Piece, error]) (last error) {
	n := 0
	for piece, err := range generation {
		if n++; n == 1 && piece.Result == nil {
			last = err
		} else {
			last = nil
		}
	}
	return last
}

// TestGenerate: the zero options compile for this machine, and the zero parameters decode greedily.
func TestGenerate(t *testing.T) {
	m := open(t, pesti.Options{})
	text, ids, r := collect(t, m, once, pesti.Params{MaxTokens: 16})
	if want := ", there was a clever little girl named Hazel. She lived in a cosy cottage"; text != want {
		t.Errorf("text %q, expected %q", text, want)
	}
	if r.Stop != pesti.StopLength || r.Tokens != 16 || len(ids) != 16 || r.Evaluated != 15 || r.PromptTokens == 0 || r.PromptTime <= 0 || r.DecodeTime <= 0 {
		t.Errorf("result %+v of %d tokens, expected 16 of them, stopped by their number", *r, len(ids))
	}
	if p := m.Plan(); p.Target.Precision != "fast" || p.Target.Threads != min(runtime.GOMAXPROCS(0), plan.MaxThreads) || p.Target.ISA == "portable" && runtime.GOARCH == "amd64" {
		t.Errorf("target %+v, expected fast with all cores and the best instruction set", p.Target)
	}
	words, err := m.Tokenize(once)
	if err != nil {
		t.Fatal(err)
	}
	back, err := m.Detokenize(words)
	if err != nil || !strings.HasSuffix(back, once) {
		t.Errorf("%v stand for %q (%v), expected %q", words, back, err, once)
	}
	// By hand, from the logits: the same tokens.
	logits, err := m.Logits(t.Context(), words)
	for i := 0; err == nil && i < 4; i++ {
		most := int32(slices.Index(logits, slices.Max(logits)))
		if most != ids[i] {
			t.Errorf("token %d is %d, and the greatest logit is that of %d", i, ids[i], most)
		}
		words = append(words, most)
		logits, err = m.Logits(t.Context(), words)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestStops(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 512}})
	whole, _, r := collect(t, m, once, pesti.Params{})
	if r.Stop != pesti.StopEOG {
		t.Errorf("stopped by %q, expected the end of generation", r.Stop)
	}
	on, _, r := collect(t, m, once, pesti.Params{IgnoreEOG: true})
	if r.Stop != pesti.StopContext || !strings.HasPrefix(on, whole) || r.PromptTokens+r.Tokens != 512 {
		t.Errorf("beyond the end of generation: %+v, expected the end of the context", r)
	}
	stopped, _, r := collect(t, m, once, pesti.Params{Stop: []string{"no such text", "named Hazel"}})
	if want, _, _ := strings.Cut(whole, "named Hazel"); stopped != want || r.Stop != pesti.StopText {
		t.Errorf("%q, stopped by %q, expected %q before the stop text", stopped, r.Stop, want)
	}
	// A text that begins like a stop text is held back, and comes with the last piece.
	held, _, r := collect(t, m, once, pesti.Params{MaxTokens: 1, Stop: []string{", there was no"}})
	if whole[:len(held)] != held || held == "" || r.Stop != pesti.StopLength {
		t.Errorf("%q, expected the held text at the end", held)
	}
	_, ids, _ := collect(t, m, once, pesti.Params{MaxTokens: 40})
	_, penalized, _ := collect(t, m, once, pesti.Params{MaxTokens: 40, RepeatPenalty: 1.8})
	if slices.Equal(ids, penalized) {
		t.Error("a repeat penalty changes nothing")
	}
	// The penalty includes the prompt: a prompt that repeats the first token makes that token
	// unlikely.
	first, err := m.Detokenize(ids[:1])
	if err != nil {
		t.Fatal(err)
	}
	_, a, _ := collect(t, m, first+first+first+once, pesti.Params{MaxTokens: 1})
	_, b, _ := collect(t, m, first+first+first+once, pesti.Params{MaxTokens: 1, RepeatPenalty: 100})
	if a[0] != ids[0] || b[0] == ids[0] {
		t.Errorf("after a prompt that repeats token %d: token %d, and with a penalty %d, expected the penalty alone to avoid it", ids[0], a[0], b[0])
	}
}

// TestSampled checks that a seed reproduces the tokens, also with drafts, and that probabilities
// follow from the logits.
func TestSampled(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Rows: 8}})
	p := pesti.Params{MaxTokens: 60, Temp: 0.9, TopK: 20, TopP: 0.9, MinP: 0.02, Seed: 7}
	_, want, _ := collect(t, m, once, p)
	if _, again, _ := collect(t, m, once, p); !slices.Equal(again, want) {
		t.Error("the same seed gives other tokens")
	}
	p.Speculate = 7
	if _, drafted, _ := collect(t, m, once, p); !slices.Equal(drafted, want) {
		t.Error("with drafts there are other tokens")
	}
	text, _, _ := collect(t, m, once, pesti.Params{MaxTokens: 120})
	prompt := once + text + once // the model repeats the text, so drafts are accepted
	_, want, _ = collect(t, m, prompt, pesti.Params{MaxTokens: 60})
	if _, drafted, r := collect(t, m, prompt, pesti.Params{MaxTokens: 60, Speculate: 7}); !slices.Equal(drafted, want) || r.Accepted <= 0 || r.Accepted > r.Proposed {
		t.Errorf("with drafts: %+v, and tokens %v, expected %v with accepted drafts", *r, drafted, want)
	}
	ids, err := m.Tokenize(once)
	if err != nil {
		t.Fatal(err)
	}
	logits, err := m.Logits(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	for piece, err := range m.Generate(t.Context(), once, pesti.Params{MaxTokens: 1, Logprobs: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if piece.ID < 0 {
			break
		}
		if want := math.Log(math.Exp(float64(logits[piece.ID])) / sum); math.Abs(float64(piece.Logprob)-want) > 1e-5 {
			t.Errorf("logarithm of the probability %v, expected %v", piece.Logprob, want)
		}
	}
}

// TestConcurrent: generations of several goroutines have the tokens that each has alone, and more than the
// plan has sequences for are refused.
func TestConcurrent(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Sequences: 3, Ctx: 128}})
	prompts := []string{once, "The dog", "One day a boy"}
	var want [3][]int32
	for i, prompt := range prompts {
		_, want[i], _ = collect(t, m, prompt, pesti.Params{MaxTokens: 30})
	}
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			for range 3 {
				_, got, _ := collect(t, m, prompt, pesti.Params{MaxTokens: 30})
				if !slices.Equal(got, want[i]) {
					t.Errorf("%q: other tokens than alone", prompt)
				}
			}
		})
	}
	all.Wait()
	var sessions []*pesti.Session
	for range 3 {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	if _, err := m.NewSession(); !errors.Is(err, pesti.ErrNoSequence) {
		t.Errorf("a fourth session: error %v, expected %v", err, pesti.ErrNoSequence)
	}
	if err := refusal(m.Generate(t.Context(), once, pesti.Params{})); !errors.Is(err, pesti.ErrNoSequence) {
		t.Errorf("a generation without a sequence: error %v, expected %v alone", err, pesti.ErrNoSequence)
	}
	for _, s := range sessions {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 10 { // break frees the sequence
		for _, err := range m.Generate(t.Context(), once, pesti.Params{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}

// TestCanceled checks that the cause of a context is reported, that the session keeps its tokens,
// and that the model stays usable.
func TestCanceled(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Sequences: 2, Ctx: 256}})
	text, ids, _ := collect(t, m, once, pesti.Params{MaxTokens: 30})
	enough := errors.New("enough")
	for at := range 4 {
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []int32
		var last error
		var r *pesti.Result
		if at == 0 {
			cancel(enough)
		}
		for piece, err := range m.Generate(ctx, once, pesti.Params{MaxTokens: 30}) {
			if last = err; err != nil {
				r = piece.Result
				continue
			}
			if got = append(got, piece.ID); len(got) == at {
				cancel(enough)
			}
		}
		if !errors.Is(last, enough) || !errors.Is(last, context.Canceled) || r == nil || r.Stop != pesti.StopCanceled || r.Tokens != at {
			t.Errorf("error %v with result %+v, expected %v after %d tokens", last, r, enough, at)
		}
		if !slices.Equal(got, ids[:at]) {
			t.Errorf("tokens %v, expected the first %d of %v", got, at, ids)
		}
		cancel(nil)
		if again, _, _ := collect(t, m, once, pesti.Params{MaxTokens: 30}); again != text {
			t.Errorf("after a canceled generation: %q, expected %q", again, text)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	n := 0
	for piece, err := range m.Generate(ctx, once, pesti.Params{}) {
		if n++; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || piece.Result == nil {
			t.Errorf("error %v, expected one of the deadline with a result", err)
		}
	}
	if n != 1 {
		t.Errorf("%d pieces after a deadline, expected one", n)
	}
}

// An endsAfter is a context that is canceled when its error is asked for after a number of times.
type endsAfter struct {
	context.Context
	left   int
	cancel func()
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// TestCanceledInTokenization checks that a generation that is canceled while its prompt is tokenized
// changes nothing.
func TestCanceledInTokenization(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Sequences: 2, Ctx: 64}})
	_, want, _ := collect(t, m, once, pesti.Params{MaxTokens: 5})
	s := must(m.NewSession())
	ids := must(m.Tokenize(once))
	if err := s.Feed(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	logits := s.Logits()
	enough := errors.New("enough")
	huge := strings.Repeat(once+" ", 50_000) // does not fit
	for _, left := range []int{0, 1, 10, 500} {
		for name, generate := range map[string]func(context.Context, string, pesti.Params) iter.Seq2[pesti.Piece, error]{
			"model": m.Generate, "session": s.Generate,
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			n := 0
			for piece, err := range generate(&endsAfter{ctx, left, func() { cancel(enough) }}, huge, pesti.Params{}) {
				if n++; !errors.Is(err, enough) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "tokenization") {
					t.Errorf("%s, canceled after %d checks: error %v, expected %v in the tokenization", name, left, err, enough)
				}
				if r := piece.Result; piece.ID != -1 || r == nil || *r != (pesti.Result{Stop: pesti.StopCanceled}) {
					t.Errorf("%s, canceled after %d checks: piece %d with result %+v, expected -1 and no counts", name, left, piece.ID, r)
				}
			}
			cancel(nil)
			if n != 1 {
				t.Errorf("%s: %d pieces, expected one", name, n)
			}
		}
		if s.Pos() != len(ids) || !slices.Equal(s.Logits(), logits) || s.Result().Stop != pesti.StopCanceled {
			t.Errorf("canceled after %d checks: the session is at %d with result %+v, or has other logits; expected %d tokens", left, s.Pos(), s.Result(), len(ids))
		}
	}
	if err := refusal(m.Generate(t.Context(), huge, pesti.Params{})); !errors.Is(err, pesti.ErrContextFull) {
		t.Errorf("without cancellation: error %v, expected %v", err, pesti.ErrContextFull)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
	var got []int32
	for piece, err := range s.Generate(t.Context(), once, pesti.Params{MaxTokens: 5}) {
		if err != nil {
			t.Fatal(err)
		}
		if piece.ID >= 0 {
			got = append(got, piece.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("afterwards the session generates %v, expected %v", got, want)
	}
}

func TestSession(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 64}})
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := m.Tokenize(once)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Feed(t.Context(), ids); err != nil || s.Pos() != len(ids) {
		t.Fatalf("error %v at %d, expected %d", err, s.Pos(), len(ids))
	}
	want := s.Logits()
	if err := s.Truncate(2); err != nil || s.Pos() != 2 || s.Logits() != nil {
		t.Fatalf("error %v at %d, expected 2 without logits", err, s.Pos())
	}
	if err := s.Feed(t.Context(), ids[2:]); err != nil || !slices.Equal(s.Logits(), want) {
		t.Errorf("error %v, or other logits than before", err)
	}
	if err := s.Feed(t.Context(), make([]int32, 61)); !errors.Is(err, pesti.ErrContextFull) || s.Pos() != len(ids) {
		t.Errorf("error %v at %d, expected %v", err, s.Pos(), pesti.ErrContextFull)
	}
	if !slices.Equal(s.Logits(), want) {
		t.Error("a refused Feed changes the logits")
	}
	if err := refusal(s.GenerateIDs(t.Context(), make([]int32, 61), pesti.Params{})); !errors.Is(err, pesti.ErrContextFull) || s.Pos() != len(ids) {
		t.Errorf("a generation that does not fit: error %v at %d", err, s.Pos())
	}
	// A loop's body cannot use the session, and another goroutine cannot either.
	for _, err := range s.Generate(t.Context(), " there", pesti.Params{MaxTokens: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"Feed":     func() error { return s.Feed(t.Context(), ids) },
			"Truncate": func() error { return s.Truncate(0) },
			"Close":    s.Close,
			"Generate": func() (last error) {
				for _, last = range s.Generate(t.Context(), once, pesti.Params{}) {
				}
				return last
			},
		} {
			got := make(chan error)
			go func() { got <- call() }()
			if err := <-got; !errors.Is(err, pesti.ErrBusy) {
				t.Errorf("%s meanwhile: error %v, expected %v", name, err, pesti.ErrBusy)
			}
		}
	}
	if r := s.Result(); r.Tokens != 2 {
		t.Errorf("result %+v, expected that of 2 tokens: what was refused changes nothing", r)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Feed(t.Context(), ids); !errors.Is(err, pesti.ErrClosed) {
		t.Errorf("a closed session: error %v, expected %v", err, pesti.ErrClosed)
	}
}

// TestBadInput checks that each invalid input is an error before anything is computed, and that the
// model stays usable.
func TestBadInput(t *testing.T) {
	steps := 0
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 64, Rows: 8}, Engine: exec.Options{Observe: func(exec.Observation) { steps++ }}})
	vocabulary := int32(len(must(m.Logits(t.Context(), []int32{0}))))
	for _, c := range []struct {
		name  string
		ids   []int32
		p     pesti.Params
		ctx   context.Context
		field string
		words string
	}{
		{"nil context", []int32{1}, pesti.Params{}, nil, "", "context is nil"},
		{"no tokens", nil, pesti.Params{}, t.Context(), "", "at least one"},
		{"negative limit", []int32{1}, pesti.Params{MaxTokens: -1}, t.Context(), "MaxTokens", "-1"},
		{"negative k", []int32{1}, pesti.Params{TopK: -1}, t.Context(), "TopK", "-1: expected 0 or more"},
		{"NaN temperature", []int32{1}, pesti.Params{Temp: math.NaN()}, t.Context(), "Temp", "NaN"},
		{"negative temperature", []int32{1}, pesti.Params{Temp: -1}, t.Context(), "Temp", "-1: expected 0 or more"},
		{"top-p of 2", []int32{1}, pesti.Params{TopP: 2}, t.Context(), "TopP", "2: expected 0 to 1"},
		{"min-p of 7", []int32{1}, pesti.Params{MinP: 7}, t.Context(), "MinP", "7: expected 0 to 1"},
		{"negative penalty", []int32{1}, pesti.Params{RepeatPenalty: -1}, t.Context(), "RepeatPenalty", "-1"},
		{"negative window", []int32{1}, pesti.Params{RepeatPenalty: 2, RepeatLast: -1}, t.Context(), "RepeatLast", "-1"},
		{"empty stop", []int32{1}, pesti.Params{Stop: []string{"a", ""}}, t.Context(), "Stop", "empty"},
		{"negative draft", []int32{1}, pesti.Params{Speculate: -1}, t.Context(), "Speculate", "-1"},
		{"long draft", []int32{1}, pesti.Params{Speculate: 8}, t.Context(), "Speculate", "is 8, expected at most 7"},
		{"draft with probabilities", []int32{1}, pesti.Params{Speculate: 7, Logprobs: true}, t.Context(), "Logprobs", "Speculate"},
		{"negative id", []int32{1, -1}, pesti.Params{}, t.Context(), "", "token id -1"},
		{"large id", []int32{1, vocabulary}, pesti.Params{}, t.Context(), "", "at index 1"},
		{"long prompt", make([]int32, 65), pesti.Params{}, t.Context(), "", "65 tokens"},
	} {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		steps = 0
		last := refusal(s.GenerateIDs(c.ctx, c.ids, c.p))
		var o *pesti.OptionError
		if last == nil || !strings.Contains(last.Error(), c.words) || errors.As(last, &o) != (c.field != "") || o != nil && o.Field != c.field || strings.Contains(last.Error(), "--") {
			t.Errorf("%s: error %v, expected one with %q about field %q alone", c.name, last, c.words, c.field)
		}
		if steps > 0 || s.Pos() != 0 {
			t.Errorf("%s: refused after %d steps at %d, expected before the first", c.name, steps, s.Pos())
		}
		s.Close()
	}
	for field, o := range map[string]lower.Options{"Ctx": {Ctx: -1}, "Precision": {Precision: "some"}, "Sequences": {Sequences: 1 << 40}, "Outputs": {Outputs: []string{"none such"}}} {
		var wrong *pesti.OptionError
		if _, err := pesti.Open(pesti.Demo, pesti.Options{Compile: o}); !errors.As(err, &wrong) || wrong.Field != field || strings.Contains(err.Error(), "--") {
			t.Errorf("%+v: error %v, expected an OptionError about %s without flags", o, err, field)
		}
	}
	least := lower.Options{Ctx: 64}
	for _, c := range []struct {
		o    pesti.Options
		want string // the field first
	}{
		{pesti.Options{Compile: lower.Options{Ctx: math.MinInt64}}, "Ctx is -9223372036854775808, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Ubatch: -5}}, "Ubatch is -5, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Sequences: -1}}, "Sequences is -1, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Threads: -2}}, "Threads is -2, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Devices: -1}}, "Devices is -1, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Rows: -1}}, "Rows is -1, expected 1 to "},
		{pesti.Options{Compile: lower.Options{Target: "cuda", Host: &lower.Host{GPULayers: -1}}}, "GPULayers is -1, expected at least 1"},
		{pesti.Options{Compile: lower.Options{Target: "cuda", Host: &lower.Host{GPULayers: 1, Threads: -1}}}, "Threads is -1, expected 1 to "},
		{pesti.Options{Compile: least, Engine: exec.Options{Threads: -2}}, "Threads is -2, expected 1 or more, or 0"},
		{pesti.Options{Compile: least, Engine: exec.Options{Trace: -1}}, "Trace is -1, expected 0 to "},
		{pesti.Options{Compile: least, Engine: exec.Options{Devices: []int{0, -1}}}, "Devices[1] is -1, expected 0 or more"},
		{pesti.Options{Compile: least, Engine: exec.Options{RAM: exec.RAM{Total: -1}}}, "RAM.Total is -1, expected 0 or more"},
		{pesti.Options{Compile: least, Engine: exec.Options{RAM: exec.RAM{Total: 1 << 40, Available: -1}}}, "RAM.Available is -1, expected 0 or more"},
	} {
		var wrong *pesti.OptionError
		field, _, _ := strings.Cut(c.want, " ")
		m, err := pesti.Open(pesti.Demo, c.o)
		if err == nil {
			m.Close()
		}
		if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, expected an OptionError of one line about %s: %q", err, field, c.want)
		}
	}
	nan, inf := math.NaN(), math.Inf(1)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []float64{nan, inf, -inf} {
		for field, p := range map[string]pesti.Params{"Temp": {Temp: x}, "TopP": {TopP: x}, "MinP": {MinP: x}, "RepeatPenalty": {RepeatPenalty: x}} {
			var wrong *pesti.OptionError
			if err := refusal(s.GenerateIDs(t.Context(), []int32{1}, p)); !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(err.Error(), fmt.Sprintf("%s %v: expected ", field, x)) {
				t.Errorf("%s %v: error %v", field, x, err)
			}
		}
	}
	s.Close()
	if _, err := pesti.Open(filepath.Join(t.TempDir(), "none.gguf"), pesti.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: error %v", err)
	}
	if _, err := pesti.New(nil, nil, pesti.Options{}); err == nil {
		t.Error("no file and no plan: no error")
	}
	closed := open(t, pesti.Options{})
	s = must(closed.NewSession())
	for range 2 {
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func() error{
		"NewSession": func() error { _, err := closed.NewSession(); return err },
		"Logits":     func() error { _, err := closed.Logits(t.Context(), []int32{1}); return err },
		"Feed":       func() error { return s.Feed(t.Context(), []int32{1}) },
		"Truncate":   func() error { return s.Truncate(0) },
		"Generate": func() (last error) {
			for _, last = range s.Generate(t.Context(), once, pesti.Params{}) {
			}
			return last
		},
	} {
		if err := call(); !errors.Is(err, pesti.ErrClosed) {
			t.Errorf("%s of a closed model: error %v, expected %v", name, err, pesti.ErrClosed)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing a session of a closed model: %v", err)
	}
	if text, _, _ := collect(t, m, once, pesti.Params{MaxTokens: 4}); text == "" {
		t.Error("after all that the model generates nothing")
	}
}

// TestBadPrompt: an empty prompt and a nil context are errors of Model.Generate too.
func TestBadPrompt(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 64}})
	for words, c := range map[string]struct {
		ctx    context.Context
		prompt string
	}{"prompt is empty": {t.Context(), ""}, "context is nil": {nil, once}} {
		if err := refusal(m.Generate(c.ctx, c.prompt, pesti.Params{})); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, expected one that says %q alone", err, words)
		}
	}
	if text, _, _ := collect(t, m, once, pesti.Params{MaxTokens: 4}); text == "" {
		t.Error("after that the model generates nothing")
	}
}

// TestSecondText: a text that is appended to a session gets no BOS token.
func TestSecondText(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 64}})
	first, whole := must(m.Tokenize(once)), must(m.Tokenize(once+" there"))
	bos := len(must(m.Tokenize(" there"))) - (len(whole) - len(first)) // 1 if the model has a BOS token
	if bos < 0 || bos > 1 || !slices.Equal(whole[:len(first)], first) {
		t.Fatalf("%v does not begin %v", first, whole)
	}
	s := must(m.NewSession())
	defer s.Close()
	if err := s.Feed(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Generate(t.Context(), " there", pesti.Params{MaxTokens: 1}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Result(); r.PromptTokens != len(whole)-len(first) || s.Pos() != len(whole) {
		t.Errorf("%d tokens of prompt at %d, expected %d at %d", r.PromptTokens, s.Pos(), len(whole)-len(first), len(whole))
	}
}

// TestReports: progress has each stage in order, and warnings of a model arrive in the log.
func TestReports(t *testing.T) {
	var stages []string
	prompt := pesti.Progress{}
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 64, Ubatch: 2}, Progress: func(p pesti.Progress) {
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		if p.Stage == "prompt" {
			if p.Done < prompt.Done {
				t.Errorf("progress goes back from %+v to %+v", prompt, p)
			}
			prompt = p
		}
	}})
	collect(t, m, once, pesti.Params{MaxTokens: 2})
	if want := []string{"load", "compile", "pack", "prompt"}; !slices.Equal(stages, want) {
		t.Errorf("stages %q, expected %q", stages, want)
	}
	if n := len(must(m.Tokenize(once))); prompt.Done != n || prompt.Total != n {
		t.Errorf("the last progress of the prompt is %+v, expected %d of %d", prompt, n, n)
	}
	// A tensor that nothing reads is a warning.
	f := must(gguf.Parse(pesti.Demo, demo.GGUF()))
	defer f.Close()
	w := gguf.NewWriter()
	w.SetAll(f)
	for i := range f.Tensors() {
		x := &f.Tensors()[i]
		w.AddTensor(x.Name, x.Type, x.Dims, f.Bytes(x))
	}
	w.AddTensor("unused.weight", quant.F32, []int64{8}, make([]byte, 32))
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	warned := must(pesti.Open(path, pesti.Options{Compile: lower.Options{Ctx: 64}, Log: slog.New(slog.NewTextHandler(&log, nil))}))
	if err := warned.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "unused.weight") || !strings.Contains(log.String(), "WARN") {
		t.Errorf("the log is %q, expected a warning about unused.weight", log.String())
	}
}

// TestMemory: a plan that does not fit is ErrOutOfMemory, and one of another model is ErrWrongModel.
func TestMemory(t *testing.T) {
	ram := exec.Options{RAM: exec.RAM{Total: 1 << 20, Available: 1 << 10}}
	if _, err := pesti.Open(pesti.Demo, pesti.Options{Engine: ram}); !errors.Is(err, pesti.ErrOutOfMemory) {
		t.Errorf("error %v, expected ErrOutOfMemory", err)
	}
	c := must(pesti.Compile(pesti.Demo, pesti.Options{Compile: lower.Options{Ctx: 64}}))
	c.Plan.Model.Size++
	f := must(gguf.Parse(pesti.Demo, demo.GGUF()))
	defer f.Close()
	if _, err := pesti.New(f, c.Plan, pesti.Options{}); !errors.Is(err, pesti.ErrWrongModel) {
		t.Errorf("error %v, expected ErrWrongModel", err)
	}
}

// TestOpenPlan opens a plan that was written, and refuses one of another model.
func TestOpenPlan(t *testing.T) {
	c, err := pesti.Compile(pesti.Demo, pesti.Options{Compile: lower.Options{Ctx: 128}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Fused == nil || c.Built == nil || len(c.Notes) == 0 {
		t.Errorf("graphs and notes are missing: %+v", c)
	}
	path := filepath.Join(t.TempDir(), "demo.plan")
	write := func(p *plan.Plan) {
		t.Helper()
		if err := os.WriteFile(path, plan.Print(p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(c.Plan)
	m, err := pesti.OpenPlan(path, "", pesti.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	want, _, _ := collect(t, open(t, pesti.Options{}), once, pesti.Params{MaxTokens: 20})
	if text, _, _ := collect(t, m, once, pesti.Params{MaxTokens: 20}); text != want {
		t.Errorf("text %q, expected %q", text, want)
	}
	c.Plan.Model.Size++
	write(c.Plan)
	if _, err := pesti.OpenPlan(path, "", pesti.Options{}); !errors.Is(err, pesti.ErrWrongModel) {
		t.Errorf("a plan of another model: error %v, expected %v", err, pesti.ErrWrongModel)
	}
}

// TestSavedPlan saves plans that Compile made of relative paths, in another folder. They open with the model and
// the sidecar that they name, also from another working folder, with the logits of the model.
func TestSavedPlan(t *testing.T) {
	models, plans := t.TempDir(), t.TempDir()
	t.Chdir(models)
	data := must(tiny.GGUF(tiny.Config{}))
	if err := os.WriteFile("m.gguf", data, 0o600); err != nil {
		t.Fatal(err)
	}
	writeWeights(t, "m.safetensors", must(gguf.Parse("m.gguf", data)))
	ids := []int32{1, 2, 3, 4, 5}
	for _, weights := range []string{"", "m.safetensors"} {
		o := pesti.Options{Weights: weights, Compile: lower.Options{Ctx: 64}}
		m := must(pesti.Open("m.gguf", o))
		want := must(m.Logits(t.Context(), ids))
		named := m.Plan().Model.File
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		c := must(pesti.Compile("m.gguf", o))
		if c.Plan.Model.File != named || !filepath.IsAbs(filepath.FromSlash(named)) {
			t.Errorf("the plans of Compile and Open name %q and %q, expected one absolute path", c.Plan.Model.File, named)
		}
		path := filepath.Join(plans, "m.plan")
		if err := os.WriteFile(path, plan.Print(c.Plan), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Chdir(plans)
		m, err := pesti.OpenPlan("m.plan", "", pesti.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := must(m.Logits(t.Context(), ids)); !slices.Equal(got, want) {
			t.Errorf("with weights %q: the saved plan has other logits", weights)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		t.Chdir(models)
	}
	// A plan keeps the path that the options name. One that names no model is opened with Demo.
	c := must(pesti.Compile("m.gguf", pesti.Options{Compile: lower.Options{Ctx: 64, File: "../here/m.gguf"}}))
	if got := c.Plan.Model.File; got != "../here/m.gguf" {
		t.Errorf("the plan names %q, expected the path of the options", got)
	}
	c.Plan.Model.File = ""
	path := filepath.Join(plans, "unnamed.plan")
	if err := os.WriteFile(path, plan.Print(c.Plan), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pesti.OpenPlan(path, "", pesti.Options{})
	if !errors.Is(err, pesti.ErrWrongModel) || !strings.Contains(err.Error(), "open the plan with its model") {
		t.Errorf("a plan without the name of its model: error %v", err)
	}
}

// TestAllocations: a token allocates nothing but its share of a block of text.
func TestAllocations(t *testing.T) {
	m := open(t, pesti.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, p := range []pesti.Params{{IgnoreEOG: true}, {IgnoreEOG: true, Temp: 0.8, TopK: 40, Seed: 1, Stop: []string{"\x00"}}} {
		n := 0
		var before, after runtime.MemStats
		for _, err := range m.Generate(ctx, once, p) {
			if err != nil {
				t.Fatal(err)
			}
			switch n++; n {
			case 50:
				runtime.ReadMemStats(&before)
			case 250:
				runtime.ReadMemStats(&after)
			}
			if n == 250 {
				break
			}
		}
		if mallocs := after.Mallocs - before.Mallocs; mallocs > 20 {
			t.Errorf("%+v: %d allocations in 200 tokens, expected those of a block of text", p, mallocs)
		}
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
