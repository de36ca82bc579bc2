// Command benchpeers measures pesti beside llama.cpp on the same files: the two take turns, one
// process for each measurement, so that whatever else the machine does meets both. It prints tables,
// writes what it measured as JSON, and draws it.
//
//	go run ./conformance/benchpeers -pesti bin/pesti -peer FOLDER -json bench.json -svg bench.svg MODEL...
//	go run ./conformance/benchpeers -from bench.json -svg bench.svg
//
// FOLDER has llama.cpp's tools, as conformance/llamacpp/build.py makes them. Without -peer only pesti is
// measured. With -from nothing is: the tables and the picture are made of an earlier measurement.
//
// It owns the turns, the tables, the picture, and the targets; it imports nothing of this module,
// and knows programs by their command lines alone.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) { // whose text the flags have printed
			fmt.Fprintln(os.Stderr, "benchpeers:", err)
		}
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	pesti, peer, commit string
	threads, rounds     int
	prompts, depths     []int
	gen                 int
	json, svg, from     string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{prompts: []int{32, 512, 4096}, depths: []int{0, 1024, 2048, 4096}}
	f := flag.NewFlagSet("benchpeers", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.pesti, "pesti", "bin/pesti", "`FILE` of the program")
	f.StringVar(&o.peer, "peer", "", "`FOLDER` with llama.cpp's tools; none measures pesti alone")
	f.StringVar(&o.commit, "commit", "", "the `COMMIT` that pesti was built from, to be told")
	f.IntVar(&o.threads, "threads", 2, "threads of either program")
	f.IntVar(&o.rounds, "rounds", 3, "how often each program takes its turn; the median counts")
	f.Func("prompts", "tokens of prompts, a `LIST` (default 32,512,4096)", list(&o.prompts))
	f.IntVar(&o.gen, "gen", 128, "tokens to generate")
	f.Func("depths", "tokens in the context before generation, a `LIST` (default 0,1024,2048,4096)", list(&o.depths))
	f.StringVar(&o.json, "json", "", "`FILE` for what was measured")
	f.StringVar(&o.svg, "svg", "", "`FILE` for the picture")
	f.StringVar(&o.from, "from", "", "measure nothing, read a `FILE` that -json wrote")
	if err := f.Parse(args); err != nil {
		return err
	}
	r, err := o.report(ctx, f.Args(), stderr)
	if err != nil {
		return err
	}
	if o.json != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(text, '\n'), 0o666); err != nil {
			return err
		}
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, picture(r), 0o666); err != nil {
			return err
		}
	}
	_, err = io.WriteString(stdout, tables(r))
	return err
}

// report measures the models, or reads what was measured earlier.
func (o *options) report(ctx context.Context, models []string, progress io.Writer) (*report, error) {
	if o.from != "" {
		if len(models) > 0 {
			return nil, fmt.Errorf("-from %s: found models too, expected none, since nothing is measured", o.from)
		}
		return readReport(o.from)
	}
	if len(models) == 0 {
		return nil, errors.New("found no MODEL, expected at least one, or -from FILE")
	}
	if o.threads < 1 || o.rounds < 1 || o.gen < 1 {
		return nil, errors.New("-threads, -rounds and -gen: expected at least 1")
	}
	return measure(ctx, o, models, progress)
}

// list returns a flag's function that reads numbers with commas between them.
func list(to *[]int) func(string) error {
	return func(text string) error {
		*to = nil
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 {
				return fmt.Errorf("found %q, expected numbers with commas between them", word)
			}
			*to = append(*to, n)
		}
		return nil
	}
}
