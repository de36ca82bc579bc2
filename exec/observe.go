package exec

import (
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
)

// An Observation is a value that a step of a plan has just computed. Caches are none: what is
// wrong in them shows in what reads them.
type Observation struct {
	Program *plan.Program
	Wave    int
	Step    *plan.Step
	Name    string    // of the value: the step's, or of its further outputs those of their buffers
	Rows    int       // of tokens, or of wanted logits where Step.Rows is R; at least one
	Data    []float32 // Rows rows, to be read before Observe returns; quantised ones are dequantised
}

// runObserved runs a program step by step, so that each value is seen before another one takes
// its place. A step still has all workers.
func (e *Engine) runObserved(g *program) error {
	for i := range g.Waves {
		for j := range g.Waves[i].Steps {
			if err := e.backend.runStep(g, i, j, e.last); err != nil {
				return err
			}
			if err := e.show(g.Program, i, &g.Waves[i].Steps[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// show lets the observer see what a step has written: worker 0's copy, where each has one.
func (e *Engine) show(g *plan.Program, wave int, st *plan.Step) error {
	o := Observation{Program: g, Wave: wave, Step: st, Name: st.Name, Rows: e.last.T}
	if st.Rows == "R" {
		o.Rows = e.last.R
	}
	if o.Rows == 0 {
		return nil
	}
	scope := e.plan.Scope(g).Of(st)
	scope.T, scope.R = int64(e.last.T), int64(e.last.R)
	sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
	for _, a := range st.Args {
		if sig.Operand(a.Role).Dir != plan.Out {
			continue
		}
		n, err := sig.Elems(scope, a.Role)
		if err != nil {
			return err
		}
		if o.Name == "" {
			o.Name = e.bufferName(g, a.Buffer)
		}
		format, data, err := e.backend.contents(g, a.Buffer, o.Rows, int(n)/o.Rows)
		if err != nil {
			return err
		}
		if format == "i32" {
			continue // places, and no values
		}
		o.Data = floats(format, data, o.Rows, int(n)/o.Rows)
		e.observe(o)
		o.Name = ""
	}
	return nil
}

func (e *Engine) bufferName(g *plan.Program, id int) string {
	if id < len(e.shared) {
		return e.plan.Buffers[id].Name
	}
	return g.Buffers[id-len(e.shared)].Name
}

// floats returns rows of cols elements, in one of the formats that the signature table has for
// outputs: a view where they are float32.
func floats(format string, data []byte, rows, cols int) []float32 {
	if format == "f32" {
		return view[float32](data)[:rows*cols]
	}
	values := make([]float32, rows*cols)
	if format == "bf16" {
		numfmt.DecodeBF16(values, data)
		return values
	}
	size, dequantise := numfmt.Q8x2Bytes(cols), numfmt.DequantizeQ8x2
	if format == "q8" {
		size, dequantise = numfmt.Q8Bytes(cols), numfmt.DequantizeQ8
	}
	for m := range rows {
		dequantise(values[m*cols:(m+1)*cols], data[m*size:(m+1)*size])
	}
	return values
}
