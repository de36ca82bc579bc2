// Package kernel contains the CPU kernels: the functions that compute the steps of a plan. It has
// one table with a row for each kernel in exec/plan's signature table, and a second table with the
// matmul kernels, which a step names for each of its weights.
//
// A kernel is bound once, when a plan is loaded, to the memory of its operands and to one worker.
// A run then supplies only the number of rows. A bound kernel allocates nothing, and writes only its
// outputs and its worker's scratch.
//
// A row's result depends on that row alone. It does not depend on the other rows of the step, their
// number, the number of workers, or how a prompt was cut into steps. Products are rounded before they
// are added (`float32(x*y) + z`), so that the compiler never emits a fused multiply-add.
//
// The package imports gguf/numfmt, gguf/quant, ops/ref and exec/plan. It must not import anything about engines,
// sessions, threads, graphs or models.
//
// # How to add a kernel
//
//  1. exec/plan/kernels.go: its signature, with its formula in a comment. The verifier knows only
//     the signature: operands and extents list all memory that the kernel may touch, and rules are
//     the conditions on its parameters that make this true. Its cost serves profiles: the number of
//     operations, and the bytes that it reads of each operand that it does not read in full.
//  2. Here: a bind function, which reads a binder and returns a Func, in the file with similar
//     kernels; a row in the table below (in reference.go for a reference kernel); and test cases that
//     compare it with ops/ref or float64: for a kernel that works row by row, in rowCases of
//     rows_test.go. TestEveryKernelHasACase fails for a kernel without one.
//  3. lower/cpu/cpu.go: a row in Kernels for the op that it computes. Its parameters follow from the
//     signature: each is an attribute of the op, or computed from the operands in
//     lower/target/params.go, or stated in the row.
//  4. graph/draw/kind.go: its name in the row of its kind, which gives the color in pictures. A
//     reference kernel (ref.*) needs none: they all have one kind.
//
// Then run
//
//	go test ./exec/plan ./exec/cpu/kernel ./lower ./graph/draw
//	go test ./conformance -run 'TablesAgree|SameBytes|ExactAgainstOracle'
//
// # How to add a matmul kernel for a weight type
//
// With float32 activations, every type that gguf/quant can dequantize has a matmul kernel already. To
// dequantize it with AVX2, add a function in _asm/unpacked and a row in unpacked_avx2.go.
//
// For integer activations (q8, q8x2), add a row in swarTypes of swar.go with an unpack function, and
// the type's name in integerTypes of lower/cpu/cpu.go; TestMatmulKernels fails if one is missing.
//
// For panels of 16 rows (layout panel16), add a row in layouts of panel16.go, which creates the portable
// kernels, and a row in the table of exec/plan/layout.go. In assembly, add a row in Formats of
// _asm/format, which generates kernels for AVX2, AVX-512 and AMX, and rows in assemblyMatmuls of
// panel16_avx2.go, panel16avx512Kernels and panel16amxKernels. Run
//
//	go test ./exec/cpu/kernel -run Matmul
//	go test ./conformance -run 'MatmulKernels|TensorTypes'
//
// # How to add a variant of a kernel
//
// A variant is a row with the same name and another instruction set, after the portable row. Of the
// rows whose set the plan allows, the last one is bound. Norms, quantization, gates and attention are
// written once, on top of inner loops: a variant of them is another set of inner loops, see vector.go.
// For other kernels
//
//  1. write the code in files whose build constraints name the architecture, with a list of its rows,
//     and an empty list in a file for all other architectures (compare tiles_assembly.go and
//     tiles_other.go, whose lists are of matmul kernels; yours is of Rows). A weight may be in panels,
//     see matrix in binder.go; leave to the portable code what the variant does not handle. Assembly
//     for amd64 is generated: write _asm/NAME/main.go (_asm/README.md explains it, probe is a short
//     example) with the constraint "!purego", since the file name has the architecture;
//     make asm ASSEMBLERS=NAME writes NAME_amd64.s and NAME_amd64.go;
//  2. append that list to table, or, for the products of a weight type, to matmuls. Add gemv and gemm
//     of one type together: a prompt's bits must not depend on which of the two processed a token;
//  3. add tests. The matmul tests run every row that the machine supports. Tests in eachSet, such as
//     TestRowKernels over rowCases, run the instruction sets of vector.go, and so run a variant for one
//     of those sets if its kernel has a case. Rows of rowCases have 96 elements, a multiple of every
//     vector, and few weight types: add a test for the rest of a row, and a case for a type that the
//     variant handles by itself. For any other test or set, set the field isa of the call in
//     help_test.go. Insert a fault into each branch of the variant once, to see that a test runs it.
//
// A plan names the instruction set that it was compiled for, by default the best of this machine; it
// does not name variants. An instruction set that package isa does not know needs a row there and its
// name in plan.ISAs. Run
//
//	go test ./exec/cpu/kernel
//	go vet -tags purego ./exec/cpu/kernel
//	GOARCH=arm64 go vet ./exec/cpu/kernel
//	make check-asm
//	go test ./exec/cpu/kernel -run '^$' -bench 'Matmul|Attention|Vectors'
//	go test ./conformance -run 'SameBytes|InstructionSets|ExactAgainstOracle'
//	go run ./cmd/pesti info
//
// and repeat with PESTI_ISA=portable to compare. The benchmarks do not cover embed, select and copy.
//
// Traps, whichever you add:
//   - Always write float32(x*y) + z. Without the conversion some machines round once, others twice.
//   - A row's bits must be the same in a step of one token and in one of 512, with one worker and with
//     ten. Sum in an order that depends only on the row's own length.
//   - Bind may allocate, the Func may not; TestNoAllocations checks it.
//   - Scratch belongs to one worker and contains whatever earlier steps wrote. Its size is a formula in
//     the signature, which must not decrease when a bound grows.
//   - A NaN in a row must appear in that row's result and in no other.
package kernel

import (
	"fmt"
	"slices"

	"pesti/exec/plan"
)

// A Func computes one worker's share of one step.
type Func func(r *Run)

// A Run has the values that change from one execution of a program to the next.
type Run struct {
	T int // number of tokens
	R int // number of rows of logits
}

// A Row is one kernel in one variant.
type Row struct {
	Name string
	ISA  string // instruction set that it requires, a name of exec/cpu/isa
	bind func(b *binder) Func
}

// Table returns the kernels, one row per name and variant.
func Table() []Row { return slices.Clone(table) }

var table = slices.Concat(portableRows, referenceRows, vectorRows())

// vectorRows returns the variants of vectorKernels, one for each set of inner loops in assembly.
func vectorRows() (rows []Row) {
	for _, v := range assemblyVectors {
		for _, r := range portableRows {
			if slices.Contains(vectorKernels, r.Name) {
				rows = append(rows, Row{r.Name, v.isa, r.bind})
			}
		}
	}
	return rows
}

// vectorKernels lists the kernels that are written on top of inner loops (binder.vectors).
var vectorKernels = []string{"norm", "norm_add", "quantize", "gated_mlp", "attention"}

var portableRows = []Row{
	{"embed", "portable", bindEmbed},
	{"norm", "portable", bindNorm},
	{"norm_add", "portable", bindNormAdd},
	{"quantize", "portable", bindQuantize},
	{"matmul_group", "portable", bindMatmulGroup},
	{"gated_mlp", "portable", bindGated},
	{"attention", "portable", bindAttention},
	{"select", "portable", bindSelect},
	{"copy", "portable", bindCopy},
}

// Bind returns the function that computes worker b.Worker's share of b.Step, in the best variant whose
// instruction set is in isas. Bind trusts that plan.Verify accepted the plan of the step. It returns an
// error for a step that it cannot compute, for example if a matmul kernel is not in the table.
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

// A Binding is a step together with the memory of its operands, for one worker.
type Binding struct {
	Step     *plan.Step
	Operands map[string]Operand // by role
	Scratch  []byte             // of this worker only
	Worker   int
	Workers  int
	Ctx      int // context length in tokens, C in the signatures
	SeqPages int // pages of one sequence in the page table, P in the signatures

	Choices *Choices // of the engine; nil for the defaults
}

// An Operand is the memory of one operand of a step.
type Operand struct {
	Format string // element format; for a weight, the lower-case name of its type
	Kernel string // for a weight of a matmul, the name of its matmul kernel
	Layout string // for a weight, a name in Layouts, or "" for the layout of the file
	Data   []byte // aligned to the size of its elements

	Scales []float32 // for a weight of type f8_e4m3, the scale of each row
	Staged bool      // for a table of embeddings: row m of Data is the row of the batch's m-th token
}
