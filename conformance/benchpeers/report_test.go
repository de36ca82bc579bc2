package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/exec/load"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden checks the tables and the picture of an invented report with all cases: targets
// reached and missed, a model without targets, a program that was not measured.
func TestGolden(t *testing.T) {
	r, err := readReport(filepath.Join("testdata", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"tables.md": []byte(tables(r)), "picture.svg": picture(r)} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from its golden file; run go test -update and read the difference", path)
		}
	}
}

// TestPictureIsXML checks that a report without measurements, as after an interrupt, gives valid
// XML.
func TestPictureIsXML(t *testing.T) {
	full, err := readReport(filepath.Join("testdata", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*report{full, {}, {Models: []modelReport{{File: "<&>.gguf"}}}} {
		d := xml.NewDecoder(bytes.NewReader(picture(r)))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Contains(picture(r), []byte("NaN")) || bytes.Contains(picture(r), []byte("Inf")) {
			t.Error("a picture has NaN or Inf among its coordinates")
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{7, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.want || !slices.Equal(c.values, before) {
			t.Errorf("the median of %v is %v, want %v", before, got, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		target
		ratio float64
		want  string
	}{
		{target{1.3, 1.7}, 1.29, "**below**"}, {target{1.3, 1.7}, 1.3, "ok"}, {target{1.3, 1.7}, 1.7, "goal"},
		{target{2, 0}, 2, "ok"}, {target{2, 0}, 1.99, "**below**"}, {target{}, 5, "-"}, {target{1.3, 1.7}, 0, "-"},
	} {
		if got := c.verdict(c.ratio); got != c.want {
			t.Errorf("%v of %v is %q, want %q", c.ratio, c.target, got, c.want)
		}
	}
}

// TestFastMemory checks that decoding has a higher target on machines with fast memory.
func TestFastMemory(t *testing.T) {
	for read, want := range map[float64]target{49e9: {1, 1.2}, 51e9: {1.1, 1.2}} {
		m := &modelReport{File: "llama-8b-q4_k_m.gguf", Tests: []measured{{test: decodeTest, Read: []float64{read, read, 1e12}}}}
		if got := targetOf(m, decodeTest); got != want {
			t.Errorf("where memory reads %g: the target is %v, want %v", read, got, want)
		}
	}
	if got := lookup("llama-8b-q4_k_m.gguf").bandwidth(); got != (target{0.8, 0.95}) {
		t.Errorf("the target of the bandwidth is %v", got)
	}
	if got := lookup("smollm2-135m-instruct-q4_1.gguf").bandwidth(); got != bandwidth {
		t.Errorf("the target of the bandwidth is %v", got)
	}
}

// TestBusy checks that speeds measured on a busy machine are not rated. Memory is rated.
func TestBusy(t *testing.T) {
	r, err := readReport(filepath.Join("testdata", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		others *float64
		busy   bool
		says   string
	}{{new(load.Quiet), false, "Other programs used 0.05"}, {new(load.Quiet + 0.01), true, "**The machine was busy**"}, {nil, false, "not known"}} {
		r.Load.Others = c.others
		out := tables(r)
		if strings.Contains(out, "| busy |") != c.busy || strings.Contains(out, "| goal |") == c.busy || !strings.Contains(out, c.says) {
			t.Errorf("others took %v, and it prints\n%s", c.others, out)
		}
		if want := "| 700 | 900 | 592 | **above** |"; !strings.Contains(out, want) {
			t.Errorf("others took %v, and it does not print %q", c.others, want)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct{ x, step, most float64 }{
		{0, 0.2, 1}, {1, 0.2, 1}, {5, 1, 5}, {5.1, 2, 6}, {40, 10, 40}, {131, 50, 150}, {745, 200, 800}, {1e4, 2000, 1e4},
	} {
		s := newScale(c.x, 100)
		if d := s.step/c.step - 1; d > 1e-9 || d < -1e-9 || s.most < c.x || s.most/c.most > 1+1e-9 || s.most/c.most < 1-1e-9 {
			t.Errorf("up to %v: steps of %v to %v, want %v to %v", c.x, s.step, s.most, c.step, c.most)
		}
	}
}
