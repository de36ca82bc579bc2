package kernel

import (
	"slices"
	"testing"

	"pesti/exec/plan"
)

// TestVariants checks that a step and a weight's products use the last variant that is allowed.
func TestVariants(t *testing.T) {
	const other = "avx2"
	rows, products := table, matmuls
	t.Cleanup(func() { table, matmuls = rows, products })
	table = append(slices.Clone(table), Row{"copy", other, func(b *binder) Func {
		y := b.f32("y")
		return func(*Run) { y[0] = 7 }
	}})
	i := slices.IndexFunc(matmuls, func(m Matmul) bool { return m.Name == "gemv.f32.f32" })
	mm := matmuls[i]
	mm.ISA, mm.tile = other, func(y []float32, _ []byte, _ int, _ *activation) { y[0] = 7 }
	matmuls = append(slices.Clone(matmuls), mm)

	row := newCall("copy", "T", "one", 1, intParam("n", 1))
	row.put("x", []float32{2})
	row.put("y", []float32{0})
	product := newCall("matmul_group", "T", "one", 1, intParam("k", 1), intParam("n0", 1))
	product.scratch = 40 + 19200
	product.put("x", []float32{2})
	w := product.put("w0", []float32{1})
	product.ops["w0"] = Operand{Format: "f32", Kernel: mm.Name, Data: w.data()}
	product.put("out0", []float32{0})

	for _, c := range []struct {
		call *call
		out  string
	}{{row, "y"}, {product, "out0"}} {
		for _, use := range []struct {
			isas []string
			want float32
		}{{[]string{"portable"}, 2}, {[]string{"portable", other}, 7}} {
			f, err := Bind(&Binding{Step: &c.call.step, Operands: c.call.ops, Scratch: newMemory(c.call.scratch).data(), Workers: 1}, use.isas)
			if err != nil {
				t.Fatal(err)
			}
			f(&Run{T: 1})
			if got := c.call.mem[c.out].f32()[0]; got != use.want {
				t.Errorf("%s on %v gives %v, expected %v", c.call.step.Kernel, use.isas, got, use.want)
			}
		}
	}
	if _, err := Bind(&Binding{Step: &plan.Step{Kernel: "copy"}, Workers: 1}, []string{"amx"}); err == nil {
		t.Error("a set without kernels was accepted")
	}
}
