package conformance

import (
	"slices"
	"strings"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	device "pesti/exec/cuda"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/lower/cpu"
	"pesti/lower/cuda"
	"pesti/lower/target"
	"pesti/ops"
	"pesti/ops/ref"
)

// TestTablesAgree compares the tables of three packages that do not import each other: what
// lowering uses, what plans may contain, and what the executor has.
func TestTablesAgree(t *testing.T) {
	signatures := map[string]*plan.Signature{}
	for i, s := range plan.Kernels() {
		signatures[s.Name] = &plan.Kernels()[i]
	}
	has := map[string]bool{}
	for _, row := range kernel.Table() {
		has[row.Name] = true
		if signatures[row.Name] == nil {
			t.Errorf("kernel %s has no signature", row.Name)
		}
	}
	for _, name := range device.Kernels() {
		has[name] = true
		if signatures[name] == nil {
			t.Errorf("kernel %s has no signature", name)
		}
	}
	for name := range signatures {
		if !has[name] && !plan.IsTransfer(name) { // a transfer is a copy between devices, not a kernel
			t.Errorf("signature %s has no kernel", name)
		}
	}
	for _, l := range slices.Concat(cpu.Kernels, cpu.Reference, cuda.Kernels, cuda.Chunked, cuda.Reference()) {
		sig := signatures[l.Kernel]
		if sig == nil {
			t.Errorf("op %s is lowered to %s, which is no kernel", l.Op.Name, l.Kernel)
			continue
		}
		if len(l.In) != len(l.Op.In) || len(l.Out) != l.Op.Out {
			t.Errorf("op %s has %d operands and %d results, its lowering to %s has %d and %d", l.Op.Name, len(l.Op.In), l.Op.Out, l.Kernel, len(l.In), len(l.Out))
		}
		for _, role := range slices.Concat(l.In, l.Out) {
			if role != "" && sig.Operand(role) == nil {
				t.Errorf("op %s: kernel %s has no operand %q", l.Op.Name, l.Kernel, role)
			}
		}
		if strings.HasPrefix(l.Kernel, "ref.") { // other kernels may lack an attribute; then a reference kernel computes the op
			for _, a := range l.Op.Attrs {
				chosen := a.Name == "kernels" // matmul kernels, set where an op is not left to a reference kernel
				if !chosen && !slices.ContainsFunc(sig.Params, func(p plan.ParamSpec) bool { return p.Name == a.Name }) {
					t.Errorf("op %s has the attribute %s, expected a parameter of that name in the signature of kernel %s", l.Op.Name, a.Name, l.Kernel)
				}
			}
		}
		if !slices.Contains(sig.Splits, l.Split.By) || l.Small && !slices.Contains(sig.Splits, "each") {
			t.Errorf("op %s: kernel %s does not support the split of its lowering", l.Op.Name, l.Kernel)
		}
	}
}

// TestEveryOpLowers checks that every op has a kernel, and every basic op a reference kernel, so
// that a plan without passes runs.
func TestEveryOpLowers(t *testing.T) {
	in := func(list []target.Lowering, op *graph.Op) bool {
		return slices.ContainsFunc(list, func(l target.Lowering) bool { return l.Op == op })
	}
	for _, row := range ops.Table() {
		if row.Eval == nil && row.Expand == nil || slices.Contains([]*graph.Op{ops.Transfer, ops.GetPart, ops.Sum, ops.Concat}, row.Op) { // inputs, states, and ops that only plans for several devices have
			continue
		}
		if !in(cpu.Kernels, row.Op) && !in(cpu.Reference, row.Op) && !in(cuda.Kernels, row.Op) {
			t.Errorf("op %s has no kernel, expected a row in Kernels or Reference of lower/cpu/cpu.go", row.Op.Name)
		}
		if row.Expand == nil && row.Op != ops.Quantize && row.Op != ops.QuantizeQ8 && row.Op != ops.Round && !in(cpu.Reference, row.Op) {
			t.Errorf("op %s has no reference kernel, expected a row in Reference of lower/cpu/cpu.go", row.Op.Name)
		}
	}
}

// TestMatmulKernels compares lowering's lists of types that have integer kernels and tile kernels
// with the executor's kernels.
func TestMatmulKernels(t *testing.T) {
	integer, plane, float, tiles := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, mm := range kernel.Matmuls() {
		if mm.Layout != "" { // the same product on packed weights
			continue
		}
		parts := strings.Split(mm.Name, ".")
		if len(parts) != 3 || parts[0] != "gemv" && parts[0] != "gemm" || parts[1] != strings.ToLower(mm.Type.String()) {
			t.Errorf("matmul kernel %q of %s, expected gemv or gemm, type, activations", mm.Name, mm.Type)
			continue
		}
		switch parts[2] {
		case target.Q8x2:
			integer[parts[0]+parts[1]] = true
		case target.Q8:
			plane[parts[0]+parts[1]] = true
		case target.F32:
			float[parts[0]+parts[1]] = true
		case target.BF16:
			tiles[parts[0]+parts[1]] = true
		default:
			t.Errorf("matmul kernel %q: activations %q", mm.Name, parts[2])
		}
	}
	for id := range quant.Type(64) {
		info, ok := quant.Lookup(id)
		if !ok || info.Dequantize == nil {
			continue
		}
		name := strings.ToLower(info.Name)
		for _, family := range []string{"gemv", "gemm"} {
			if !float[family+name] {
				t.Errorf("no kernel %s.%s.f32, although the type can be dequantized", family, name)
			}
			if cpu.Tiles(graph.DType(name), 32) != tiles[family+name] {
				t.Errorf("kernel %s.%s.bf16: lowering says %v, the executor %v", family, name, cpu.Tiles(graph.DType(name), 32), tiles[family+name])
			}
			if cpu.Integer(graph.DType(name)) != integer[family+name] {
				t.Errorf("kernel %s.%s.q8x2: lowering says %v, the executor %v", family, name, cpu.Integer(graph.DType(name)), integer[family+name])
			}
			if cpu.Integer(graph.DType(name)) != plane[family+name] {
				t.Errorf("kernel %s.%s.q8: lowering says %v, the executor %v", family, name, cpu.Integer(graph.DType(name)), plane[family+name])
			}
		}
	}
}

// TestLayouts checks that plans know the layouts of the kernels, with their sizes, and that what
// lowering chooses for an instruction set is a pair of kernels, gemv and gemm.
func TestLayouts(t *testing.T) {
	var have []plan.Layout
	for _, l := range kernel.Layouts() {
		const rows = 16 // of a panel; 17 rows are two panels
		k := 3 * l.Block
		if one, two := l.Size(rows, k), l.Size(rows+1, k); one != 3*l.Bytes || two != 2*one {
			t.Errorf("layout %s of %s: %d rows of %d take %d bytes, %d rows %d", l.Name, l.Type, rows, k, one, rows+1, two)
		}
		have = append(have, plan.Layout{Name: l.Name, Type: strings.ToLower(l.Type.String()), Rows: rows, Block: int64(l.Block), Bytes: int64(l.Bytes)})
	}
	for _, l := range device.Layouts() {
		have = append(have, plan.Layout{Name: plan.SOA, Type: l.Type, Rows: 1, Block: int64(l.Block), Bytes: int64(l.Bytes())})
	}
	if want := plan.Layouts(); !slices.Equal(have, want) {
		t.Errorf("kernels have the layouts %v, plans know %v", have, want)
	}
	names := map[string]bool{}
	for _, mm := range kernel.Matmuls() {
		names[mm.Name] = true
	}
	packed := 0
	for _, set := range plan.ISAs {
		for id := range quant.Type(64) {
			info, ok := quant.Lookup(id)
			if !ok || info.Dequantize == nil {
				continue
			}
			kind := strings.ToLower(info.Name)
			for _, act := range []string{target.F32, target.Q8x2, target.Q8} {
				layout := cpu.Layout(set, graph.DType(kind), act)
				if layout == "" {
					continue
				}
				packed++
				for _, family := range []string{"gemv", "gemm"} {
					if name := plan.MatmulName(family, kind, layout, act); !names[name] {
						t.Errorf("on %s lowering chooses %s, which is no kernel", set, name)
					}
				}
			}
		}
	}
	if packed == 0 {
		t.Error("no instruction set has kernels for packed weights")
	}
}

// TestSharedConstants checks that leaf packages, which may not import each other, agree on sizes.
func TestSharedConstants(t *testing.T) {
	if plan.PageTokens != ref.PageTokens {
		t.Errorf("pages of %d positions in plans, of %d in caches", plan.PageTokens, ref.PageTokens)
	}
	if f, ok := plan.LookupFormat(target.BF16); !ok || f.Bytes != 2*f.Elems {
		t.Errorf("bf16 is %+v in plans, expected 2 bytes each", f)
	}
	for format, bytes := range map[string]func(int) int{target.Q8x2: numfmt.Q8x2Bytes, target.Q8: numfmt.Q8Bytes} {
		f, ok := plan.LookupFormat(format)
		if !ok {
			t.Fatalf("plans have no format %s", format)
		}
		for _, n := range []int64{32, 64, 896, 4864} {
			size, err := f.Size(n)
			inGraph := graph.Type{DType: graph.DType(format), Shape: []graph.Dim{graph.N(n)}}.Bytes(func(d graph.Dim) int64 { return d.N })
			if want := int64(bytes(int(n))); err != nil || size != want || inGraph != want {
				t.Errorf("%d activations of %s take %d bytes (%v) in plans, %d in graphs, %d in kernels", n, format, size, err, inGraph, want)
			}
		}
	}
}

// TestInstructionSets checks that plans may name exactly the instruction sets that the executor can
// detect.
func TestInstructionSets(t *testing.T) {
	var names []string
	for _, s := range isa.Detect() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(plan.ISAs)); !slices.Equal(names, want) {
		t.Errorf("the executor detects %v, plans may name %v", names, want)
	}
}
