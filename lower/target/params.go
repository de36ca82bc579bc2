package target

import (
	"pesti/exec/plan"
	"pesti/graph"
)

// The parameters of each kernel, in the order of its signature, whichever target it is of.

// Width is the number of elements in a row of a value.
func Width(v *graph.Value) int64 {
	return v.Type.Shape[len(v.Type.Shape)-1].N
}

func params(pairs ...any) []plan.Param {
	var list []plan.Param
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, plan.Param{Name: pairs[i].(string), Value: pairs[i+1]})
	}
	return list
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func WidthParam(n *graph.Node, _ Env) []plan.Param {
	return params("n", Width(n.Out[0]))
}

func EmbedParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", Width(n.Out[0]), "vocab", n.In[0].Type.Shape[0].N, "scale", orOne(n.Attr.Float("scale")))
}

func ScaleParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", Width(n.Out[0]), "factor", n.Attr.Float("factor"))
}

func NormParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", Width(n.Out[0]), "eps", n.Attr.Float("eps"))
}

func GroupNormParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", Width(n.Out[0]), "group", Width(n.In[1]), "eps", n.Attr.Float("eps"))
}

func MatmulParams(n *graph.Node, _ Env) []plan.Param {
	return params("k", Width(n.In[0]), "n", Width(n.Out[0]))
}

func GroupParams(n *graph.Node, _ Env) []plan.Param {
	list := params("k", Width(n.In[0]))
	for i, name := range []string{"n0", "n1", "n2"} {
		if i < len(n.Out) {
			list = append(list, plan.Param{Name: name, Value: Width(n.Out[i])})
		}
	}
	return list
}

func GatedParams(n *graph.Node, _ Env) []plan.Param {
	return params("k", Width(n.In[0]), "n", Width(n.Out[0]), "act", n.Attr.Str("act"))
}

func AttentionParams(n *graph.Node, env Env) []plan.Param {
	a := n.Attr
	positions, ring := env.Positions(n.In[5])
	return params("heads", a.Int("heads"), "kv_heads", a.Int("kv_heads"), "head_dim", a.Int("head_dim"), "rot", a.Int("rot"),
		"positions", positions, "window", a.Int("window"), "ring", flag(ring),
		"base", a.Float("base"), "freq_scale", orOne(a.Float("freq_scale")),
		"ramp_low", a.Float("ramp_low"), "ramp_high", a.Float("ramp_high"), "magnitude", orOne(a.Float("magnitude")),
		"scale", a.Float("scale"), "eps", a.Float("eps"), "layout", a.Str("layout"))
}

func RopeParams(n *graph.Node, _ Env) []plan.Param {
	a := n.Attr
	return params("heads", a.Int("heads"), "head_dim", a.Int("head_dim"), "rot", a.Int("rot"),
		"base", a.Float("base"), "freq_scale", orOne(a.Float("freq_scale")),
		"ramp_low", a.Float("ramp_low"), "ramp_high", a.Float("ramp_high"), "magnitude", orOne(a.Float("magnitude")),
		"layout", a.Str("layout"))
}

func WriteParams(n *graph.Node, env Env) []plan.Param {
	positions, ring := env.Positions(n.In[0])
	return params("width", Width(n.In[1]), "positions", positions, "ring", flag(ring))
}

func ScoresParams(n *graph.Node, env Env) []plan.Param {
	return append(cacheParams(n, env), plan.Param{Name: "scale", Value: n.Attr.Float("scale")})
}

func ValuesParams(n *graph.Node, env Env) []plan.Param { return cacheParams(n, env) }

func cacheParams(n *graph.Node, env Env) []plan.Param {
	a := n.Attr
	positions, ring := env.Positions(n.In[1])
	return params("heads", a.Int("heads"), "kv_heads", a.Int("kv_heads"), "head_dim", a.Int("head_dim"),
		"positions", positions, "window", a.Int("window"), "ring", flag(ring))
}

func SoftmaxParams(n *graph.Node, _ Env) []plan.Param {
	return params("heads", n.Out[0].Type.Shape[1].N)
}
