package gguf

import (
	"fmt"
	"math"

	"pesti/gguf/quant"
)

// A Finding is a block of weights with a value that is NaN or infinite.
type Finding struct {
	Tensor string
	Block  int64 // index in the tensor, in blocks of its type; −1 for the whole tensor
	What   string
}

// String returns the finding on one line.
func (d Finding) String() string {
	if d.Block < 0 {
		return fmt.Sprintf("tensor %q: %s", d.Tensor, d.What)
	}
	return fmt.Sprintf("tensor %q, block %d: %s", d.Tensor, d.Block, d.What)
}

// maxFindings limits the number of blocks that are reported for one tensor.
const maxFindings = 8

// Check reads all tensors and returns the blocks with a scale, or an element,
// that is NaN or infinite, in directory order. If a tensor has many, the first
// few are listed and the rest counted.
func (f *File) Check() []Finding {
	var all []Finding
	for i := range f.tensors {
		t := &f.tensors[i]
		in, _ := quant.Lookup(t.Type)
		var found []Finding
		count := 0
		report := func(block int64, what string) {
			if count++; count <= maxFindings {
				found = append(found, Finding{t.Name, block, what})
			}
		}
		err := f.read(t, func(data []byte) { checkBlocks(in, data, report) })
		if count > maxFindings {
			found = append(found, Finding{t.Name, -1, fmt.Sprintf("%d blocks more", count-maxFindings)})
		}
		if err != nil {
			found = append(found, Finding{t.Name, -1, err.Error()})
		}
		all = append(all, found...)
	}
	return all
}

// checkBlocks reports the blocks of data with a scale that is not finite or, for
// types without blocks, the elements that are not finite.
func checkBlocks(in *quant.Info, data []byte, report func(block int64, what string)) {
	if in.BlockLen > 1 {
		for block := int64(0); len(data) >= in.BlockBytes; block++ {
			for _, s := range in.Scales {
				if x := s.Read(data[s.At:]); !finite(x) {
					report(block, fmt.Sprintf("the scale at byte %d is %v, expected a finite number", s.At, x))
					break
				}
			}
			data = data[in.BlockBytes:]
		}
		return
	}
	if in.Dequantize == nil {
		return
	}
	var buf [1024]float32
	for base := int64(0); len(data) > 0; {
		part := buf[:min(len(buf), len(data)/in.BlockBytes)]
		in.Dequantize(part, data)
		for i, x := range part {
			if !finite(x) {
				report(base+int64(i), fmt.Sprintf("the value is %v, expected a finite float32", x))
			}
		}
		base += int64(len(part))
		data = data[len(part)*in.BlockBytes:]
	}
}

func finite(x float32) bool { return math.Float32bits(x)>>23&0xff != 0xff }
