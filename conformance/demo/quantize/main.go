// Command quantize makes the mixed K-quant demo model from a float32 GGUF file.
//
//	go run ./conformance/demo/quantize IN.gguf OUT.gguf
//
// The types are those of common Q4_K_M files: four bits for most matrices, six where an error costs
// most, and eight for the embedding, which is also the output matrix.
package main

import (
	"fmt"
	"os"
	"strings"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// mix gives the type of a tensor: the first row whose suffix matches its name. Tensors without a
// row keep their type.
var mix = []struct {
	suffix string
	typ    quant.Type
}{
	{"token_embd.weight", quant.Q8_0},
	{"attn_v.weight", quant.Q6_K},
	{"ffn_down.weight", quant.Q6_K},
	{"attn_q.weight", quant.Q4_K},
	{"attn_k.weight", quant.Q4_K},
	{"attn_output.weight", quant.Q4_K},
	{"ffn_gate.weight", quant.Q4_K},
	{"ffn_up.weight", quant.Q4_K},
}

// fileTypeQ4KM is the value of general.file_type for "mostly Q4_K, medium".
const fileTypeQ4KM = 15

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: quantize IN.gguf OUT.gguf")
		os.Exit(2)
	}
	if err := quantize(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "quantize:", err)
		os.Exit(1)
	}
}

// quantize writes the model at in, with the types of mix, to out.
func quantize(in, out string) error {
	f, err := gguf.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	w := gguf.NewWriter()
	w.SetAll(f)
	w.SetUint32("general.file_type", fileTypeQ4KM)
	tensors := f.Tensors()
	for i := range tensors {
		t := &tensors[i]
		typ := typeOf(t)
		if typ != t.Type && t.Type != quant.F32 {
			return fmt.Errorf("%s: tensor %q is %s, expected F32", in, t.Name, t.Type)
		}
		if err := w.AddConverted(f, t, typ); err != nil {
			return err
		}
	}
	return w.WriteFile(out)
}

// typeOf returns the type that mix gives t.
func typeOf(t *gguf.Tensor) quant.Type {
	for _, row := range mix {
		if strings.HasSuffix(t.Name, row.suffix) {
			return row.typ
		}
	}
	return t.Type
}
