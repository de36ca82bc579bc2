package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	lib "pesti"
)

// story begins a story, in storyTokens tokens of the demo.
const (
	story       = "Once upon a time"
	storyTokens = 4
)

// runs is a run that must succeed; it returns the text and the statistics.
func runs(t *testing.T, args ...string) (string, runStats) {
	t.Helper()
	r := pesti(append([]string{"run", "--stats", "json"}, args...)...)
	if r.code != 0 {
		t.Fatalf("pesti run %q: exit code %d: %s", args, r.code, r.err)
	}
	return r.out, statsOf(t, r.err)
}

func statsOf(t *testing.T, text string) (s runStats) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatalf("statistics are %q: %v", text, err)
	}
	return s
}

func TestRunIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "demo.plan")
	ok(t, "compile", "demo", "-o", plan, "-t", "3")
	for _, how := range [][]string{
		{"--temp", "0"},
		{"--seed", "7"},
		{"--seed", "7", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--repeat-penalty", "1.3"},
	} {
		want, _ := runs(t, append(how, "demo", "-p", story, "-n", "24")...)
		if want == "" {
			t.Fatalf("%q: no text", how)
		}
		for _, input := range [][]string{
			{"demo"}, {"demo", "-t", "1"}, {"demo", "-t", "2"}, {"demo", "--threads", "3"}, {"demo", "--ubatch", "3"},
			{plan}, {plan, "-t", "1"}, {plan, "-t", "2"}, {plan, "-t", "3"}, {plan, "--model", "demo"},
		} {
			if got, _ := runs(t, slices.Concat(how, input, []string{"-p", story, "-n", "24"})...); got != want {
				t.Errorf("%q %q continues %q, want %q", input, how, got, want)
			}
		}
	}
}

func TestRunSeeds(t *testing.T) {
	text := map[string]bool{}
	for range 3 {
		out, _ := runs(t, "-p", story, "-n", "40", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0")
		text[out] = true
	}
	if len(text) != 3 {
		t.Errorf("3 runs without a seed gave %d texts, want as many", len(text))
	}
}

func TestRunStops(t *testing.T) {
	full, s := runs(t, "-p", story, "--temp", "0")
	if s.Stop != lib.StopEOG || s.PromptTokens != storyTokens || s.GeneratedTokens < 20 || s.Fallbacks != 0 || s.LoadMS <= 0 || s.PrefillTS <= 0 || s.DecodeTS <= 0 {
		t.Errorf("statistics of a whole story: %+v", s)
	}
	if strings.HasPrefix(full, story) || strings.Contains(full, "<|") || full != strings.TrimRight(full, "\n") {
		t.Errorf("the text is %q, want new text alone", full)
	}

	ten, s := runs(t, "-p", story, "--temp", "0", "-n", "10")
	if s.Stop != lib.StopLength || s.GeneratedTokens != 10 || !strings.HasPrefix(full, ten) || ten == "" {
		t.Errorf("-n 10 gives %q, %+v", ten, s)
	}
	none, s := runs(t, "-p", story, "--temp", "0", "-n", "0")
	if s.Stop != lib.StopLength || s.GeneratedTokens != 0 || none != "" || s.PrefillTS <= 0 || s.DecodeTS != 0 {
		t.Errorf("-n 0 gives %q, %+v", none, s)
	}
	one, s := runs(t, "-p", story, "--temp", "0", "-n", "1")
	if s.GeneratedTokens != 1 || one == "" || !strings.HasPrefix(ten, one) {
		t.Errorf("-n 1 gives %q, %+v", one, s)
	}

	// A stop string that begins and ends inside tokens.
	at := len(full) / 2
	stop := full[at : at+9]
	got, s := runs(t, "-p", story, "--temp", "0", "--stop", "never in it", "--stop", stop)
	if want := full[:strings.Index(full, stop)]; got != want || s.Stop != lib.StopText {
		t.Errorf("--stop %q gives %q, %+v, want %q", stop, got, s, want)
	}
	// Text that is held back for a stop string is shown at the end if the stop string is not completed.
	if got, s := runs(t, "-p", story, "--temp", "0", "--stop", full[len(full)-3:]+"x"); got != full || s.Stop != lib.StopEOG {
		t.Errorf("held text: %q, %+v, want %q", got, s, full)
	}

	on, s := runs(t, "-p", story, "--temp", "0", "--ignore-eos", "-n", "200")
	if s.Stop != lib.StopLength || s.GeneratedTokens != 200 || !strings.HasPrefix(on, full) || on == full {
		t.Errorf("--ignore-eos gives %q, %+v", on, s)
	}
}

func TestRunContext(t *testing.T) {
	got, s := runs(t, "-p", story, "--temp", "0", "--ctx", "16")
	if s.Stop != lib.StopContext || s.GeneratedTokens != 12 || got == "" {
		t.Errorf("a context of 16 gives %q, %+v", got, s)
	}
	if _, s := runs(t, "-p", story, "--temp", "0", "--ctx", "16", "-n", "12"); s.Stop != lib.StopLength || s.GeneratedTokens != 12 {
		t.Errorf("-n up to the context: %+v", s)
	}
	if _, s := runs(t, "-p", story, "--temp", "0", "--ctx", "16", "-n", "13"); s.Stop != lib.StopContext || s.GeneratedTokens != 12 {
		t.Errorf("-n beyond the context: %+v", s)
	}
	if got, s := runs(t, "-p", story, "--ctx", "4"); got != "" || s.Stop != lib.StopContext || s.GeneratedTokens != 0 {
		t.Errorf("a prompt that fills the context gives %q, %+v", got, s)
	}
	pesti("run", "-p", story, "--ctx", "3").fails(t, 1, "4 tokens", "at most 3", "up to 512", "--ctx")
	r := pesti("run", "-p", strings.Repeat(story, 200))
	if r.fails(t, 1, "at most 512"); strings.Contains(r.err, "--ctx") {
		t.Errorf("the error is %q, want no hint at a larger context", r.err)
	}
}

func TestRunPrompts(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "prompt")
	want, _ := runs(t, "-p", story, "--temp", "0", "-n", "8")
	saveFile(t, file, story)
	if got, _ := runs(t, "-f", file, "--temp", "0", "-n", "8"); got != want {
		t.Errorf("-f continues %q, want %q", got, want)
	}
	r := call{stdin: story, args: []string{"run", "-f", "-", "--temp", "0", "-n", "8"}}.run()
	if r.out != want || r.err != "" || r.code != 0 {
		t.Errorf("-f - gives %+v, want %q and nothing else", r, want)
	}
	saveFile(t, file, story+"\n")
	if _, s := runs(t, "-f", file, "-n", "0"); s.PromptTokens != 5 {
		t.Errorf("a line break at the end of the file: %d tokens, want 5", s.PromptTokens)
	}
	saveFile(t, file, "\xff\xfe\x00")
	if _, s := runs(t, "-f", file, "-n", "0"); s.PromptTokens != 3 {
		t.Errorf("three bytes that are no text: %d tokens, want 3", s.PromptTokens)
	}
	pesti("run", "-f", filepath.Join(dir, "none")).fails(t, 1, filepath.Join(dir, "none"))

	// An empty prompt becomes the BOS token if the model has one.
	if _, s := runs(t, "-p", "", "-n", "0"); s.PromptTokens != 1 {
		t.Errorf("an empty prompt has %d tokens, want BOS alone", s.PromptTokens)
	}
	noBOS := rewrittenDemo(t, true, nil, "tokenizer.ggml.bos_token_id")
	pesti("run", noBOS, "-p", "").fails(t, 1, noBOS, "prompt is empty")
	if got, _ := runs(t, noBOS, "-p", story, "--temp", "0", "-n", "8"); got != want {
		t.Errorf("without BOS: %q, want %q", got, want)
	}
}

// A slowPipe takes some writes and is then closed.
type slowPipe struct {
	bytes.Buffer
	writes, most int
	full         func() error
}

func (p *slowPipe) Write(b []byte) (int, error) {
	if p.writes++; p.writes > p.most {
		if err := p.full(); err != nil {
			return 0, err
		}
	}
	return p.Buffer.Write(b)
}

func TestRunStreams(t *testing.T) {
	want, _ := runs(t, "-p", story, "--temp", "0", "-n", "30")
	var errs bytes.Buffer
	env := func(string) string { return "" }
	args := []string{"run", "-p", story, "--temp", "0", "-n", "30", "--stats", "json"}

	// The reader of the output closes it.
	out := &slowPipe{most: 3, full: func() error { return &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE} }}
	if code := run(context.Background(), args, nil, out, &errs, env); code != 0 {
		t.Errorf("a closed pipe: exit code %d, want 0: %s", code, &errs)
	}
	if s := statsOf(t, errs.String()); s.Stop != stopClosed || s.GeneratedTokens >= 30 {
		t.Errorf("a closed pipe: %+v", s)
	}
	if got := out.String(); !strings.HasPrefix(want, got) || got == "" || got == want {
		t.Errorf("three pieces are %q, want the beginning of %q", got, want)
	}
	errs.Reset()
	out.writes = 0
	run(context.Background(), args[:len(args)-2], nil, out, &errs, env)
	if errs.Len() > 0 {
		t.Errorf("a closed pipe: standard error has %q, want nothing", &errs)
	}

	// An interrupt after the third piece.
	for _, json := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		out = &slowPipe{most: 2, full: func() error { cancel(); return nil }}
		errs.Reset()
		if json {
			if code := run(ctx, args, nil, out, &errs, env); code != 130 {
				t.Errorf("an interrupt: exit code %d, want 130", code)
			}
			if s := statsOf(t, errs.String()); s.Stop != stopInterrupt || s.GeneratedTokens >= 30 {
				t.Errorf("an interrupt: %+v", s)
			}
		} else {
			run(ctx, args[:len(args)-2], nil, out, &errs, env)
			if !strings.Contains(errs.String(), "stopped by interrupt") {
				t.Errorf("an interrupt: standard error has %q, want statistics", &errs)
			}
		}
		if got := out.String(); !strings.HasPrefix(want, got) || got == want {
			t.Errorf("an interrupted text is %q, want the beginning of %q", got, want)
		}
	}
	// An interrupt before the prompt is evaluated.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := (call{ctx: ctx, args: args}).run(); r.code != 130 || r.out != "" || statsOf(t, r.err).Stop != stopInterrupt {
		t.Errorf("an interrupt before the first token: %+v", r)
	}
}

// Drafts change neither the text nor where it stops.
func TestRunSpeculates(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "demo.plan")
	ok(t, "compile", "demo", "-o", plan)
	again := strings.Repeat(story+", there was a clever little girl. ", 3)
	accepted := 0
	for _, how := range [][]string{
		{"--temp", "0", "-n", "0"},
		{"--temp", "0", "-n", "1"},
		{"--temp", "0", "-n", "33", "--ignore-eos"},
		{"--temp", "0", "-n", "90"},
		{"--temp", "0", "--stop", "little girl. "},
		{"--seed", "7", "-n", "60", "--repeat-penalty", "1.2"},
		{"--seed", "9", "-n", "60", "--temp", "1.2", "--top-k", "0"},
		{"--temp", "0", "--ignore-eos", "--ubatch", "40", "--ctx", "100"},
	} {
		args := append(how, "demo", "-p", again)
		want, plain := runs(t, args...)
		if plain.Proposed != 0 || plain.Accepted != 0 {
			t.Errorf("%q: %+v, want no drafts", how, plain)
		}
		for _, most := range []string{"0", "1", "7", "30"} {
			got, s := runs(t, append(args, "--speculate", most)...)
			if got != want || s.Stop != plain.Stop || s.GeneratedTokens != plain.GeneratedTokens {
				t.Errorf("%q --speculate %s gives %q, %+v, want %q, %+v", how, most, got, s, want, plain)
			}
			if s.Accepted < 0 || s.Accepted > s.Proposed || most == "0" && s.Proposed > 0 {
				t.Errorf("%q --speculate %s: %d of %d draft tokens", how, most, s.Accepted, s.Proposed)
			}
			accepted += s.Accepted
		}
	}
	if accepted == 0 {
		t.Error("no draft was right in texts that repeat themselves")
	}
	want, _ := runs(t, plan, "-p", again, "-n", "30", "--temp", "0")
	if got, s := runs(t, plan, "-p", again, "-n", "30", "--temp", "0", "--speculate", "7"); got != want || s.GeneratedTokens != 30 {
		t.Errorf("a plan gives %q, %+v, want %q", got, s, want)
	}
}
