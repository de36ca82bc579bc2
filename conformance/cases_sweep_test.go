package conformance

import (
	"context"
	"reflect"
	"testing"
	"time"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/lower"
)

// TestFlippedModel flips bits of every byte of a header, one byte at a time, and uses each file as
// far as possible: open it, check it, compile it, evaluate one token. The reader may refuse the
// file. A model that it accepts must compile and run. Nothing may panic or take more than a second.
// The sweep covers the first 4 KiB of the demo's metadata, and a tiny model up to the end of its
// tensor directory.
func TestFlippedModel(t *testing.T) {
	small, err := tiny.GGUF(tiny.Config{Arch: "llama", Layers: 1, Types: []quant.Type{quant.Q8_0, quant.F16}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("tiny", small)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		data  []byte
		bytes int
	}{
		{"demo", demo.GGUF(), 4 << 10},
		{"tiny", small, int(f.Tensors()[0].Offset)},
	} {
		t.Run(c.name, func(t *testing.T) { sweep(t, c.data, c.bytes) })
	}
}

// sweep flips bits of the first n bytes of data, which contain a model.
func sweep(t *testing.T, data []byte, n int) {
	file, err := gguf.Parse("model", data)
	if err != nil {
		t.Fatal(err)
	}
	model, err := frontend.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	// same reports whether everything that a compilation reads is as in the original model.
	same := func(m *frontend.Model) bool {
		p := *m.Params
		p.Name = model.Params.Name
		return reflect.DeepEqual(p, *model.Params) && reflect.DeepEqual(m.File.Tensors(), file.Tensors())
	}
	if err := evaluateToken(model); err != nil {
		t.Fatal(err)
	}
	var refused, ran int
	for i := range n {
		for _, mask := range []byte{0xff, 0x80, 0x01} {
			data[i] ^= mask
			start := testenv.ProcessorTime()
			if m, err := openFlipped(data); err != nil {
				refused++
			} else if !same(m) {
				if err := evaluateToken(m); err != nil {
					t.Errorf("byte %d ^ %#x: accepted as a model, but: %v", i, mask, err)
				} else {
					ran++
				}
			}
			if took := testenv.ProcessorTime() - start; took > time.Second {
				t.Errorf("byte %d ^ %#x: took %v, expected at most a second", i, mask, took)
			}
			data[i] ^= mask
		}
	}
	t.Logf("of %d files %d are refused, %d are different models that run", 3*n, refused, ran)
	if refused == 0 || ran == 0 {
		t.Error("the sweep reaches no refusal, or no run")
	}
}

// openFlipped opens data in the same way as a program that runs a model.
func openFlipped(data []byte) (*frontend.Model, error) {
	f, err := gguf.Parse("flipped", data)
	if err != nil {
		return nil, err
	}
	if _, err := tokenizer.FromGGUF(f); err != nil {
		return nil, err
	}
	return frontend.Load(f)
}

// evaluateToken compiles a model and evaluates a token.
func evaluateToken(m *frontend.Model) error {
	res, err := lower.Compile(m, lower.Options{Ctx: min(16, m.Params.Context), Ubatch: 1, Threads: 1})
	if err != nil {
		return err
	}
	e, err := exec.Open(res.Plan, m.File, exec.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	s, err := exec.NewSession(e)
	if err != nil {
		return err
	}
	_, err = s.Feed(context.Background(), []int32{0})
	return err
}
