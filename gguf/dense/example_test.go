package dense_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"gorgonia.org/tensor"

	"pesti/gguf"
	"pesti/gguf/dense"
)

// Read a tensor of a model and compute with it: here the sum of each row.
func ExampleRead() {
	f, err := gguf.Open("../../conformance/demo/demo.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	w, err := dense.Read(f, "blk.0.attn_k.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("weights:", w.Shape())
	sums, err := tensor.Sum(w, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("sums of rows:", sums.Shape())
	// Output:
	// weights: (128, 256)
	// sums of rows: (128)
}

// Write a tensor as an .npy file, which numpy.load reads, and read its second row back.
func ExampleOpenNpy() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "x.npy")
	out, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	if err := dense.New([]float32{1, 2, 3, 4, 5, 6}, 2, 3).WriteNpy(out); err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}

	x, err := dense.OpenNpy(path)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	cols := x.Shape[1]
	row, err := dense.Floats[float32](x, cols, cols)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Shape, x.Kind, row)
	// Output:
	// [2 3] <f4 [4 5 6]
}
