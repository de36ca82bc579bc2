// Command benchpeers compares the speed of pesti and llama.cpp on the same files. It alternates
// between them, with one process per measurement, so that other load on the machine affects all of
// them. Around each measurement it measures the read bandwidth of the machine. It prints tables,
// writes the measurements as JSON, and draws them.
//
//	go run ./conformance/benchpeers -pesti bin/pesti -peer FOLDER -json bench.json -svg bench.svg MODEL...
//	go run ./conformance/benchpeers -peer FOLDER -peer ik_llama.cpp=FILE MODEL...
//	go run ./conformance/benchpeers -from bench.json -svg bench.svg
//
// FOLDER has llama.cpp's tools, built by conformance/llamacpp/build.py. FILE is any llama-bench, with a
// name for the tables. Targets are for the first peer. Without -peer only pesti is measured. With -from
// nothing is measured: tables and picture are made from an earlier measurement.
//
// It contains the order of measurements, the tables, the picture, and the targets. It uses the
// programs only through their command lines, and imports exec/cpu and exec/cpu/isa for the read
// bandwidth, and exec/load.
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
		if !errors.Is(err, flag.ErrHelp) { // package flag has printed the help
			fmt.Fprintln(os.Stderr, "benchpeers:", err)
		}
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	pesti, commit    string
	peers            []string
	threads, repeats int
	prompts, depths  []int
	gen              int
	json, svg, from  string
	probe            int64 // bytes
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{prompts: []int{32, 512, 4096}, depths: []int{0, 1024, 2048, 4096}}
	f := flag.NewFlagSet("benchpeers", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.pesti, "pesti", "bin/pesti", "`FILE` of the program")
	f.Func("peer", "a `FOLDER` with llama.cpp's tools, or any llama-bench as FILE or NAME=FILE; may be repeated; without it only pesti is measured", func(text string) error {
		if text != "" { // make passes "" where llama.cpp cannot be built
			o.peers = append(o.peers, text)
		}
		return nil
	})
	f.StringVar(&o.commit, "commit", "", "the `COMMIT` that pesti was built from, for the report")
	f.IntVar(&o.threads, "threads", 2, "threads of each program")
	f.IntVar(&o.repeats, "rounds", 3, "how often each test runs in each program; the median counts")
	f.Func("prompts", "a `LIST` of prompt lengths in tokens (default 32,512,4096)", list(&o.prompts))
	f.IntVar(&o.gen, "gen", 128, "tokens to generate")
	f.Func("depths", "a `LIST` of context lengths in tokens before generation (default 0,1024,2048,4096)", list(&o.depths))
	f.StringVar(&o.json, "json", "", "`FILE` for the measurements")
	f.StringVar(&o.svg, "svg", "", "`FILE` for the picture")
	f.StringVar(&o.from, "from", "", "measure nothing and read a `FILE` that -json wrote")
	f.Int64Var(&o.probe, probeFlag[1:], 0, "print only the bytes a second that the threads read from a buffer of `BYTES`")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.probe > 0 && o.threads > 0 {
		read, err := readBandwidth(ctx, o.threads, o.probe)
		if err == nil {
			_, err = fmt.Fprintln(stdout, read)
		}
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

// report measures the models, or reads an earlier measurement.
func (o *options) report(ctx context.Context, models []string, progress io.Writer) (*report, error) {
	if o.from != "" {
		if len(models) > 0 {
			return nil, fmt.Errorf("-from %s: found MODEL arguments too, expected none, because nothing is measured", o.from)
		}
		return readReport(o.from)
	}
	if len(models) == 0 {
		return nil, errors.New("found no MODEL, expected at least one, or -from FILE")
	}
	if o.threads < 1 || o.repeats < 1 || o.gen < 1 {
		return nil, errors.New("-threads, -rounds and -gen: expected at least 1")
	}
	return measureModels(ctx, o, models, progress)
}

// list returns the function of a flag that reads numbers separated by commas.
func list(to *[]int) func(string) error {
	return func(text string) error {
		*to = nil
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 {
				return fmt.Errorf("found %q, expected numbers separated by commas", word)
			}
			*to = append(*to, n)
		}
		return nil
	}
}
