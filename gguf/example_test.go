package gguf_test

import (
	"fmt"
	"log"

	"pesti/gguf"
)

func ExampleOpen() {
	f, err := gguf.Open("../conformance/demo/demo.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	arch, err := f.Str("general.architecture")
	if err != nil {
		log.Fatal(err)
	}
	blocks, err := f.Uint(arch + ".block_count")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(arch, "with", blocks, "blocks")
	for i, t := range f.Tensors() {
		if i < 3 {
			fmt.Println(t.Name, t.Type, t.Dims, t.Size)
		}
	}
	// Output:
	// qwen2 with 4 blocks
	// blk.0.attn_k.bias F32 [128] 512
	// blk.0.attn_k.weight Q4_K [256 128] 18432
	// blk.0.attn_norm.weight F32 [256] 1024
}

// Any tensor can be read as float32 values, here two of its rows. Package gguf/dense reads whole
// tensors as gorgonia tensors.
func ExampleFile_Values() {
	f, err := gguf.Open("../conformance/demo/demo.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, ok := f.Tensor("blk.0.attn_k.weight")
	if !ok {
		log.Fatal("no such tensor")
	}
	values, err := f.Values(t, 10, 12)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Rows(), "rows of", t.Dims[0])
	fmt.Println(len(values), "values")
	// Output:
	// 128 rows of 256
	// 512 values
}
