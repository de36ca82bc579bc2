package exec

import (
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
)

// An Observation is a value that a step of a plan has just computed. Caches are not observed: an error in
// them shows in the values that are computed from them.
type Observation struct {
	Program *plan.Program
	Wave    int
	Step    *plan.Step
	Name    string    // of the value: the step's name for its first output, and buffer names for the others
	Buffer  int       // that holds it
	Rows    int       // tokens, or wanted logits if Step.Rows is R; at least one
	Data    []float32 // Rows rows, dequantized; valid until Observe returns
}

// runObserved runs a program step by step, so that each value is observed before its memory is reused. A
// step still uses all workers.
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

// show passes the outputs of a step to the observer. If each worker has a copy, it is that of worker 0.
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
	sig, _ := plan.LookupKernel(st.Kernel) // Verify has checked it
	for _, a := range st.Args {
		if sig.Operand(a.Role).Dir != plan.Out {
			continue
		}
		n, err := sig.Elems(scope, a.Role)
		if err != nil {
			return err
		}
		if o.Name == "" {
			o.Name = e.plan.Buffer(g, a.Buffer).Name
		}
		o.Buffer = a.Buffer
		format, data, err := e.backend.contents(g, a.Buffer, o.Rows, int(n)/o.Rows)
		if err != nil {
			return err
		}
		if format == "i32" {
			continue // indices, not values
		}
		o.Data = floats(format, data, o.Rows, int(n)/o.Rows)
		e.observe(o)
		o.Name = ""
	}
	return nil
}

// floats converts rows of cols elements from any output format to float32. For float32 it returns a view.
func floats(format string, data []byte, rows, cols int) []float32 {
	if format == "f32" {
		return view[float32](data)[:rows*cols]
	}
	values := make([]float32, rows*cols)
	if format == "bf16" {
		numfmt.DecodeBF16(values, data)
		return values
	}
	size, dequantize := numfmt.Q8x2Bytes(cols), numfmt.DequantizeQ8x2
	if format == "q8" {
		size, dequantize = numfmt.Q8Bytes(cols), numfmt.DequantizeQ8
	}
	for m := range rows {
		dequantize(values[m*cols:(m+1)*cols], data[m*size:(m+1)*size])
	}
	return values
}
