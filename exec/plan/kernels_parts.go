package plan

import "fmt"

// partKernels join the parts of a value that several CUDA devices have computed.
var partKernels = []Signature{
	// y[m] = scale · dequantize(table[tokens[m] − first]), or zeros if the table, a part of a table
	// of vocab rows, lacks the row
	{
		Name: "cuda.embed_part",
		Operands: []Operand{
			{Role: "tokens", Input: "tokens", Formats: []string{"i32"}, Extent: "M"},
			{Role: "table", Dir: WeightIn, Extent: "rows,n", Gather: true, Layout: SOA},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n"), count("rows"), amount("first"), count("vocab"), factor("scale")},
		Rows:   "T",
		Splits: []string{"one"},
		Rules:  []Rule{rowsInVocab},
		cost:   costModel{flops: "M*n", partial: map[string]string{"table": "M*n"}},
	},
	// y[m] = x0[m] + x1[m] + x2[m] + res[m], added in this order
	{
		Name: "cuda.sum",
		Operands: []Operand{
			{Role: "x0", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "x1", Formats: []string{"f32"}, Extent: "M*n", Optional: true},
			{Role: "x2", Formats: []string{"f32"}, Extent: "M*n", Optional: true},
			{Role: "res", Formats: []string{"f32"}, Extent: "M*n", Optional: true},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "res"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
		cost:   costModel{flops: "M*n"},
	},
	// y[m] = x0[m], x1[m], x2[m] concatenated
	{
		Name: "cuda.concat",
		Operands: []Operand{
			{Role: "x0", Formats: []string{"f32"}, Extent: "M*n0"},
			{Role: "x1", Formats: []string{"f32"}, Extent: "M*n1", Optional: true, When: "n1"},
			{Role: "x2", Formats: []string{"f32"}, Extent: "M*n2", Optional: true, When: "n2"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*(n0 + n1 + n2)"},
		},
		Params: []ParamSpec{count("n0"), amount("n1"), amount("n2")},
		Splits: []string{"one"},
		cost:   costModel{flops: "0"},
	},
}

// rowsInVocab requires that a part's rows lie inside the whole table.
func rowsInVocab(s *Scope) error {
	if first, rows, vocab := s.param("first"), s.param("rows"), s.param("vocab"); first > vocab-rows {
		return fmt.Errorf("first is %d, expected at most %d: the part has %d of %d rows", first, vocab-rows, rows, vocab)
	}
	return nil
}
