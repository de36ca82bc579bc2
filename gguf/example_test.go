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

// Any tensor is dequantised, row-major: its shape is that of numpy, the reverse of the file's.
func ExampleFile_Dense() {
	f, err := gguf.Open("../conformance/demo/demo.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	w, err := f.Dense("blk.0.attn_k.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Shape(), len(w.Data().([]float32)))
	// Output:
	// (128, 256) 32768
}
