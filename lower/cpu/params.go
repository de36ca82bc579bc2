package cpu

import (
	"pesti/exec/plan"
	"pesti/graph"
)

// The parameters of each kernel, in the order of its signature.

func width(v *graph.Value) int64 {
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

func widthParam(n *graph.Node, _ Env) []plan.Param {
	return params("n", width(n.Out[0]))
}

func embedParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", width(n.Out[0]), "vocab", n.In[0].Type.Shape[0].N, "scale", orOne(n.Attr.Float("scale")))
}

func scaleParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", width(n.Out[0]), "factor", n.Attr.Float("factor"))
}

func normParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", width(n.Out[0]), "eps", n.Attr.Float("eps"))
}

func groupNormParams(n *graph.Node, _ Env) []plan.Param {
	return params("n", width(n.Out[0]), "group", width(n.In[1]), "eps", n.Attr.Float("eps"))
}

func matmulParams(n *graph.Node, _ Env) []plan.Param {
	return params("k", width(n.In[0]), "n", width(n.Out[0]))
}

func groupParams(n *graph.Node, _ Env) []plan.Param {
	list := params("k", width(n.In[0]))
	for i, name := range []string{"n0", "n1", "n2"} {
		if i < len(n.Out) {
			list = append(list, plan.Param{Name: name, Value: width(n.Out[i])})
		}
	}
	return list
}

func gatedParams(n *graph.Node, _ Env) []plan.Param {
	return params("k", width(n.In[0]), "n", width(n.Out[0]), "act", n.Attr.Str("act"))
}

func attentionParams(n *graph.Node, env Env) []plan.Param {
	a := n.Attr
	positions, ring := env.Positions(n.In[5])
	return params("heads", a.Int("heads"), "kv_heads", a.Int("kv_heads"), "head_dim", a.Int("head_dim"), "rot", a.Int("rot"),
		"positions", positions, "window", a.Int("window"), "ring", flag(ring),
		"base", a.Float("base"), "freq_scale", orOne(a.Float("freq_scale")),
		"ramp_low", a.Float("ramp_low"), "ramp_high", a.Float("ramp_high"), "magnitude", orOne(a.Float("magnitude")),
		"scale", a.Float("scale"), "eps", a.Float("eps"), "layout", a.Str("layout"))
}

func ropeParams(n *graph.Node, _ Env) []plan.Param {
	a := n.Attr
	return params("heads", a.Int("heads"), "head_dim", a.Int("head_dim"), "rot", a.Int("rot"),
		"base", a.Float("base"), "freq_scale", orOne(a.Float("freq_scale")),
		"ramp_low", a.Float("ramp_low"), "ramp_high", a.Float("ramp_high"), "magnitude", orOne(a.Float("magnitude")),
		"layout", a.Str("layout"))
}

func writeParams(n *graph.Node, env Env) []plan.Param {
	positions, ring := env.Positions(n.In[0])
	return params("width", width(n.In[1]), "positions", positions, "ring", flag(ring))
}

func scoresParams(n *graph.Node, env Env) []plan.Param {
	return append(cacheParams(n, env), plan.Param{Name: "scale", Value: n.Attr.Float("scale")})
}

func valuesParams(n *graph.Node, env Env) []plan.Param { return cacheParams(n, env) }

func cacheParams(n *graph.Node, env Env) []plan.Param {
	a := n.Attr
	positions, ring := env.Positions(n.In[1])
	return params("heads", a.Int("heads"), "kv_heads", a.Int("kv_heads"), "head_dim", a.Int("head_dim"),
		"positions", positions, "window", a.Int("window"), "ring", flag(ring))
}

func softmaxParams(n *graph.Node, _ Env) []plan.Param {
	return params("heads", n.Out[0].Type.Shape[1].N)
}
