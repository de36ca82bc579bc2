package ops

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"pesti/graph"
)

// A spec is one place in an op's operand or result list: a name ("res?" is optional), an element
// type, and a shape whose dims are separated by blanks. A dim is a symbol of the graph ("T",
// "C"), a formula over integer attributes ("heads*head_dim", "rot/2", "width"), or else a
// variable, which must have the same extent wherever it occurs in the op.
type spec struct {
	name  string
	dtype graph.DType
	shape string
}

// Element types in specs that match several types.
const (
	weight     graph.DType = "weight"     // any type of a model file
	activation graph.DType = "activation" // f32, or q8x2, q8 or bf16 after lowering
)

func accepts(want, got graph.DType) bool {
	switch want {
	case weight:
		return got != graph.I32 && got != graph.KV && got != graph.Q8x2 && got != graph.Q8
	case activation:
		return got == graph.F32 || got == graph.Q8x2 || got == graph.Q8 || got == graph.BF16
	}
	return want == got
}

// define returns an op whose Infer follows the specs. check, if it is not nil, checks conditions
// that specs cannot express.
func define(name string, in, out []spec, attrs []graph.AttrSpec, check func(*graph.Node) error) *graph.Op {
	op := &graph.Op{Name: name, Out: len(out), Attrs: attrs, RowWise: rowWise(in, out)}
	for _, s := range in {
		op.In = append(op.In, graph.Operand{Name: strings.TrimSuffix(s.name, "?"), Optional: strings.HasSuffix(s.name, "?")})
	}
	op.Infer = func(n *graph.Node) ([]graph.Type, error) {
		if check != nil {
			if err := check(n); err != nil {
				return nil, err
			}
		}
		u := unifier{n.Attr, make(map[string]graph.Dim)}
		for i, s := range in {
			if n.In[i] == nil {
				continue
			}
			if err := u.match(s, n.In[i].Type); err != nil {
				return nil, fmt.Errorf("operand %s is %v of type %v, %w", op.In[i].Name, n.In[i], n.In[i].Type, err)
			}
		}
		types := make([]graph.Type, len(out))
		for i, s := range out {
			types[i].DType = s.dtype
			for _, term := range strings.Fields(s.shape) {
				d, _, err := u.dim(term)
				if err != nil {
					return nil, err
				}
				types[i].Shape = append(types[i].Shape, d)
			}
		}
		return types, nil
	}
	return op
}

// rowWise reports whether an op works on rows one by one: its results have a row for each M, and
// no operand brings rows of its own.
func rowWise(in, out []spec) bool {
	for _, s := range out {
		if !strings.HasPrefix(s.shape, "M ") {
			return false
		}
	}
	for _, s := range in {
		first, _, _ := strings.Cut(s.shape, " ")
		switch graph.Sym(first) {
		case graph.T, graph.R, graph.S, graph.C:
			return false
		}
	}
	return len(in) > 0
}

// alias and writes complete an op with its (result, operand) pairs.
func alias(op *graph.Op, pairs ...[2]int) *graph.Op  { op.Alias = pairs; return op }
func writes(op *graph.Op, pairs ...[2]int) *graph.Op { op.Writes = pairs; return op }

// A unifier holds the extents of an op's shape variables that the operands so far have determined.
type unifier struct {
	attr graph.Attrs
	vars map[string]graph.Dim
}

// match checks an operand's type against its spec, and binds variables that are not bound yet.
func (u unifier) match(s spec, t graph.Type) error {
	if !accepts(s.dtype, t.DType) {
		return fmt.Errorf("expected element type %s", s.dtype)
	}
	terms := strings.Fields(s.shape)
	if len(terms) != len(t.Shape) {
		return fmt.Errorf("expected %d dims [%s]", len(terms), strings.Join(terms, ", "))
	}
	for i, term := range terms {
		want, known, err := u.dim(term)
		if err != nil {
			return err
		}
		if !known {
			u.vars[term] = t.Shape[i]
		} else if want != t.Shape[i] {
			return fmt.Errorf("expected dim %d (%s) = %v", i, term, want)
		}
	}
	return nil
}

// dim evaluates one term of a shape; known is false for a variable that is not bound yet.
func (u unifier) dim(term string) (d graph.Dim, known bool, err error) {
	switch s := graph.Sym(term); s {
	case graph.T, graph.S, graph.R, graph.C:
		return graph.Of(s), true, nil
	}
	factors, half := strings.CutSuffix(term, "/2")
	product := int64(1)
	for name := range strings.SplitSeq(factors, "*") {
		v, isAttr := u.attr[name].(int64)
		if !isAttr {
			d, known := u.vars[term]
			return d, known, nil
		}
		hi, lo := bits.Mul64(uint64(product), uint64(v))
		if v < 0 || hi != 0 || lo >= 1<<62 {
			return d, false, fmt.Errorf("%s = %s is negative or overflows", factors, strconv.FormatInt(v, 10))
		}
		product = int64(lo)
	}
	if half {
		product /= 2
	}
	return graph.N(product), true, nil
}
