// Command quantize makes the mixed K-quant demo model of a float32 GGUF file.
//
//	go run ./conformance/demo/quantize IN.gguf OUT.gguf
//
// The mix is that of the common Q4_K_M files: four bits for most matrices, six
// where an error costs most, eight for the embedding that is also the head.
package main

import (
	"fmt"
	"os"
	"strings"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// mix gives the type of a tensor: that of the first row whose suffix its name
// has. What is in no row stays as it is.
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
	for _, t := range f.Tensors() {
		typ, data, err := convert(f, &t)
		if err != nil {
			return fmt.Errorf("%s: tensor %q: %w", in, t.Name, err)
		}
		w.AddTensor(t.Name, typ, t.Dims, data)
	}
	return w.WriteFile(out)
}

// convert returns the data of t in the type that mix gives it.
func convert(f *gguf.File, t *gguf.Tensor) (quant.Type, []byte, error) {
	typ := t.Type
	for _, row := range mix {
		if strings.HasSuffix(t.Name, row.suffix) {
			typ = row.typ
			break
		}
	}
	if typ == t.Type {
		return typ, f.Bytes(t), nil
	}
	if t.Type != quant.F32 {
		return 0, nil, fmt.Errorf("is %s, expected F32", t.Type)
	}
	to, _ := quant.Lookup(typ)
	if t.Dims[0]%int64(to.BlockLen) != 0 {
		return 0, nil, fmt.Errorf("rows of %d, expected a multiple of %d for %s", t.Dims[0], to.BlockLen, typ)
	}
	from, _ := quant.Lookup(quant.F32)
	values := make([]float32, t.Elems())
	from.Dequantize(values, f.Bytes(t))
	data := make([]byte, t.Elems()/int64(to.BlockLen)*int64(to.BlockBytes))
	to.Quantize(data, values)
	return typ, data, nil
}
