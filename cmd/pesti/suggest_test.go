package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run -p a --temp hot", `--temp: found "hot", expected a number such as 0.5; see pesti run --help`},
		{"run -p a --seed 18446744073709551615", `--seed: found "18446744073709551615", expected an integer of 64 bits; see pesti run --help`},
		{"run -p a -n -2", `--tokens: found "-2", expected an integer, -1 or more; see pesti run --help`},
		{"bench demo -p 1e2", `--prompt: found "1e2", expected integers such as 128,512; see pesti bench --help`},
		{"compile demo -o x --verify=maybe", `--verify: found "maybe", expected true or false; see pesti compile --help`},
		{"run -p", `--prompt: found nothing after it, expected TEXT; see pesti run --help`},
		{"run -p a --precison fast", `unknown flag --precison; did you mean --precision? See pesti run --help`},
		{"run -p a --ctx-size 64", `unknown flag --ctx-size; did you mean --ctx? See pesti run --help`},
		{"run -p a --frobnicate", `unknown flag --frobnicate; see pesti run --help`},
		{"run -p a -q", `unknown flag -q; see pesti run --help`},
		{"run -m model.gguf -p a", `unknown flag -m; the model is an argument: pesti run [MODEL|PLAN] -p TEXT; see pesti run --help`},
		{"compile --model model.gguf -o x", `unknown flag --model; the model is an argument: pesti compile MODEL -o FILE.plan; see pesti compile --help`},
		{"info -m model.gguf", `unknown flag -m; see pesti info --help`},
		{"run -p a --n-predict 4", `unknown flag --n-predict; did you mean -n, --tokens? See pesti run --help`},
		{"run --prompt-file a.txt", `unknown flag --prompt-file; did you mean -f, --file? See pesti run --help`},
		{"run -p a -ngl 1", `--tokens: found "gl", expected an integer, -1 or more; did you mean --gpu-layers? See pesti run --help`},
		{"bench demo -ngl 1", `--tokens: found "gl", expected integers such as 128,512; did you mean --gpu-layers? See pesti bench --help`},
		{"compile demo -o x -ngl 1", `unknown flag -ngl; did you mean --gpu-layers? See pesti compile --help`},
		{"run -p a --n-gpu-layers 1", `unknown flag --n-gpu-layers; did you mean --gpu-layers? See pesti run --help`},
		{"comiple demo", `unknown verb "comiple"; did you mean compile? See pesti --help`},
		{"plan shwo x", `unknown verb "shwo"; did you mean show? See pesti plan --help`},
		{"frobnicate", `unknown verb "frobnicate"; see pesti --help`},
		{"help frobnicate", `unknown verb "frobnicate"; see pesti --help`},
		{"compile demo", `expected -o FILE.plan, the file to write; see pesti compile --help`},
		{"run demo demo", `found 2 arguments, expected at most one, MODEL or PLAN; see pesti run --help`},
	} {
		r := pesti(strings.Fields(c.args)...)
		if r.code != exitUsage || r.out != "" || r.err != "pesti: "+c.want+"\n" {
			t.Errorf("pesti %s: exit code %d, says %q, want %q", c.args, r.code, r.err, c.want)
		}
	}
	if got, want := ok(t, "run", "-p", story, "--temp", "0", "-n", "2", "-c", "64"), ok(t, "run", "-p", story, "--temp", "0", "-n", "2"); got != want {
		t.Errorf("with -c 64 the story goes on %q, want %q", got, want)
	}
}

// Every flag of every verb reports an invalid value in this program's words.
func TestEveryFlagTellsWhatItTakes(t *testing.T) {
	tried := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range []string{"hot!", "1e99999", "99999999999999999999"} {
				err := cmd.ParseFlags([]string{"--" + f.Name + "=" + value})
				if err == nil {
					continue // any text or name is valid
				}
				tried++
				text := flagMistake(cmd, err).Error()
				if !strings.HasPrefix(text, "--"+f.Name+`: found "`+value+`", expected `) || strings.HasSuffix(text, "expected ") || strings.Contains(text, "strconv") {
					t.Errorf("%s --%s=%s: %q", cmd.CommandPath(), f.Name, value, text)
				}
			}
		})
	}
	walk((&app{}).root())
	if tried < 50 {
		t.Errorf("only %d values are refused", tried)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ac", 1},
		{"abc", "acb", 1}, {"show", "shwo", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"a", "b", 1},
	} {
		if got, back := editDistance(c.a, c.b), editDistance(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("from %q to %q it is %d, back %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"ctx", "threads", "min-p", "kv", "top-k", "top-p"}
	for typed, want := range map[string]string{
		"cxt": "ctx", "thread": "threads", "thr": "threads", "threads-batch": "threads", "minp": "min-p",
		"": "", "k": "", "q": "", "xyz": "", "predict": "", "topk": "top-k",
	} {
		if want != "" {
			want = "; did you mean --" + want + "?"
		}
		if got := didYouMean("--", typed, names); got != want {
			t.Errorf("for %q: %q, want %q", typed, got, want)
		}
	}
}
