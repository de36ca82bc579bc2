package plan

import (
	"encoding/json"
	"strings"
)

// A Summary is a plan in numbers. Scripts rely on its JSON form. All sizes are in bytes.
type Summary struct {
	Format    int                       `json:"format"`
	Model     string                    `json:"model"`
	Arch      string                    `json:"arch"`
	Sidecar   string                    `json:"sidecar"` // file of the weights that are not in the model's, "" for none
	Backend   string                    `json:"backend"`
	ISA       string                    `json:"isa"`
	Precision string                    `json:"precision"`
	KV        string                    `json:"kv"`
	Threads   int                       `json:"threads"`
	Ctx       int64                     `json:"ctx"`
	Ubatch    int64                     `json:"ubatch"`
	Sequences int64                     `json:"sequences"`
	Passes    string                    `json:"passes"`
	Memory    MemorySummary             `json:"memory"`
	Programs  map[string]ProgramSummary `json:"programs"`
	Fusions   FusionsSummary            `json:"fusions"`
	Fallbacks int                       `json:"fallbacks"` // steps of all programs whose kernel is ref.*

	// LaunchesPerLayer is the largest number of kernel launches for one layer on a device, in the
	// program for the fewest tokens; 0 on the CPU.
	LaunchesPerLayer int `json:"launches_per_layer"`
}

// A MemorySummary is the JSON form of Memory.
type MemorySummary struct {
	Weight          int64 `json:"weight"`
	Packed          int64 `json:"packed"`
	State           int64 `json:"state"`
	Tables          int64 `json:"tables"` // 0 on the CPU
	IO              int64 `json:"io"`
	Arena           int64 `json:"arena"`
	ArenaLowerBound int64 `json:"arena_lower_bound"`
	ArenaUnshared   int64 `json:"arena_unshared"`
}

// A FusionsSummary is the JSON form of Fusions.
type FusionsSummary struct {
	QKV       int `json:"qkv"`
	GatedMLP  int `json:"gated_mlp"`
	Attention int `json:"attention"`
}

// A ProgramSummary holds counts of a program. A count per layer is the maximum over all layers. A
// wave counts for the layer of its last step that workers share. Steps that every worker does whole
// only prepare operands: for example, they sum the residual stream of the layer before.
type ProgramSummary struct {
	Tokens        [2]int64 `json:"tokens"` // fewest and most in a run
	Chunk         int64    `json:"chunk"`  // tokens in a chunk, 0 if the program takes any number
	Rows          int64    `json:"rows"`   // of logits, at most
	Steps         int      `json:"steps"`
	Waves         int      `json:"waves"`
	StepsPerLayer int      `json:"steps_per_layer"`
	WavesPerLayer int      `json:"waves_per_layer"`
	Buffers       int      `json:"buffers"`

	LaunchesPerLayer int `json:"launches_per_layer"` // on a device, 0 on the CPU

	Kernels map[string]int `json:"kernels"` // steps by kernel
}

// Summarize counts what is in a plan.
func Summarize(p *Plan) Summary {
	t := &p.Target
	s := Summary{
		Format: p.Version, Model: p.Model.Name, Arch: p.Model.Arch, Sidecar: p.Sidecar.File,
		Backend: t.Backend, ISA: t.ISA, Precision: t.Precision, KV: t.KV, Threads: t.Threads,
		Ctx: t.Ctx, Ubatch: t.Ubatch, Sequences: t.Sequences, Passes: p.Passes,
		Memory:   MemorySummary(p.Memory),
		Programs: make(map[string]ProgramSummary, len(p.Programs)),
		Fusions:  FusionsSummary(p.Fusions),
	}
	for i := range p.Programs {
		g := summarize(&p.Programs[i])
		s.Programs[p.Programs[i].Name] = g
		for kernel, n := range g.Kernels {
			if IsReference(kernel) {
				s.Fallbacks += n
			}
		}
		if i == 0 {
			s.LaunchesPerLayer = g.LaunchesPerLayer
		}
	}
	return s
}

// FallbackSteps returns the steps of all programs that run reference kernels.
func FallbackSteps(p *Plan) []*Step {
	var list []*Step
	for _, st := range p.Steps() {
		if IsReference(st.Kernel) {
			list = append(list, st)
		}
	}
	return list
}

// IsReference reports whether a kernel is a reference kernel, the fallback if no kernel of the
// target fits.
func IsReference(kernel string) bool { return strings.HasPrefix(kernel, "ref.") }

func summarize(g *Program) ProgramSummary {
	s := ProgramSummary{
		Tokens: [2]int64{g.MinT, g.MaxT}, Chunk: g.Chunk, Rows: g.MaxR,
		Waves: len(g.Waves), Buffers: len(g.Buffers), Kernels: map[string]int{},
	}
	steps, waves, launched := map[int]int{}, map[int]int{}, map[int]int{} // by layer
	for i := range g.Waves {
		layer := noLayer
		for j := range g.Waves[i].Steps {
			st := &g.Waves[i].Steps[j]
			s.Steps++
			s.Kernels[st.Kernel]++
			steps[st.Layer]++
			launched[st.Layer] += launches(g, st)
			if st.Split.By != "each" || j == 0 {
				layer = st.Layer
			}
		}
		waves[layer]++
	}
	for layer := range steps {
		if layer != noLayer {
			s.StepsPerLayer = max(s.StepsPerLayer, steps[layer])
			s.WavesPerLayer = max(s.WavesPerLayer, waves[layer])
			s.LaunchesPerLayer = max(s.LaunchesPerLayer, launched[layer])
		}
	}
	return s
}

// JSON returns the summary of a plan as indented JSON, with its DeviceBreakdown and the Balance of
// each program. Its keys always include the four programs that a plan can have; a program that the
// plan lacks is null.
func JSON(p *Plan) ([]byte, error) {
	type program struct {
		ProgramSummary
		Balance *Balance `json:"balance"`
	}
	spread, err := DeviceBreakdownOf(p)
	if err != nil {
		return nil, err
	}
	s := struct {
		Summary
		*DeviceBreakdown
		Programs map[string]*program `json:"programs"`
	}{Summarize(p), spread, map[string]*program{"decode": nil, "small": nil, "prefill": nil, "tiles": nil}}
	for i := range p.Programs {
		g := &p.Programs[i]
		b, err := BalanceOf(p, g)
		if err != nil {
			return nil, err
		}
		s.Programs[g.Name] = &program{s.Summary.Programs[g.Name], b}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}
