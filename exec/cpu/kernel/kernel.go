// Package kernel owns the CPU kernels: the functions that compute the steps of a plan, one table
// row for each kernel of exec/plan's signature table, and the table of matmul kernels that a
// group names per weight.
//
// A kernel is bound once, at load, to the memory of its operands and to one worker; what is left
// to a run is the number of rows. A bound kernel allocates nothing and writes nothing but its
// outputs and its worker's scratch.
//
// A row's result depends on nothing but that row: not on the other rows of the step, their
// number, the number of workers, or the way a prompt was cut into steps. Products are rounded
// (`float32(x*y) + z`) so that no compiler fuses them in one place and not in another.
//
// The package imports gguf/quant, ops/ref and exec/plan. It must not know engines, sessions,
// threads, graphs or models.
//
// # How to add a kernel
//
//  1. exec/plan/kernels.go: its signature, with its formula above it. The verifier knows of a kernel
//     what stands there and nothing else: operands and extents are all that it may touch, rules
//     are what its parameters must fulfil for that to hold. exec/plan/cost.go: what it computes,
//     for profiles.
//  2. Here: a function that binds it, which reads a binder and returns a Func, in the file of its
//     kin; a row in the table below; and cases in the tests, held against ops/ref or float64
//     (rowCases of rows_test.go, for what works row by row).
//  3. lower/cpu/cpu.go: a row in Kernels for the op that it computes, with a function of lower/target/params.go
//     that gives its parameters in the order of the signature.
//  4. graph/draw/kind.go: its name among those of a colour.
//
// Then run
//
//	go test ./exec/plan ./exec/cpu/kernel ./lower ./graph/draw
//	go test ./conformance -run 'TablesAgree|SameBytes|ExactAgainstOracle'
//
// # How to add a matmul kernel for a weight type
//
// With float32 activations every type has one as soon as it can be dequantized, on AVX2 in vectors where
// _asm/unpacked has a function for it and unpacked_avx2.go a row. On integers: a row
// in swarTypes of swar.go with its unpack function, and the type's name in integerTypes of
// lower/cpu/cpu.go; TestMatmulKernels holds the two together. In panels: a row in layouts of panel16.go,
// which gives the portable kernels, and in that of exec/plan/layout.go; for AVX2 a row in formats of
// _asm/panel16 and in assemblyMatmuls of panel16_avx2.go. Run
//
//	go test ./exec/cpu/kernel -run Matmul
//	go test ./conformance -run 'MatmulKernels|TensorTypes'
//
// # How to add a variant of a kernel
//
// A variant is a row of the same name for another instruction set, behind the portable row: of those
// that the plan's set allows, the last one is bound. Norms, quantization, gates and attention are
// written once, on inner loops: a variant of them is one more set of these, see vector.go. For others
//
//  1. the code, in files whose build constraints name the architecture, with a list of its rows and,
//     for other architectures, an empty one beside it, as exec/cpu/isa does for tiles;
//  2. that list joined to table or, for the products of a weight type, to matmuls: gemv and gemm of
//     one type together, since a prompt's bits must not depend on which of the two saw a token;
//  3. tests. Those of matmuls take each row that the machine can run, by itself; for other kernels
//     give the call of help_test.go the set in its field isa.
//
// Plans do not change but for the set they are for: compile takes the best that the machine and the
// tables have. A set that package isa does not know needs a row there and its name in plan.ISAs.
// Run
//
//	go test ./exec/cpu/kernel
//	go test ./exec/cpu/kernel -run '^$' -bench Matmul
//	go test ./conformance -run 'SameBytes|InstructionSets|ExactAgainstOracle'
//	go run ./cmd/pesti info
//
// and with PESTI_ISA=portable to compare.
//
// Traps of all three:
//   - float32(x*y) + z, always: without the conversion some machines round once, others twice.
//   - A row's bits must be the same in a step of one token and of 512, on one worker and on ten. Sum
//     in an order that depends on the row's own length alone.
//   - Bind may allocate, the Func may not: TestNoAllocations.
//   - Scratch is one worker's and holds what other steps left there. Its size is a formula in the
//     signature, which must grow with every bound.
//   - A NaN in a row must come out in that row, and in no other.
package kernel

import (
	"fmt"
	"slices"

	"pesti/exec/plan"
)

// A Func computes one worker's share of one step.
type Func func(r *Run)

// A Run is what changes from one execution of a program to the next.
type Run struct {
	T int // tokens in this step
	R int // rows whose logits are wanted
}

// A Row is one kernel in one variant.
type Row struct {
	Name string
	ISA  string // the least instruction set it needs, a name of exec/cpu/isa
	bind func(b *binder) Func
}

// Table returns the kernels, one row per name and variant.
func Table() []Row { return slices.Clone(table) }

var table = slices.Concat(portableRows, vectorRows())

// vectorRows are the kernels that are made of inner loops, for each set of these but the portable.
func vectorRows() (rows []Row) {
	for _, v := range assemblyVectors {
		for _, r := range portableRows {
			if slices.Contains(onVectors, r.Name) {
				rows = append(rows, Row{r.Name, v.isa, r.bind})
			}
		}
	}
	return rows
}

// onVectors are the kernels whose bind function takes the inner loops of the best set.
var onVectors = []string{"norm", "norm_add", "quantise", "gated", "attention"}

var portableRows = []Row{
	{"embed", "portable", bindEmbed},
	{"norm", "portable", bindNorm},
	{"norm_add", "portable", bindNormAdd},
	{"quantise", "portable", bindQuantize},
	{"matmul_group", "portable", bindMatmulGroup},
	{"gated", "portable", bindGated},
	{"attention", "portable", bindAttention},
	{"select", "portable", bindSelect},
	{"copy", "portable", bindCopy},

	{"ref.get_rows", "portable", bindRefGetRows},
	{"ref.scale", "portable", bindRefScale},
	{"ref.rms_norm", "portable", bindRefRMSNorm},
	{"ref.matmul", "portable", bindRefMatmul},
	{"ref.add_bias", "portable", bindRefAddBias},
	{"ref.add", "portable", bindRefAdd},
	{"ref.mul", "portable", bindRefMul},
	{"ref.silu", "portable", bindRefSiLU},
	{"ref.gelu_tanh", "portable", bindRefGELUTanh},
	{"ref.gelu_erf", "portable", bindRefGELUErf},
	{"ref.rope", "portable", bindRefRope},
	{"ref.kv_write", "portable", bindRefKVWrite},
	{"ref.attn_scores", "portable", bindRefAttnScores},
	{"ref.softmax", "portable", bindRefSoftmax},
	{"ref.attn_values", "portable", bindRefAttnValues},
}

// Bind returns the function that computes worker b.Worker's share of b.Step. Variants that need
// more than isas, the instruction sets that may be used, are passed over. Bind trusts that
// plan.Verify accepted the plan which the step is from; it returns an error for what it cannot
// compute, such as a matmul kernel that is not in its table.
func Bind(b *Binding, isas []string) (Func, error) {
	var row *Row
	for i := range table {
		if r := &table[i]; r.Name == b.Step.Kernel && slices.Contains(isas, r.ISA) {
			row = r // later rows are better
		}
	}
	if row == nil {
		return nil, fmt.Errorf("step %q: no kernel %q for %v", b.Step.Name, b.Step.Kernel, isas)
	}
	bb := &binder{Binding: b, isas: isas}
	f := row.bind(bb)
	if bb.err != nil {
		return nil, fmt.Errorf("step %q (%s): %w", b.Step.Name, b.Step.Kernel, bb.err)
	}
	return f, nil
}

// A Binding is a step whose operands are memory, for one worker.
type Binding struct {
	Step     *plan.Step
	Operands map[string]Operand // by role
	Scratch  []byte             // this worker's own
	Worker   int
	Workers  int
	Ctx      int // positions per sequence, C in the signatures
	SeqPages int // pages per sequence in the page table, P in the signatures
}

// An Operand is the memory of one role of a step.
type Operand struct {
	Format string // element format; for a weight the lower-case name of its type
	Kernel string // for a weight of a matmul, the name of its matmul kernel
	Layout string // of a weight, a name of Layouts, or "" where it lies as in the file
	Data   []byte // aligned to its element's size

	Scales []float32 // of a weight of type f8_e4m3, by which each of its rows is multiplied
}
