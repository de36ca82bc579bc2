package plan

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// A Workload describes one run of a program: the tokens and rows of logits that it computes.
type Workload struct {
	T, R int64 // tokens, and rows of logits
	Seqs int64 // sequences, which share the tokens evenly
	Pos  int64 // positions cached of each sequence before the tokens
}

// A Cost is a lower bound of what a step moves and computes. A byte counts once however often a
// kernel reads it, since later reads mostly hit a cache. Scratch does not count.
type Cost struct {
	Weights int64 `json:"weights"` // bytes of weights read, in the layout that the kernel reads
	State   int64 `json:"state"`   // bytes of KV caches read
	Values  int64 `json:"values"`  // bytes of activations and inputs read
	Written int64 `json:"written"` // bytes of activations and KV caches written
	MACs    int64 `json:"macs"`    // multiply-accumulates of products and attention
	FLOPs   int64 `json:"flops"`   // all other arithmetic; an exponential counts as 10
}

// Read returns all bytes read.
func (c Cost) Read() int64 { return plus(c.Stream(), c.Values) }

// Stream returns the bytes that are read from main memory if the model is larger than the
// processor's caches.
func (c Cost) Stream() int64 { return plus(c.Weights, c.State) }

// Plus returns the sum.
func (c Cost) Plus(o Cost) Cost {
	return Cost{plus(c.Weights, o.Weights), plus(c.State, o.State), plus(c.Values, o.Values),
		plus(c.Written, o.Written), plus(c.MACs, o.MACs), plus(c.FLOPs, o.FLOPs)}
}

// plus and product return x+y and x·y, saturated at the largest int64.
func plus(x, y int64) int64 { return x + min(y, maxInt-x) }

func product(x, y int64) int64 {
	if n, ok := mul(x, y); ok {
		return n
	}
	return maxInt
}

// A costModel holds formulas of what a kernel computes and reads, in the language of signatures. Their
// variables have the values of one workload instead of the plan's bounds: S is the workload's number of
// sequences, C the mean number of positions that a token attends to.
type costModel struct {
	macs, flops string            // flops is "0" for a kernel that only moves data; macs with a # is for each weight
	partial     map[string]string // elements read by role, if fewer than the signature's extent
	writes      map[string]string // elements written by role of a state
}

// attentionCost is the model of the fused attention kernels.
var attentionCost = costModel{
	macs:    "2*M*heads*C*head_dim",
	flops:   "12*M*heads*C + 4*M*(heads + kv_heads)*head_dim",
	partial: map[string]string{"kcache": "S*C*kv_heads*head_dim", "vcache": "S*C*kv_heads*head_dim"},
	writes:  map[string]string{"kcache": "M*kv_heads*head_dim", "vcache": "M*kv_heads*head_dim"},
}

// A Coster computes what the steps of one plan cost.
type Coster struct {
	plan    *Plan
	weights map[string]*Weight
}

// NewCoster returns the coster of a plan that verifies.
func NewCoster(p *Plan) *Coster {
	return &Coster{p, p.WeightsByName()}
}

// Step returns one worker's cost of a step of program g. For a split by tokens or by rows of the
// weights it is the cost of a step that has only the worker's share of them; for a split by heads
// it is the worker's part of the cost of all heads. It returns an error if a number exceeds an
// int64, which no real model reaches.
func (c *Coster) Step(g *Program, st *Step, l Workload, worker, workers int) (Cost, error) {
	s, sig, err := c.scope(st, l)
	if err != nil {
		return Cost{}, err
	}
	if st.Split.By == "one" && worker > 0 || !c.share(&s, st, int64(worker), int64(workers)) {
		return Cost{}, nil
	}
	w, t := &sig.cost, &tally{scope: s}
	for _, a := range st.Args {
		c.touch(t, g, &a, sig, w)
	}
	for range c.products(st, w) {
		t.cost.MACs += t.eval(w.macs)
		t.scope.Index++
	}
	t.cost.FLOPs = t.eval(w.flops)
	if t.err != nil {
		return Cost{}, fmt.Errorf("step %q: %w", st.Name, t.err)
	}
	if st.Split.By == "heads" {
		return t.cost.ofHeads(&s, int64(worker), int64(workers)), nil
	}
	return t.cost, nil
}

// Program returns the cost of all steps of a program, summed over the workers.
func (c *Coster) Program(g *Program, l Workload, workers int) (Cost, error) {
	var sum Cost
	for i := range g.Waves {
		for w := range workers {
			wave, err := c.Wave(g, i, l, w, workers)
			if err != nil {
				return Cost{}, err
			}
			sum = sum.Plus(wave)
		}
	}
	return sum, nil
}

// Wave returns one worker's cost of a wave.
func (c *Coster) Wave(g *Program, wave int, l Workload, worker, workers int) (Cost, error) {
	var sum Cost
	for j := range g.Waves[wave].Steps {
		step, err := c.Step(g, &g.Waves[wave].Steps[j], l, worker, workers)
		if err != nil {
			return Cost{}, err
		}
		sum = sum.Plus(step)
	}
	return sum, nil
}

// scope returns the scope of a step for a workload.
func (c *Coster) scope(st *Step, l Workload) (Scope, *Signature, error) {
	sig, ok := LookupKernel(st.Kernel)
	if !ok {
		return Scope{}, nil, fmt.Errorf("step %q: kernel %q is not in the signature table", st.Name, st.Kernel)
	}
	s := c.plan.Scope(nil).Of(st)
	s.T, s.R, s.S = l.T, l.R, max(l.Seqs, 1)
	s.C = sees(l, s.param("window"))
	s.Params = slices.Clone(s.Params) // share overwrites them
	return s, sig, nil
}

// sees returns the mean number of positions that a token of a sequence attends to, its own
// included.
func sees(l Workload, window int64) int64 {
	n := max(l.T/max(l.Seqs, 1), 1)
	all := l.Pos + (n+1)/2
	if window == 0 || l.Pos+n <= window {
		return all
	}
	if l.Pos >= window {
		return window
	}
	short := window - l.Pos // tokens inside the window; they see Pos+1 … window positions
	return window - int64(float64(short)/float64(n)*float64(short-1)/2+0.5)
}

// share replaces the scope's tokens or rows by a worker's share, and reports whether the share is
// not empty.
func (c *Coster) share(s *Scope, st *Step, worker, workers int64) bool {
	switch st.Split.By {
	case "tokens":
		m, _ := s.bound("M")
		lo, hi := st.Split.Share(m, worker, workers)
		if st.Rows == "R" {
			s.R = hi - lo
		} else {
			s.T = hi - lo
		}
		return hi > lo
	case "rows":
		return c.shareRows(s, st, worker, workers)
	}
	return true
}

// QueryBlock is the number of tokens in a block of the CPU kernels of attention. Workers share whole
// blocks.
const QueryBlock = 16

// ofHeads returns a worker's part of the cost of attention. Workers share (head, token block)
// pairs, ordered so that the heads of one key-value head are adjacent. The model takes all pairs as
// equally expensive. A worker reads the caches of its pairs' heads.
func (c Cost) ofHeads(s *Scope, worker, workers int64) Cost {
	heads, kv := s.param("heads"), max(s.param("kv_heads"), 1)
	blocks := product(s.S, max((s.T/s.S+QueryBlock-1)/QueryBlock, 1))
	pairs := product(heads, blocks)
	each := max(pairs/kv, 1) // pairs with the same keys and values
	r := Split{By: "heads"}.ShareGroup([]int64{pairs}, []int64{1}, worker, workers)[0]
	of := func(x int64) int64 { return proportion(x, r.Hi-r.Lo, []int64{pairs}) }
	looked := (r.Hi+each-1)/each - r.Lo/each
	return Cost{State: proportion(c.State, looked, []int64{kv}), Values: of(c.Values), Written: of(c.Written), Weights: of(c.Weights), MACs: of(c.MACs), FLOPs: of(c.FLOPs)}
}

// shareRows is share for a step that splits its weights by rows.
func (c *Coster) shareRows(s *Scope, st *Step, worker, workers int64) bool {
	if n := s.param("n"); n > 0 { // n weights with equal shares
		lo, hi := st.Split.Share(n, worker, workers)
		s.set("n", hi-lo)
		return hi > lo
	}
	var rows, sizes []int64
	for i := range st.Args {
		a := &st.Args[i]
		if a.Kernel == "" {
			continue
		}
		if w := c.weights[a.Weight]; w != nil && len(w.Dims) > 0 && w.Dims[0] > 0 {
			rows, sizes = append(rows, w.Dims[0]), append(sizes, bytesRead(w, a)/w.Dims[0])
		}
	}
	any := false
	for i, r := range st.Split.ShareGroup(rows, sizes, worker, workers) {
		s.set(indexed("n", true, i), r.Hi-r.Lo)
		any = any || r.Hi > r.Lo
	}
	return any
}

// set gives a parameter another value.
func (s *Scope) set(name string, v int64) {
	for i := range s.Params {
		if s.Params[i].Name == name {
			s.Params[i].Value = v
		}
	}
}

// bytesRead returns the bytes of a weight in the layout that an argument reads.
func bytesRead(w *Weight, a *Arg) int64 {
	if a.Kernel != "" && w.Layout != "" {
		return w.Packed
	}
	return w.Size
}

// products returns the factor of a kernel's product formula: the number of operands with products.
func (c *Coster) products(st *Step, w *costModel) int {
	if !strings.Contains(w.macs, "#") {
		return 1
	}
	n := 0
	for i := range st.Args {
		if st.Args[i].Kernel != "" {
			n++
		}
	}
	return n
}

// A tally adds up a cost and keeps the first error.
type tally struct {
	scope Scope
	cost  Cost
	err   error
}

func (t *tally) eval(formula string) int64 {
	if formula == "" || t.err != nil {
		return 0
	}
	var n int64
	n, t.err = t.scope.Eval(formula)
	return n
}

// touch adds the bytes that the step reads or writes of one argument.
func (c *Coster) touch(t *tally, g *Program, a *Arg, sig *Signature, w *costModel) {
	o, index := sig.operand(a.Role)
	if o == nil || t.err != nil {
		return
	}
	t.scope.Index = index
	defer func() { t.scope.Index = 0 }()
	extent := o.Extent
	if less, ok := w.partial[a.Role]; ok {
		extent = less
	}
	if o.Dir == WeightIn {
		elems := int64(1)
		for f := range strings.SplitSeq(extent, ",") {
			elems = product(elems, t.eval(f))
		}
		if weight := c.weights[a.Weight]; weight != nil {
			t.cost.Weights += proportion(bytesRead(weight, a), elems, weight.Dims)
		}
		return
	}
	bytes := func(formula string) int64 {
		n := t.eval(formula)
		f, _ := LookupFormat(c.plan.Buffer(g, a.Buffer).Format)
		return product(n/max(f.Elems, 1), f.Bytes)
	}
	switch written, isState := w.writes[a.Role]; {
	case isState:
		t.cost.State += bytes(extent)
		t.cost.Written += bytes(written)
	case o.Width != "":
		t.cost.State += bytes(extent)
	case o.Dir == Out:
		t.cost.Written += bytes(extent)
	default:
		t.cost.Values += bytes(extent)
	}
}

// proportion returns the bytes of elems elements of a tensor of the given size and dims.
func proportion(bytes, elems int64, dims []int64) int64 {
	all := int64(1)
	for _, d := range dims {
		all = product(all, d)
	}
	if elems >= all || all == 0 {
		return bytes
	}
	hi, lo := bits.Mul64(uint64(bytes), uint64(elems))
	n, _ := bits.Div64(hi, lo, uint64(all)) // at most bytes, since elems < all
	return int64(n)
}

// Imbalance returns the relative excess of the largest share over the mean share: 0.03 is 3 %.
func Imbalance(shares []float64) float64 {
	sum, most := 0.0, 0.0
	for _, x := range shares {
		sum += x
		most = math.Max(most, x)
	}
	if sum == 0 {
		return 0
	}
	return most*float64(len(shares))/sum - 1
}
