package pass

import (
	"fmt"
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// SplitTensor returns the pass that splits matrices over devices, as Megatron-LM does (Shoeybi et
// al. 2019, arXiv:1909.08053). A matrix that feeds another product is split by rows, that other
// product's matrix by columns, so each device computes on its own parts until the partial results
// have to be summed. Each device has whole groups of attention heads with their part of the cache.
// Each has a range of the logits, which are gathered on device 0, and the same range of the
// embedding table's rows; a look-up of another row gives zeros. Every device computes norms and the
// residual stream. gathers reports whether rows of a part of a table can be looked up; if not, device 0 looks them up
// in the whole table. The pass is no row of the table Graph, since it depends on gathers and on the number of devices.
//
// Parts begin at whole heads and whole blocks of the element type, so they can have unequal sizes.
// If there are fewer units than devices, the last devices get no part. A graph in which nothing can
// be split is an error.
func SplitTensor(devices int, gathers func(table *graph.Value) bool) Pass {
	return Pass{
		Name: "split_tensor", Doc: "split matrices over devices, by rows and by columns", Required: true,
		Run: func(c *Context, g *graph.Graph) error {
			s := &splitter{c: c, g: g, m: NewMatcher(g), devices: devices, gathers: gathers, bounds: map[*graph.Value]shardBounds{}, copies: map[*graph.Value]*copies{}}
			return s.run()
		},
	}
}

// shardBounds are the bounds at which the rows of a value are split: device d has the elements
// [b[d], b[d+1]), possibly none.
type shardBounds []int64

func (c shardBounds) empty(d int) bool { return c[d] == c[d+1] }

// scaled returns the bounds of a value with n elements for every div elements of this one.
func (c shardBounds) scaled(n, div int64) shardBounds {
	scaled := slices.Clone(c)
	for i := range scaled {
		scaled[i] = scaled[i] / div * n
	}
	return scaled
}

// shared reports whether more than one device has a part.
func (c shardBounds) shared() bool { return c[1] != c[len(c)-1] }

// A splitter rewrites one graph. It first decides which values are cut, then replaces every node
// by one for each device that needs it.
type splitter struct {
	c       *Context
	g       *graph.Graph
	m       *Matcher
	devices int
	gathers func(table *graph.Value) bool
	bounds  map[*graph.Value]shardBounds // for values of the old graph
	copies  map[*graph.Value]*copies
	nodes   []*graph.Node // new nodes
	sharers int           // number of devices that have a part of some value
}

// copies holds the new values for a value of the old graph, by device.
type copies struct {
	whole []*graph.Value // nil while the device has not needed it
	parts []*graph.Value // parts of a split value, nil for a device without one
	again *graph.Node    // a node that a device with its operands repeats instead of receiving its result
}

func (s *splitter) run() error {
	shared := false
	why := "it has no product whose operand can be split"
	for _, n := range s.g.Nodes {
		if n.Op != ops.Matmul || n.Operand("res") != nil || !n.Operand("w").IsWeight() {
			continue
		}
		cut, reason := s.decide(n)
		if reason != "" {
			s.c.Declined(n.Name(), "%s", reason)
			why = fmt.Sprintf("%s, for one: %s", n.Name(), reason)
			continue
		}
		if cut != nil {
			shared = true
			s.c.Applied(n.Name())
		}
	}
	if !shared {
		return fmt.Errorf("cannot split the matrices of %s between %d devices (%s); split it by layers", s.g.Name, s.devices, why)
	}
	for _, n := range s.g.Nodes {
		if err := s.node(n); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
	}
	for i, v := range s.g.Outputs {
		whole, err := s.whole(v, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		s.g.Outputs[i] = whole
	}
	s.g.Nodes = s.nodes
	if idle := s.devices - s.sharers; idle > 0 {
		return fmt.Errorf("cannot split the matrices of %s between %d devices: %d of them would get no part", s.g.Name, s.devices, idle)
	}
	return nil
}

// decide chooses how a product is split. If its operand can be split, its matrix is split by columns; else, if its
// result is the logits, the result is. It returns nil for a product that is split already or stays whole.
func (s *splitter) decide(n *graph.Node) (shardBounds, string) {
	x, w := n.Operand("x"), n.Operand("w")
	if why := Unchecked(n, splitKnows); why != "" {
		return nil, why
	}
	if granule := s.granule(x); granule > 0 && s.bounds[n.Out[0]] == nil {
		k := x.Type.Shape[1].N
		unit := lcm(granule, alignment(w, k))
		cut := s.share(k, unit)
		marks := map[*graph.Value]shardBounds{}
		if why := s.mark(marks, x, cut); why != "" {
			return nil, why
		}
		for v, c := range marks {
			s.bounds[v] = c
		}
		if !cut.shared() {
			return cut, fmt.Sprintf("its %d operands form a single unit of %d", k, unit)
		}
		return cut, ""
	}
	if s.bounds[n.Out[0]] == nil && s.isLogits(n.Out[0]) {
		cut := s.share(n.Out[0].Type.Shape[1].N, logitGranule)
		s.bounds[n.Out[0]] = cut
		if user := s.m.User(n.Out[0], ops.SelectRows); user != nil {
			s.bounds[user.Out[0]] = cut
		}
		s.c.Applied(n.Name())
		return nil, "" // splitting the logits alone does not justify several devices
	}
	return nil, ""
}

// logitGranule is the number of logits that stay together: whole cache lines.
const logitGranule = 32

// isLogits reports whether a value is an output, possibly after a selection of rows.
func (s *splitter) isLogits(v *graph.Value) bool {
	if user := s.m.User(v, ops.SelectRows); user != nil && Unchecked(user, splitKnows) == "" {
		v = user.Out[0]
	}
	return s.g.IsOutput(v)
}

// share splits n elements between units, as evenly as possible. The first devices get the larger
// parts; if there are too few units, the last devices get none.
func (s *splitter) share(n, unit int64) shardBounds {
	units := (n + unit - 1) / unit
	sharers := min(units, int64(s.devices))
	c := make(shardBounds, s.devices+1)
	for d := range c {
		c[d] = n
		if d := int64(d); d < sharers {
			c[d] = (units*d + sharers - 1) / sharers * unit
		}
	}
	return c
}

// alignment returns the number of elements of a row of w that have to stay together: a block of its
// type, and at least 32, the number that kernels process at a time, if k is a multiple of 32.
func alignment(w *graph.Value, k int64) int64 {
	block, _ := graph.BlockOf(w.Type.DType)
	if k%32 == 0 {
		return lcm(max(block, 1), 32)
	}
	return max(block, 1)
}

func lcm(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// elementwise are the ops that work on elements alone.
var elementwise = []*graph.Op{ops.SiLU, ops.GELUTanh, ops.GELUErf, ops.Scale, ops.Mul}

// splitKnows reports whether an attribute means the same for a part of a value as for the whole
// value.
func splitKnows(name string) bool {
	for _, op := range []*graph.Op{ops.State, ops.Attention, ops.RMSNorm, ops.Scale, ops.Matmul} {
		if op.HasAttr(name) {
			return true
		}
	}
	return false
}

// granule returns the number of elements of v that have to stay together, or 0 if v cannot be
// split.
func (s *splitter) granule(v *graph.Value) int64 {
	switch n := v.Def; {
	case n == nil || len(v.Type.Shape) != 2 || Unchecked(n, splitKnows) != "":
		return 0
	case n.Op == ops.AttnValues:
		return n.Attr.Int("heads") / n.Attr.Int("kv_heads") * n.Attr.Int("head_dim")
	case n.Op == ops.Matmul && n.Operand("res") == nil && n.Operand("w").IsWeight() && s.granule(n.Operand("x")) == 0:
		return 1
	case n.Op == ops.AddBias || slices.Contains(elementwise, n.Op):
		return s.granule(n.In[0]) // all operands are split alike
	}
	return 0
}

// mark marks a value to be split at the given bounds, and the values that it is computed from, back
// to the products that compute them. If that is impossible, it returns why.
func (s *splitter) mark(marks map[*graph.Value]shardBounds, v *graph.Value, at shardBounds) (why string) {
	before := s.bounds[v]
	if before == nil {
		before = marks[v]
	}
	if before != nil {
		if !slices.Equal(before, at) {
			return v.Name + " is split at other bounds for another product"
		}
		return ""
	}
	marks[v] = at
	n := v.Def
	if n != nil {
		if why := Unchecked(n, splitKnows); why != "" {
			return why
		}
	}
	all := func(values ...*graph.Value) string {
		for _, x := range values {
			if why := s.mark(marks, x, at); why != "" {
				return why
			}
		}
		return ""
	}
	switch {
	case n == nil:
	case n.Op == ops.Matmul && n.Operand("res") == nil && n.Operand("w").IsWeight() && s.bounds[n.Operand("x")] == nil:
		return ""
	case n.Op == ops.AddBias, n.Op == ops.Rope, n.Op == ops.RMSNorm && n.Attr.Int("group") > 0:
		return all(n.Operand("x"))
	case n.Op == ops.AttnValues:
		return s.markAttention(marks, n, at)
	case slices.Contains(elementwise, n.Op):
		return all(slices.DeleteFunc(slices.Clone(n.In), func(x *graph.Value) bool { return x == nil })...)
	}
	return v.Name + " is not computed from products by elementwise ops or by heads"
}

// markAttention is mark for the heads of an attention.
func (s *splitter) markAttention(marks map[*graph.Value]shardBounds, values *graph.Node, at shardBounds) (why string) {
	a := values.Attr
	dim := a.Int("head_dim")
	cache := at.scaled(1, a.Int("heads")/a.Int("kv_heads")) // bounds of the keys and values of the head groups
	softmax := s.m.By(values.Operand("probs"), ops.Softmax)
	if softmax == nil {
		return values.Operand("probs").Name + " is an output or no softmax"
	}
	scores := s.m.By(softmax.Operand("x"), ops.AttnScores)
	if scores == nil {
		return softmax.Operand("x").Name + " is an output or no scores"
	}
	for _, n := range []*graph.Node{softmax, scores} {
		if why := Unchecked(n, splitKnows); why != "" {
			return why
		}
	}
	if scores.Attr.Int("heads") != a.Int("heads") || scores.Attr.Int("kv_heads") != a.Int("kv_heads") || scores.Attr.Int("head_dim") != dim {
		return "scores and values have different heads"
	}
	marks[softmax.Out[0]], marks[scores.Out[0]] = at, at
	for _, c := range []*graph.Value{scores.Operand("cache"), values.Operand("cache")} {
		write := s.m.write(c)
		if write == nil || s.m.By(write.Operand("cache"), ops.State) == nil {
			return c.Name + " is not a cache that is written once and read once"
		}
		for _, n := range []*graph.Node{write, write.Operand("cache").Def} {
			if why := Unchecked(n, splitKnows); why != "" {
				return why
			}
		}
		marks[c], marks[write.Operand("cache")] = cache, cache
		if why := s.mark(marks, write.Operand("x"), cache); why != "" {
			return why
		}
	}
	return s.mark(marks, scores.Operand("q"), at)
}

// node replaces a node by the nodes that are needed at once: its parts, or a copy on device 0.
func (s *splitter) node(n *graph.Node) error {
	if n.Op.Everywhere {
		s.nodes = append(s.nodes, n)
		s.copies[n.Out[0]] = &copies{whole: slices.Repeat(n.Out, s.devices)}
		return nil
	}
	if s.bounds[n.Out[0]] != nil {
		return s.parts(n)
	}
	if n.Op == ops.Matmul && s.bounds[n.Operand("x")] != nil && n.Operand("res") == nil {
		return s.sum(n, s.bounds[n.Operand("x")], s.columns)
	}
	if n.Op == ops.GetRows && n.Operand("table").IsWeight() && s.gathers(n.Operand("table")) && Unchecked(n, splitKnows) == "" {
		s.c.Applied(n.Name())
		return s.sum(n, s.share(n.Operand("table").Type.Shape[0].N, logitGranule), s.lookUp)
	}
	out, err := s.place(n, 0, "", nil)
	if err != nil {
		return err
	}
	for i, v := range n.Out {
		c := &copies{whole: make([]*graph.Value, s.devices)}
		c.whole[0] = out[i]
		if s.repeats(n) {
			c.again = n
		}
		s.copies[v] = c
	}
	return nil
}

// canRepeat reports whether a device has the operands of a node, or can repeat the nodes that
// compute them.
func (s *splitter) canRepeat(n *graph.Node, d int) bool {
	return n != nil && !slices.ContainsFunc(n.In, func(v *graph.Value) bool {
		return v != nil && !v.IsWeight() && s.copies[v].whole[d] == nil && !s.canRepeat(s.copies[v].again, d)
	})
}

// repeats reports whether devices compute a node's results themselves, which they do if it reads no
// matrix. The result of a factor is transferred, since the factor may be folded into the look-up
// before it.
func (s *splitter) repeats(n *graph.Node) bool {
	return n.Op == ops.SelectRows || n.Op.RowWise && n.Op != ops.Scale && !slices.ContainsFunc(n.In, isMatrix)
}

func isMatrix(v *graph.Value) bool { return v != nil && v.IsWeight() && len(v.Type.Shape) > 1 }

// parts puts a node on each device that has a part of its result.
func (s *splitter) parts(n *graph.Node) error {
	v := n.Out[0]
	at := s.bounds[v]
	c := &copies{whole: make([]*graph.Value, s.devices), parts: make([]*graph.Value, s.devices)}
	s.copies[v] = c
	for d := range s.devices {
		if at.empty(d) {
			continue
		}
		s.sharers = max(s.sharers, d+1)
		out, err := s.place(n, d, partName(at, d), func(i int, w *graph.Value) (*graph.Value, error) {
			if n.Op == ops.Matmul || n.Op == ops.AddBias {
				return s.g.PartOf(w, 0, at[d], at[d+1])
			}
			return w, nil // per head
		})
		if err != nil {
			return err
		}
		c.parts[d] = out[0]
	}
	return nil
}

// columns places a product on a device, with the columns that belong to the device's part of x.
func (s *splitter) columns(n *graph.Node, at shardBounds, d int) ([]*graph.Value, error) {
	return s.place(n, d, partName(at, d), func(_ int, w *graph.Value) (*graph.Value, error) {
		return s.g.PartOf(w, 1, at[d], at[d+1])
	})
}

// lookUp places a look-up on a device, in the device's rows of the table.
func (s *splitter) lookUp(n *graph.Node, at shardBounds, d int) ([]*graph.Value, error) {
	table, err := s.g.PartOf(n.Operand("table"), 0, at[d], at[d+1])
	if err != nil {
		return nil, err
	}
	ids, err := s.whole(n.Operand("ids"), d)
	if err != nil {
		return nil, err
	}
	attr := n.Attr.Clone()
	attr["first"], attr["vocab"] = at[d], at[s.devices]
	return s.add(ops.GetPart, d, []*graph.Value{table, ids}, attr, partName(at, d), n.Out...)
}

// sum places a term of a node's result on each device that has a part of the operand, and the sum
// of all terms on every device.
func (s *splitter) sum(n *graph.Node, at shardBounds, term func(n *graph.Node, at shardBounds, d int) ([]*graph.Value, error)) error {
	c := &copies{whole: make([]*graph.Value, s.devices)}
	s.copies[n.Out[0]] = c
	parts := make([]*graph.Value, s.devices)
	for d := range parts {
		if at.empty(d) {
			continue
		}
		s.sharers = max(s.sharers, d+1)
		out, err := term(n, at, d)
		if err != nil {
			return err
		}
		parts[d] = out[0]
	}
	// Every device that has a term needs the sum. All transfers come before the first addition,
	// since a device that waits for a transfer waits for all of the sender's earlier work.
	terms := make([][]*graph.Value, s.devices)
	for d := range terms {
		var err error
		if !at.empty(d) {
			if terms[d], err = s.gather(n.Out[0], parts, d); err != nil {
				return err
			}
		}
	}
	for d := range terms {
		var err error
		if !at.empty(d) {
			if c.whole[d], err = s.join(n.Out[0], terms[d], d, ops.Sum); err != nil {
				return err
			}
		}
	}
	return nil
}

// partName returns the suffix of names of a device's part, if there are several parts.
func partName(at shardBounds, d int) string {
	if !at.shared() {
		return ""
	}
	return fmt.Sprintf(".part%d", d)
}

// place appends a copy of a node on a device. It reads the device's part of a split operand, and
// the whole of any other; the function weight, if set, maps weights.
func (s *splitter) place(n *graph.Node, d int, suffix string, weight func(i int, w *graph.Value) (*graph.Value, error)) ([]*graph.Value, error) {
	in := make([]*graph.Value, len(n.In))
	for i, v := range n.In {
		var err error
		switch {
		case v == nil:
		case v.IsWeight():
			if in[i] = v; weight != nil {
				in[i], err = weight(i, v)
			}
		case weight != nil && s.bounds[v] != nil:
			in[i] = s.copies[v].parts[d]
		default:
			in[i], err = s.whole(v, d)
		}
		if err != nil {
			return nil, err
		}
	}
	attr := n.Attr
	if weight != nil {
		attr = s.local(n, in, d)
	}
	return s.add(n.Op, d, in, attr, suffix, n.Out...)
}

// local returns the attributes of a node for the device's heads.
func (s *splitter) local(n *graph.Node, in []*graph.Value, d int) graph.Attrs {
	attr := n.Attr.Clone()
	dim := attr.Int("head_dim")
	width := func(v *graph.Value) int64 { return s.bounds[v][d+1] - s.bounds[v][d] }
	switch n.Op {
	case ops.State:
		attr["width"] = width(n.Out[0])
	case ops.Rope:
		attr["heads"] = width(n.Out[0]) / dim
	case ops.AttnScores, ops.AttnValues:
		attr["heads"], attr["kv_heads"] = width(n.Out[0])/dim, width(n.Operand("cache"))/dim
	}
	return attr
}

// add appends a node on a device. Its results have the names of other values plus a suffix.
func (s *splitter) add(op *graph.Op, d int, in []*graph.Value, attr graph.Attrs, suffix string, named ...*graph.Value) ([]*graph.Value, error) {
	names := make([]string, len(named))
	for i, v := range named {
		names[i] = v.Name + suffix
	}
	n, err := graph.NewNode(op, in, attr, names...)
	if err != nil {
		return nil, err
	}
	n.Device = d
	s.nodes = append(s.nodes, n)
	return n.Out, nil
}

// onDevice returns the suffix of names of values on other devices than the first.
func onDevice(d int) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("/%d", d)
}

// whole returns the whole of a value on a device: an existing copy, or a new one from a copy or
// parts elsewhere.
func (s *splitter) whole(v *graph.Value, d int) (*graph.Value, error) {
	c := s.copies[v]
	if c.whole[d] != nil {
		return c.whole[d], nil
	}
	var err error
	switch {
	case c.parts != nil:
		var parts []*graph.Value
		if parts, err = s.gather(v, c.parts, d); err == nil {
			c.whole[d], err = s.join(v, parts, d, ops.Concat)
		}
	case s.canRepeat(c.again, d), c.again != nil && c.again.Op == ops.RMSNorm: // a norm's operand is as long as its result, and products compute norms themselves
		var out []*graph.Value
		if out, err = s.place(c.again, d, onDevice(d), nil); err == nil {
			c.whole[d] = out[v.Index]
		}
	default:
		c.whole[d], err = s.transfer(c.whole[0], d, onDevice(d), v)
	}
	return c.whole[d], err
}

// transfer copies a value to a device, under the name of another value.
func (s *splitter) transfer(x *graph.Value, d int, suffix string, name *graph.Value) (*graph.Value, error) {
	out, err := s.add(ops.Transfer, d, []*graph.Value{x}, nil, suffix, name)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// maxTerms is the largest number of operands of the ops that join parts.
const maxTerms = 3

// gather transfers all parts of v to a device, in the order of the devices.
func (s *splitter) gather(v *graph.Value, parts []*graph.Value, d int) ([]*graph.Value, error) {
	var list []*graph.Value
	for from, part := range parts {
		if part == nil {
			continue
		}
		if from != d {
			name, suffix := part, fmt.Sprintf("/%d", d)
			if part.Name == v.Name { // there is only one part
				suffix = onDevice(d)
			}
			var err error
			if part, err = s.transfer(part, d, suffix, name); err != nil {
				return nil, err
			}
		}
		list = append(list, part)
	}
	return list, nil
}

// join joins the parts of v that are on a device.
func (s *splitter) join(v *graph.Value, list []*graph.Value, d int, op *graph.Op) (*graph.Value, error) {
	for done := 0; len(list) > 1; {
		n := min(len(list), maxTerms)
		in := make([]*graph.Value, len(op.In))
		copy(in, list[:n])
		attr := graph.Attrs{}
		if op == ops.Concat {
			width := int64(0)
			for _, x := range list[:n] {
				width += x.Type.Shape[1].N
			}
			attr["width"] = width
		}
		suffix := onDevice(d)
		if n < len(list) {
			done += n
			suffix += fmt.Sprintf(".first%d", done)
		}
		out, err := s.add(op, d, in, attr, suffix, v)
		if err != nil {
			return nil, err
		}
		list = append(out, list[n:]...)
	}
	return list[0], nil
}
