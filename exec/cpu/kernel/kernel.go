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

var table = []Row{
	{"embed", "portable", bindEmbed},
	{"norm", "portable", bindNorm},
	{"norm_add", "portable", bindNormAdd},
	{"quantise", "portable", bindQuantise},
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
	Data   []byte // aligned to its element's size
}
