package cuda

import (
	"fmt"
	"slices"
	"strings"

	"pesti/exec/plan"
)

// An Address is an operand of a step in the memory of a device.
type Address struct {
	Ptr    Ptr
	Format string // element format; for a weight, the name of its type
	Rows   int    // for a weight, its rows
	Scales Ptr    // for a weight, the scales of its rows, or 0
	Kernel string // for a weight of a product, the name of its matmul kernel
}

// A Binding is a step together with the addresses of its operands.
type Binding struct {
	Step     *plan.Step
	Operands map[string]Address // by role
	Scratch  Ptr
	SeqPages int // pages of a sequence in the page table
	On       Properties
}

// binders has the functions that convert steps to launches, by the kernel names of plans.
var binders = map[string]func(b *binder, m uint32) ([]Call, error){
	"cuda.embed": func(b *binder, m uint32) ([]Call, error) {
		return one(Embed{Tokens: b.ptr("tokens"), Taken: b.optional("taken"), Y: b.ptr("y"), Table: b.weight("table"),
			Scale: b.float("scale"), N: b.int("n"), M: m}.Call())
	},
	"cuda.embed_part": func(b *binder, m uint32) ([]Call, error) {
		return one(Embed{Tokens: b.ptr("tokens"), Y: b.ptr("y"), Table: b.weight("table"),
			Scale: b.float("scale"), N: b.int("n"), M: m, First: b.int("first")}.Call())
	},
	"cuda.norm": func(b *binder, m uint32) ([]Call, error) {
		return one(Norm{X: b.ptr("x"), W: b.ptr("w"), Y: b.ptr("y"), N: b.int("n"), M: m, Quantized: b.rounds("y"), Eps: b.float("eps")}.Call())
	},
	"cuda.quantize": func(b *binder, m uint32) ([]Call, error) {
		return one(Norm{X: b.ptr("x"), Y: b.ptr("y"), N: b.int("n"), M: m, Quantized: b.rounds("y")}.Call())
	},
	"cuda.norm_add": func(b *binder, m uint32) ([]Call, error) {
		return one(Norm{X: b.ptr("d"), W: b.ptr("w"), Add: b.ptr("x"), Y: b.ptr("y"), N: b.int("n"), M: m, Eps: b.float("eps")}.Call())
	},
	"cuda.gemv": func(b *binder, m uint32) ([]Call, error) {
		return one(b.group(m).Call(b.On, b.exact()))
	},
	"cuda.gemm": func(b *binder, m uint32) ([]Call, error) { return one(b.group(m).Tiles(b.exact())) },
	"cuda.gated_mlp": func(b *binder, m uint32) ([]Call, error) {
		return one(b.gated(m).Call(b.On, b.exact()))
	},
	"cuda.gemm_gated_mlp": func(b *binder, m uint32) ([]Call, error) { return one(b.gated(m).Tiles(b.exact())) },
	"cuda.attention": func(b *binder, m uint32) ([]Call, error) {
		a, format := b.attention(m), b.Operands["kcache"].Format
		a.Work, a.Arrived = b.Scratch, b.ptr("arrived")
		if room := b.int("splits"); a.splits() > int(room) {
			return nil, fmt.Errorf("%d splits, expected at most %d, for which the plan has memory", a.splits(), room)
		}
		if m <= plan.CUDAStoreApart {
			return one(a.Call(b.On, format))
		}
		return stored(a, format, func(a Attention) (Call, error) { return a.Call(b.On, format) })
	},
	"cuda.prefill": func(b *binder, m uint32) ([]Call, error) {
		format := b.Operands["kcache"].Format
		return stored(b.attention(m), format, func(a Attention) (Call, error) { return a.Prefill(b.On, format) })
	},
	"cuda.sum": func(b *binder, m uint32) ([]Call, error) {
		return one(Sum{X0: b.ptr("x0"), X1: b.optional("x1"), X2: b.optional("x2"), Res: b.optional("res"), Y: b.ptr("y"), N: m * b.int("n")}.Call())
	},
	"cuda.concat": func(b *binder, m uint32) ([]Call, error) {
		return one(Concat{X0: b.ptr("x0"), X1: b.optional("x1"), X2: b.optional("x2"), Y: b.ptr("y"),
			N0: b.int("n0"), N1: b.int("n1"), N2: b.int("n2"), M: m}.Call())
	},
	"cuda.select": func(b *binder, m uint32) ([]Call, error) {
		return one(Select{X: b.ptr("x"), Rows: b.ptr("rows"), Y: b.ptr("y"), N: b.int("n"), M: m}.Call())
	},
	"cuda.top": func(b *binder, m uint32) ([]Call, error) {
		return one(Top{X: b.ptr("x"), Ids: b.ptr("ids"), Values: b.optional("values"), Work: b.Scratch, Arrived: b.ptr("arrived"),
			N: b.int("n"), M: m, K: b.int("k")}.Call())
	},
	"cuda.copy": func(b *binder, m uint32) ([]Call, error) {
		return one(Select{X: b.ptr("x"), Y: b.ptr("y"), N: b.int("n"), M: m}.Call())
	},
}

// Kernels returns the names of the kernels that steps may use, sorted.
func Kernels() []string {
	var names []string
	for name := range binders {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Calls returns the launches that compute m rows of a step, at least one, in order. It trusts that
// plan.Verify accepted the plan of the step.
func (b *Binding) Calls(m int) ([]Call, error) {
	bind := binders[b.Step.Kernel]
	if bind == nil {
		return nil, fmt.Errorf("step %q: no kernel %q on CUDA devices", b.Step.Name, b.Step.Kernel)
	}
	bb := &binder{Binding: b}
	calls, err := bind(bb, uint32(m))
	if bb.err != nil {
		err = bb.err
	}
	if err != nil {
		return nil, fmt.Errorf("step %q (%s): %w", b.Step.Name, b.Step.Kernel, err)
	}
	return calls, nil
}

// stored returns the launches of StoreKV and of an attention kernel that does not store.
func stored(a Attention, format string, attend func(Attention) (Call, error)) ([]Call, error) {
	a.Stored = 1
	store, err := a.StoreKV(format)
	if err != nil {
		return nil, err
	}
	call, err := attend(a)
	return []Call{store, call}, err
}

func one(c Call, err error) ([]Call, error) { return []Call{c}, err }

// A binder reads a Binding and keeps the first error.
type binder struct {
	*Binding
	err error
}

func (b *binder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

func (b *binder) ptr(role string) Ptr {
	a, ok := b.Operands[role]
	if !ok || a.Ptr == 0 {
		b.fail("operand %s is missing", role)
	}
	return a.Ptr
}

// optional returns the address of an operand, or 0 if the step does not have it.
func (b *binder) optional(role string) Ptr { return b.Operands[role].Ptr }

func (b *binder) weight(role string) Weight {
	a := b.Operands[role]
	l, ok := LookupLayout(a.Format)
	if !ok {
		b.fail("weight %s has type %q, for which there is no layout on CUDA devices", role, a.Format)
		return Weight{}
	}
	return Weight{Data: b.ptr(role), Scales: a.Scales, Type: l.Code, Rows: uint32(a.Rows)}
}

// product returns the parameters that all products have. Tiled products have no norm: it is a step of
// its own.
func (b *binder) product(m uint32) Product {
	p := Product{X: b.ptr("x"), Norm: b.optional("norm"), K: b.int("k"), M: m}
	if p.Norm != 0 {
		p.Eps = b.float("eps")
	}
	return p
}

// group returns up to three products of one x.
func (b *binder) group(m uint32) Product {
	p := b.product(m)
	p.Residual = b.optional("res")
	for i := range p.Ops {
		digit := fmt.Sprint(i)
		if _, ok := b.Operands["w"+digit]; ok {
			p.Ops[i] = Operand{Weight: b.weight("w" + digit), Bias: b.optional("bias" + digit), Out: b.ptr("out" + digit)}
		}
	}
	return p
}

func (b *binder) gated(m uint32) Product {
	p := b.product(m)
	p.Ops[0] = Operand{Weight: b.weight("w0"), Out: b.ptr("y")}
	p.Ops[1] = Operand{Weight: b.weight("w1")}
	act, ok := ActivationOf(b.str("act"))
	if !ok {
		b.fail("no activation %q", b.str("act"))
	}
	p.Act = act
	return p
}

// attention returns the parameters that both attention kernels have.
func (b *binder) attention(m uint32) Attention {
	a := Attention{
		Q: b.ptr("q"), K: b.ptr("k"), V: b.ptr("v"), Pos: b.ptr("pos"), Seq: b.ptr("seq"), Pages: b.ptr("pages"),
		KCache: b.ptr("kcache"), VCache: b.ptr("vcache"), QNorm: b.optional("qnorm"), KNorm: b.optional("knorm"),
		Rope: b.optional("sines"), Out: b.ptr("out"),
		Heads: b.int("heads"), KVHeads: b.int("kv_heads"), HeadDim: b.int("head_dim"), Rot: b.int("rot"),
		Positions: b.int("positions"), Window: b.int("window"), Ring: b.int("ring"), SeqPages: uint32(b.SeqPages),
		M: m, Scale: b.float("scale"), Eps: b.float("eps"),
	}
	if b.str("layout") == "halves" {
		a.Halves = 1
	}
	return a
}

// rounds returns 1 if an operand is in q8x2, else 0.
func (b *binder) rounds(role string) uint32 {
	if b.Operands[role].Format == "q8x2" {
		return 1
	}
	return 0
}

// exact reports whether the products of a step are in float32, from the name of the matmul kernel.
func (b *binder) exact() bool { return !strings.HasSuffix(b.Operands["w0"].Kernel, ".q8x2") }

// param returns a parameter of the step. Its value has another type than T if the default in the signature does,
// or if the kernel reads it as another kind.
func param[T any](b *binder, name string) T {
	v := b.Step.Param(name)
	if v, ok := v.(T); ok {
		return v
	}
	var zero T
	if v == nil {
		b.fail("parameter %s is missing, expected type %T", name, zero)
	} else {
		b.fail("parameter %s is %v of type %T, expected type %T: its kind, its default and the kernel must agree", name, v, v, zero)
	}
	return zero
}

func (b *binder) int(name string) uint32 {
	v := param[int64](b, name)
	if v < 0 || v > 1<<31-1 {
		b.fail("parameter %s is %d, expected at most %d", name, v, 1<<31-1)
	}
	return uint32(v)
}

func (b *binder) float(name string) float32 { return float32(param[float64](b, name)) }
func (b *binder) str(name string) string    { return param[string](b, name) }
