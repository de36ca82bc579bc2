// Command roofline compares the read bandwidth that pesti bench --roofline measures with an
// independent program in C, in alternation and on as many threads. It fails if their medians differ
// by more than 3 %.
//
// It imports exec/cpu and exec/cpu/isa. The C program, in this folder, shares nothing with them.
// The result is meaningful only on an idle machine, so this is not a test: make roofline-check.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
)

// allowed is the largest relative difference of the medians.
const allowed = 0.03

func main() {
	size := flag.Int("bytes", 400<<20, "`size` of the buffer to read, such as the size of a model's weights")
	threads := flag.Int("t", runtime.GOMAXPROCS(0), "`threads` that read")
	samples := flag.Int("r", 15, "`samples` of each program, in alternation")
	source := flag.String("c", "conformance/roofline/read.c", "`FILE` of the C program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, *source, *size, *threads, *samples); err != nil {
		fmt.Fprintln(os.Stderr, "roofline:", err)
		os.Exit(1)
	}
}

// compare samples both programs in alternation and compares the medians.
func compare(ctx context.Context, source string, size, threads, samples int) error {
	if size < 4096 || size > cpu.MaxProbe || threads < 1 || threads > runtime.NumCPU() || samples < 1 {
		return fmt.Errorf("%d bytes, %d threads and %d samples, expected 4096 to %d bytes, 1 to %d threads, and at least 1 round", size, threads, samples, cpu.MaxProbe, runtime.NumCPU())
	}
	c, err := startC(ctx, source, size, threads)
	if err != nil {
		return err
	}
	defer c.end()
	best, err := isa.Best("")
	if err != nil {
		return err
	}
	sets, err := isa.UpTo(best)
	if err != nil {
		return err
	}
	machine := cpu.New(threads)
	defer machine.Close()

	var ours, theirs []float64
	for range samples {
		// A prober does not hand out its samples, so each round has a new one.
		p, err := cpu.NewProber(machine, size, sets)
		if err != nil {
			return err
		}
		if err := errors.Join(p.SampleRead(ctx), p.SampleRead(ctx), p.SampleRead(ctx)); err != nil {
			return err
		}
		ours = append(ours, p.Roofline().Read)
		if err := p.Free(); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // until the workers are parked
		three := make([]float64, 3)
		for i := range three {
			if three[i], err = c.sample(); err != nil {
				return err
			}
		}
		theirs = append(theirs, cpu.Median(three))
	}
	a, b := cpu.Median(ours), cpu.Median(theirs)
	fmt.Printf("%d threads read %d MiB, median of %d alternating samples: pesti %.2f GB/s (%s), C %.2f GB/s (%s), pesti ÷ C %.3f\n",
		threads, size>>20, samples, a/1e9, spread(ours), b/1e9, spread(theirs), a/b)
	if math.Abs(a/b-1) > allowed {
		return fmt.Errorf("the two differ by %.1f %%, expected at most %.0f %%; is the machine idle?", 100*math.Abs(a/b-1), 100*allowed)
	}
	return nil
}

// A program is the C program. It takes one sample per input line.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	dir    string
}

// startC compiles the program and starts it.
func startC(ctx context.Context, source string, size, threads int) (*program, error) {
	dir, err := os.MkdirTemp("", "roofline")
	if err != nil {
		return nil, err
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	p := &program{dir: dir}
	binary := filepath.Join(dir, "read")
	build := exec.CommandContext(ctx, compiler, "-O3", "-march=native", "-pthread", "-x", "c", "-o", binary, source)
	if text, err := build.CombinedOutput(); err != nil {
		p.end()
		return nil, fmt.Errorf("%s: cannot be compiled by %s: %w %s; name a C compiler in CC", source, compiler, err, strings.TrimSpace(string(text)))
	}
	p.cmd = exec.CommandContext(ctx, binary, strconv.Itoa(size), strconv.Itoa(threads))
	p.cmd.Stderr = os.Stderr
	stdout, err1 := p.cmd.StdoutPipe()
	stdin, err2 := p.cmd.StdinPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		p.end()
		return nil, err
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	return p, nil
}

// sample returns bytes per second.
func (p *program) sample() (float64, error) {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return 0, err
	}
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the C program ended: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(line), 64)
}

// end ends the program and removes it.
func (p *program) end() {
	if p.stdin != nil {
		p.stdin.Close()
		p.cmd.Wait()
	}
	os.RemoveAll(p.dir)
}

// spread describes how far samples are apart.
func spread(x []float64) string {
	return fmt.Sprintf("%.2f to %.2f", slices.Min(x)/1e9, slices.Max(x)/1e9)
}
