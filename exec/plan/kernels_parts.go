package plan

// partKernels join the parts of a value that several CUDA devices have computed.
var partKernels = []Signature{
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
	},
	// y[m] = x0[m], x1[m], x2[m] side by side
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
	},
}
