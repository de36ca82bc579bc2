package plan

import (
	"fmt"
	"slices"
)

// maxUnit bounds the unit of a split, so that sums with it cannot overflow.
const maxUnit = 1 << 30

// maxLayer bounds layer numbers. It far exceeds any model's.
const maxLayer = 1 << 14

// step checks a step against its signature and against the steps before it.
func (c *checker) step(st *Step) error {
	sig := c.signatures[st.Kernel]
	switch {
	case sig == nil:
		return fmt.Errorf("kernel is %q, expected a row of the signature table", st.Kernel)
	case st.ID != c.steps:
		return fmt.Errorf("expected id %d: steps are numbered in execution order", c.steps)
	case st.Layer < noLayer, st.Layer > maxLayer:
		return fmt.Errorf("layer is %d, expected a block number up to %d, or none", st.Layer, maxLayer)
	}
	if err := first(c.exists(st.Device), c.runs(st)); err != nil {
		return err
	}
	c.busy[st.Device] = true
	rows := []string{"T", "R"}
	if sig.Rows != "" {
		rows = []string{sig.Rows}
	}
	b := binding{checker: c, step: st, sig: sig, at: c.at.of(st)}
	if err := first(oneOf("rows", st.Rows, rows...), checkSplit(st.Split, sig)); err != nil {
		return err
	}
	for _, check := range []func() error{b.bind, b.params, b.operands, b.scratch} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// runs checks that the step's device exists and has its kernel. Every device has the reference
// kernels.
func (c *checker) runs(st *Step) error {
	switch {
	case c.exists(st.Device) != nil:
		return nil
	case IsTransfer(st.Kernel) && len(c.plan.Devices) == 0:
		return fmt.Errorf("kernel is %q, expected none in a plan for one device", st.Kernel)
	case IsTransfer(st.Kernel), IsReference(st.Kernel), IsCUDAKernel(st.Kernel) == (c.plan.Device(st.Device).Backend == CUDA):
		return nil
	}
	return fmt.Errorf("kernel is %q, expected one of backend %s", st.Kernel, c.plan.Device(st.Device).Backend)
}

func checkSplit(s Split, sig *Signature) error {
	if err := oneOf("split", s.By, sig.Splits...); err != nil {
		return err
	}
	least := int64(1)
	if s.By == "each" || s.By == "one" {
		least = 0
	}
	if s.Unit < least || s.Unit > maxUnit {
		return fmt.Errorf("unit of split %s is %d, expected from %d to %d", s.By, s.Unit, least, maxUnit)
	}
	return nil
}

// A binding is a step with each argument matched to its operand in the signature.
type binding struct {
	*checker
	step    *Step
	sig     *Signature
	at      corners
	group   int // number of repeated operands
	bound   []boundArg
	xFormat string // format in which products read x
}

type boundArg struct {
	*Arg
	*Operand
	index int
	elems extents // number of the buffer's elements that the kernel accesses
}

// bind matches the arguments with the signature's operands, which come in the same order.
func (b *binding) bind() error {
	args := b.step.Args
	for i := range args {
		if o, _ := b.sig.operand(args[i].Role); o != nil && o.Repeat && o.Dir == WeightIn && !o.Optional {
			b.group++
		}
	}
	b.bound = make([]boundArg, 0, len(args))
	for i := range b.sig.Operands {
		o := &b.sig.Operands[i]
		for j := range b.times(o.Repeat) {
			role := indexed(o.Role, o.Repeat, j)
			switch {
			case o.When != "" && (b.at[greatest].param(o.When) > 0) != (len(args) > 0 && args[0].Role == role):
				return fmt.Errorf("%s is %d, expected operand %s if and only if it is not 0", o.When, b.at[greatest].param(o.When), role)
			case len(args) > 0 && args[0].Role == role:
				b.bound = append(b.bound, boundArg{Arg: &args[0], Operand: o, index: j})
				args = args[1:]
			case !o.Optional:
				return fmt.Errorf("operand %s is missing, expected operands in the order of the signature", role)
			}
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("operand %s does not belong here, expected operands in the order of the signature", args[0].Role)
	}
	return nil
}

// times returns how often an operand or parameter of the step must occur: at least once, so that an
// empty group reports a missing operand.
func (b *binding) times(repeat bool) int {
	if repeat {
		return min(max(b.group, 1), GroupMax)
	}
	return 1
}

func (b *binding) params() error {
	known := make(map[string]bool, len(b.step.Params))
	for i := range b.sig.Params {
		spec := &b.sig.Params[i]
		for j := range b.times(spec.Repeat) {
			name := indexed(spec.Name, spec.Repeat, j)
			at := slices.IndexFunc(b.step.Params, func(p Param) bool { return p.Name == name })
			switch {
			case at < 0 && spec.Default == nil:
				return fmt.Errorf("parameter %s is missing, expected %s", name, spec.expected(nil))
			case at < 0:
				continue
			}
			switch v := b.step.Params[at].Value; {
			case !spec.accepts(v):
				return fmt.Errorf("parameter %s is %v, expected %s", name, v, spec.expected(v))
			case v == spec.Default: // otherwise equal plans could have different texts
				return fmt.Errorf("parameter %s is %v, which is its default: expected the step to omit it", name, v)
			}
			known[name] = true
		}
	}
	for i, p := range b.step.Params {
		if !known[p.Name] {
			return fmt.Errorf("parameter %s is unknown to kernel %s: a newer version of the program wrote the plan, or it was edited", p.Name, b.sig.Name)
		}
		if slices.ContainsFunc(b.step.Params[:i], func(q Param) bool { return q.Name == p.Name }) {
			return fmt.Errorf("parameters: %s is there twice, expected each once", p.Name)
		}
	}
	for _, rule := range b.sig.Rules {
		if err := rule(&b.at[greatest]); err != nil {
			return fmt.Errorf("parameter %w", err)
		}
	}
	return nil
}

// accepts reports whether v is of the parameter's kind and in its range.
func (p *ParamSpec) accepts(v any) bool {
	switch p.Kind.(type) {
	case int64:
		n, ok := v.(int64)
		return ok && n >= p.Min
	case float64:
		f, ok := v.(float64)
		return ok && p.Range[0] <= f && f <= p.Range[1]
	}
	s, ok := v.(string)
	return ok && slices.Contains(p.Words, s)
}

// expected describes the values that the parameter accepts. If v, which it does not accept, is a number of
// the other kind, it says how the text of a plan tells the two kinds apart.
func (p *ParamSpec) expected(v any) string {
	switch p.Kind.(type) {
	case int64:
		s := fmt.Sprintf("an integer of at least %d", p.Min)
		if _, ok := v.(float64); ok {
			s += ", written without a point"
		}
		return s
	case float64:
		s := fmt.Sprintf("a number from %v to %v", p.Range[0], p.Range[1])
		if n, ok := v.(int64); ok {
			s += fmt.Sprintf(", written with a point, such as %d.0", n)
		}
		return s
	}
	return fmt.Sprintf("one of %q", p.Words)
}

// operands checks every operand before it records the step's effects on buffers, so that operands
// are compared with earlier steps alone.
func (b *binding) operands() error {
	for i := range b.bound {
		a := &b.bound[i]
		for c := range b.at {
			b.at[c].Index = a.index
		}
		check := b.buffer
		if a.Dir == WeightIn {
			check = b.weight
		}
		if err := check(a); err != nil {
			return fmt.Errorf("operand %s: %w", a.Arg.Role, err)
		}
	}
	for i := range b.bound {
		if a := &b.bound[i]; a.Dir != WeightIn {
			b.note(a)
		}
	}
	return nil
}

// weight checks an operand that comes from the model file.
func (b *binding) weight(a *boundArg) error {
	w := b.weights[a.Weight]
	switch {
	case a.Buffer != noBuffer:
		return fmt.Errorf("found buffer b%d, expected a weight", a.Buffer)
	case w == nil:
		return fmt.Errorf("weight %q is not listed, expected a listed weight", a.Weight)
	}
	if !w.LiesOn(b.step.Device) {
		return fmt.Errorf("weight %s is on %v, expected device %d, which runs the step", w.Name, w.DeviceIDs(), b.step.Device)
	}
	b.readWeights[readOn{w.Name, b.step.Device}] = true
	if len(a.Formats) > 0 {
		if err := oneOf("type of weight "+w.Name, w.Type, a.Formats...); err != nil {
			return err
		}
	}
	shape, err := b.at[greatest].shape(a.Extent)
	if err != nil {
		return err
	}
	if !slices.Equal(w.Dims, shape) {
		return fmt.Errorf("weight %s is %v, expected %v (%s)", w.Name, w.Dims, shape, a.Extent)
	}
	if a.Layout != "" {
		b.readPacked[w.Name] = true
		if w.Layout != a.Layout {
			return fmt.Errorf("weight %s has layout %q, expected %s", w.Name, w.Layout, a.Layout)
		}
	}
	return b.matmul(a, w)
}

// matmul checks that a weight's matmul kernel fits the weight's type and layout and the format of
// the activations.
func (b *binding) matmul(a *boundArg, w *Weight) error {
	if !a.Matmul {
		if a.Kernel != "" {
			return fmt.Errorf("kernel is %q, expected none", a.Kernel)
		}
		return nil
	}
	formats := []string{b.format("x")}
	if b.sig.Rounds != "" && b.plan.Target.Precision == "fast" {
		formats = append(formats, b.sig.Rounds)
	}
	if b.xFormat != "" { // all weights of a step read the same x
		formats = []string{b.xFormat}
	}
	names := make([]string, 0, len(matmulKernels)*len(formats))
	for _, kind := range matmulKernels {
		for _, f := range formats {
			names = append(names, MatmulName(kind, w.Type, w.Layout, f))
		}
	}
	b.readPacked[w.Name] = b.readPacked[w.Name] || w.Layout != ""
	if k, ok := ParseMatmul(a.Kernel); ok {
		b.xFormat = k.Activations
	}
	return oneOf("kernel", a.Kernel, names...)
}

// format returns the element format of the buffer in a role.
func (b *binding) format(role string) string {
	for i := range b.bound {
		if a := &b.bound[i]; a.Arg.Role == role && a.Buffer >= 0 && a.Buffer < len(b.uses) {
			return b.uses[a.Buffer].Format
		}
	}
	return ""
}

// buffer checks an operand in memory: its device, class, format and extent, and its use of the
// buffer against other operands and earlier steps.
func (b *binding) buffer(a *boundArg) error {
	if a.Weight != "" || a.Kernel != "" {
		return fmt.Errorf("found weight %q, expected a buffer", a.Weight)
	}
	if a.Buffer < 0 || a.Buffer >= len(b.uses) {
		return fmt.Errorf("buffer b%d does not exist, expected one from b0 to b%d", a.Buffer, len(b.uses)-1)
	}
	u := &b.uses[a.Buffer]
	if err := b.fits(a, u); err != nil {
		return fmt.Errorf("%s: %w", bufferName(u.Buffer), err)
	}
	return nil
}

func (b *binding) fits(a *boundArg, u *use) error {
	if u.Device != b.step.Device && !a.Far && inputOf(u.Buffer) == nil {
		return fmt.Errorf("is on device %d, expected device %d, which runs the step: insert a transfer", u.Device, b.step.Device)
	}
	if err := oneOf("format", u.Format, a.Formats...); err != nil {
		return err
	}
	if f, _ := LookupFormat(u.Format); f.Fast && b.plan.Target.Precision != "fast" {
		return fmt.Errorf("format is %s, expected a format without rounding, since the target's precision is %s", f.Name, b.plan.Target.Precision)
	}
	if a.Input != "" && (u.Class != IO || u.Name != a.Input) {
		return fmt.Errorf("expected the io buffer %q, since addresses are computed from it", a.Input)
	}
	if a.Kept != "" && (u.Class != IO || u.Name != a.Kept) {
		return fmt.Errorf("expected the io buffer %q, as the run before has left it", a.Kept)
	}
	if (a.Width != "") != (u.Class == State) {
		return fmt.Errorf("class is %s, expected a state for a cache operand, and for no other", u.Class)
	}
	var err error
	if a.elems, err = b.at.eval(a.Extent); err != nil {
		return err
	}
	if a.elems[greatest] > u.elems {
		return fmt.Errorf("holds %d elements, expected at least %d (%s)", u.elems, a.elems[greatest], a.Extent)
	}
	return first(b.wholeBlocks(a, u), b.state(a, u), b.table(a, u), b.writes(a, u), b.reads(a, u), b.aliases(a))
}

// A stateShape is a step's layout of a state: positions per sequence, elements of a position's row,
// whether positions wrap around (ring), and the heads that pages are grouped by, 0 for pages of
// rows.
type stateShape struct{ positions, width, ring, heads int64 }

// state checks that all steps of all programs agree on the layout of a state.
func (b *binding) state(a *boundArg, u *use) error {
	if u.Class != State {
		return nil
	}
	if a.elems[greatest] != u.elems {
		return fmt.Errorf("holds %d elements, expected %d (%s): steps must agree on a state", u.elems, a.elems[greatest], a.Extent)
	}
	width, err := b.at[greatest].Eval(a.Width)
	if err != nil {
		return err
	}
	shape := stateShape{b.at[greatest].param("positions"), width, b.at[greatest].param("ring"), 0}
	unit := width
	if a.Heads != "" {
		if shape.heads, err = b.at[greatest].Eval(a.Heads); err != nil {
			return err
		}
		unit /= shape.heads
	}
	if f, _ := LookupFormat(u.Format); unit%f.Elems != 0 {
		return fmt.Errorf("%d elements lie together in format %s, expected a multiple of %d", unit, f.Name, f.Elems)
	}
	have, ok := b.states[u.ID]
	if !ok {
		b.states[u.ID] = shape
	} else if have != shape {
		return fmt.Errorf("has %d positions of %d elements, ring %d and pages by %d heads, expected %d of %d, ring %d and pages by %d heads as in an earlier step: steps must agree on a state",
			shape.positions, shape.width, shape.ring, shape.heads, have.positions, have.width, have.ring, have.heads)
	}
	return nil
}

// wholeBlocks checks that a row of the operand consists of whole blocks of its format.
func (b *binding) wholeBlocks(a *boundArg, u *use) error {
	f, _ := LookupFormat(u.Format)
	if f.Elems == 1 {
		return nil
	}
	row := b.at[greatest]
	row.T, row.R = 1, 1
	n, err := row.Eval(a.Extent)
	if err != nil {
		return err
	}
	if n%f.Elems != 0 {
		return fmt.Errorf("rows of %d elements, expected a multiple of %d in %s", n, f.Elems, f.Name)
	}
	if s := b.step.Split; a.Dir.Writes() && s.By == "rows" && s.Unit%f.Elems != 0 {
		return fmt.Errorf("is shared by %d elements, expected a multiple of %d, which lie together in %s", s.Unit, f.Elems, f.Name)
	}
	return nil
}

func (b *binding) reads(a *boundArg, u *use) error {
	switch {
	case !a.Dir.Reads():
		return nil
	case u.scratch:
		return fmt.Errorf("is the scratch of a step, expected a buffer of values")
	case a.Kept != "":
		return nil
	case u.Class == State && !a.Dir.Writes() && u.wroteIn == never:
		// Before this run's tokens are written, their positions can hold another sequence's values.
		return fmt.Errorf("is read before this run's tokens are in it, expected a step that writes it first")
	case !u.Each && u.wroteIn == b.now:
		return fmt.Errorf("is written by another step of wave %d, expected a barrier before it is read", b.now)
	}
	for i, elems := range a.elems {
		if u.written[i] < elems {
			return fmt.Errorf("holds %d values at this point in a run of %d tokens and %d rows, expected %d written by earlier steps", u.written[i], b.at[i].T, b.at[i].R, elems)
		}
	}
	return nil
}

func (b *binding) writes(a *boundArg, u *use) error {
	each := b.step.Split.By == "each"
	switch {
	case !a.Dir.Writes():
		return nil
	case u.scratch:
		return fmt.Errorf("is the scratch of a step, expected a buffer of values")
	case u.Class == IO && u.given:
		return fmt.Errorf("is filled by the caller, expected a buffer that steps may write")
	case each && !u.Each:
		return fmt.Errorf("has one copy, expected one for every worker, since each of them writes it")
	case !each && u.Each:
		return fmt.Errorf("has a copy for every worker, expected split each, so that all are written")
	case !u.Each && (u.wroteIn == b.now || u.readIn == b.now):
		return fmt.Errorf("is used by another step of wave %d, expected a barrier before it is written", b.now)
	}
	return nil
}

// aliases checks that a written buffer is no other operand of the same step, except the operand
// that the signature's Alias allows.
func (b *binding) aliases(a *boundArg) error {
	if !a.Dir.Writes() {
		return nil
	}
	for i := range b.bound {
		o := &b.bound[i]
		if o == a || o.Buffer != a.Buffer {
			continue
		}
		if inPlace := o.Dir == In && o.Arg.Role == a.Alias && a.index == 0; !inPlace {
			return fmt.Errorf("is also operand %s, expected another buffer: the kernel does not work in place there", o.Arg.Role)
		}
	}
	return nil
}

// note records the step's effect on a buffer.
func (b *binding) note(a *boundArg) {
	u := &b.uses[a.Buffer]
	b.touch(u)
	if a.Dir.Reads() {
		u.readIn = b.now
	}
	if a.Dir.Writes() {
		u.wroteIn = b.now
		u.written = a.elems
	}
}

func (c *checker) touch(u *use) {
	if u.firstStep == never {
		u.firstStep, u.firstWave = c.steps, c.now
	}
	u.lastStep, u.lastWave = c.steps, c.now
}

// scratch checks the step's workspace, which no other operand or step may use.
func (b *binding) scratch() error {
	id := b.step.Scratch
	if b.sig.Scratch == "" || id == noBuffer {
		if b.sig.Scratch == "" && id == noBuffer {
			return nil
		}
		return fmt.Errorf("scratch is b%d, expected a buffer if and only if the signature has scratch (%q)", id, b.sig.Scratch)
	}
	if id < 0 || id >= len(b.uses) {
		return fmt.Errorf("scratch b%d does not exist, expected a buffer from b0 to b%d", id, len(b.uses)-1)
	}
	u := &b.uses[id]
	formula := b.sig.ScratchOf(b.format("x"))
	bytes, err := b.at[greatest].Eval(formula)
	switch {
	case err != nil:
		return err
	case u.Device != b.step.Device:
		return fmt.Errorf("scratch %s is on device %d, expected device %d, which runs the step", bufferName(u.Buffer), u.Device, b.step.Device)
	case !u.Each:
		return fmt.Errorf("scratch %s has one copy, expected one for every worker", bufferName(u.Buffer))
	case u.firstStep != never:
		return fmt.Errorf("scratch %s is used by another operand or step, expected one of its own", bufferName(u.Buffer))
	case u.Stride < bytes:
		return fmt.Errorf("scratch %s has %d bytes for each worker, expected at least %d (%s)", bufferName(u.Buffer), u.Stride, bytes, formula)
	}
	u.scratch = true
	b.touch(u)
	return nil
}
