package exec

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/gguf/quant"
)

// tuneTime is the longest time that an engine tunes itself.
const tuneTime = 150 * time.Millisecond

// tuneLimits are limits of tuning.
type tuneLimits struct {
	least  int64   // bytes of weights of a type; fewer stay in caches, where no order matters
	sample int64   // bytes that a sample reads, unless a step has more
	rounds int     // samples of each order
	gain   float64 // smallest gain over the default
}

var usualLimits = tuneLimits{least: 32 << 20, sample: 16 << 20, rounds: 5, gain: 1.05}

// A Tuned is a choice of the order in which the products of one token read the weights of a type. All orders give
// the same bits.
type Tuned struct {
	Type  string       `json:"type"`          // of the weights, in lower case
	Bytes int64        `json:"bytes"`         // of the weights that were to be measured
	Order string       `json:"order"`         // chosen
	Tried []TunedOrder `json:"tried"`         // the default first; empty if nothing was measured
	Why   string       `json:"why,omitempty"` // why the default was kept without five samples of each order
}

// A TunedOrder is an order that was measured.
type TunedOrder struct {
	Order string  `json:"order"`
	GBs   float64 `json:"gb_s"`   // 10⁹ bytes of weights a second, median of five samples, or of fewer if the time ended
	GMACs float64 `json:"gmac_s"` // 10⁹ products a second
}

// CheckReadOrder returns an error for an unknown order or an unknown type of weights.
func CheckReadOrder(kind, order string) error {
	if _, ok := quant.ByName(kind); !ok {
		return fmt.Errorf("type %q of weights is unknown", kind)
	}
	_, err := kernel.ParseReadOrder(order)
	return err
}

// useReadOrders sets the orders in which one token reads weights.
func (e *Engine) useReadOrders(byType map[string]string) error {
	e.choices.ReadOrder, e.given = map[quant.Type]kernel.ReadOrder{}, map[quant.Type]bool{}
	for kind, order := range byType {
		if err := CheckReadOrder(kind, order); err != nil {
			return err
		}
		info, _ := quant.ByName(kind)
		e.choices.ReadOrder[info.Type], _ = kernel.ParseReadOrder(order)
		e.given[info.Type] = true
	}
	return nil
}

// Tune measures which order of reading is fastest for one token, for the weights of each type, and
// uses that order from then on. It runs products of the plan on this engine's workers for about the
// given time. A type keeps its order if it has less than 32 MiB of weights, if no other order is at
// least 5 % faster by the median and by the fastest of five samples, or if the time or ctx ends first.
// On AVX2, AVX-512 VNNI and AMX integer products have several orders. The logits of the last pass are overwritten.
func (e *Engine) Tune(ctx context.Context, limit time.Duration) ([]Tuned, error) {
	return e.tuneWithin(ctx, limit, &usualLimits)
}

func (e *Engine) tuneWithin(ctx context.Context, limit time.Duration, l *tuneLimits) ([]Tuned, error) {
	if e.closed {
		return nil, ErrEngineClosed
	}
	if e.machine == nil || e.profiler != nil || e.plan.Target.Backend == plan.CUDA {
		return nil, nil
	}
	sets, err := isa.UpTo(e.plan.Target.ISA)
	if err != nil {
		return nil, err
	}
	e.last = kernel.Run{}
	end := time.Now().Add(limit)
	var all []Tuned
	for _, p := range e.tunable(sets) {
		if e.given[p.kind] {
			continue
		}
		t, err := e.tuneType(ctx, &p, end, l)
		if err != nil {
			return all, err
		}
		all = append(all, t)
	}
	return all, nil
}

// A tunedProducts has the products of one token with weights of one type.
type tunedProducts struct {
	kind   quant.Type
	orders []kernel.ReadOrder // the default first
	steps  []tunedStep
	bytes  int64
}

// A tunedStep is a step of products, as a schedule of its own.
type tunedStep struct {
	schedule cpu.Schedule
	bytes    int64
	macs     int64
}

// tunable returns the products of the program for one token for which there is a choice, the type with most weights
// first. Steps with weights of several types are left out.
func (e *Engine) tunable(sets []string) []tunedProducts {
	selected := e.plan.SelectProgram(1, 1, func(int64) bool { return false })
	at := slices.IndexFunc(e.programs, func(g program) bool { return g.Program == selected })
	if at < 0 {
		return nil
	}
	g := &e.programs[at]
	weights := e.plan.WeightsByName()
	var all []tunedProducts
	for wave := range g.Waves {
		for i := range g.Waves[wave].Steps {
			var st tunedStep
			var kinds []string
			var orders []kernel.ReadOrder
			for _, a := range g.Waves[wave].Steps[i].Args {
				if a.Kernel == "" {
					continue
				}
				w := weights[a.Weight]
				st.bytes, st.macs = st.bytes+w.Packed, st.macs+w.Dims[0]*w.Dims[1]
				orders = kernel.ReadOrders(a.Kernel, sets)
				kinds = append(kinds, w.Type)
			}
			if kinds = slices.Compact(kinds); len(kinds) != 1 || orders == nil {
				continue
			}
			for _, worker := range g.schedule {
				st.schedule = append(st.schedule, [][]kernel.Func{{worker[wave][i]}})
			}
			info, _ := quant.ByName(kinds[0]) // CheckModel has checked it
			same := slices.IndexFunc(all, func(p tunedProducts) bool { return p.kind == info.Type })
			if same < 0 {
				all, same = append(all, tunedProducts{kind: info.Type, orders: orders}), len(all)
			}
			all[same].bytes += st.bytes
			all[same].steps = append(all[same].steps, st)
		}
	}
	slices.SortStableFunc(all, func(a, b tunedProducts) int { return cmp.Compare(b.bytes, a.bytes) })
	return all
}

// tuneType measures the orders for one type. Each sample reads other weights than the one before, since in a
// forward pass the weights are not in caches either. An order reads different steps in each round, so that no order is
// measured with one shape only.
func (e *Engine) tuneType(ctx context.Context, p *tunedProducts, end time.Time, l *tuneLimits) (Tuned, error) {
	t := Tuned{Type: lowerName(p.kind), Bytes: p.bytes}
	before, chosen := e.choices.ReadOrder[p.kind]
	if !chosen {
		before = p.orders[0]
	}
	t.Order = before.String()
	if p.bytes < l.least {
		t.Why = fmt.Sprintf("fewer than %s, which stay in caches", plan.HumanBytes(l.least))
		return t, nil
	}
	rates := make([][]float64, len(p.orders)) // bytes a second
	var bytes, macs int64                     // of all samples
	next := 0
rounds:
	for range l.rounds {
		for i, r := range p.orders {
			switch {
			case ctx.Err() != nil:
				t.Why = "canceled"
				break rounds
			case time.Now().After(end):
				t.Why = "no time for five samples"
				break rounds
			}
			e.choices.ReadOrder[p.kind] = r
			begin, sample := time.Now(), int64(0)
			for sample < max(l.sample, 1) {
				st := &p.steps[next%len(p.steps)]
				if err := e.machine.Run(nil, st.schedule, kernel.Run{T: 1, R: 1}); err != nil {
					return t, e.fault(err)
				}
				sample, macs, next = sample+st.bytes, macs+st.macs, next+1
			}
			bytes += sample
			rates[i] = append(rates[i], float64(sample)/time.Since(begin).Seconds())
		}
		next++
	}
	e.choices.ReadOrder[p.kind] = before
	if slices.ContainsFunc(rates, func(r []float64) bool { return len(r) == 0 }) { // there was no time for a single round
		return t, nil
	}
	for i, r := range p.orders {
		median := median(rates[i]) / 1e9
		t.Tried = append(t.Tried, TunedOrder{r.String(), median, median * float64(macs) / float64(bytes)})
	}
	if best := fastest(rates, l.gain); t.Why == "" && best > 0 {
		e.choices.ReadOrder[p.kind], t.Order = p.orders[best], t.Tried[best].Order
	}
	return t, nil
}

// fastest returns the order with the highest median rate, or the default, 0, if that one is not gain times as fast as
// the default by the median and by the fastest sample. Other programs slow some samples down, the fastest ones least.
// rates has the samples of each order, at least one.
func fastest(rates [][]float64, gain float64) int {
	best := 0
	for i := range rates {
		if median(rates[i]) > median(rates[best]) {
			best = i
		}
	}
	if median(rates[best]) >= gain*median(rates[0]) && slices.Max(rates[best]) >= gain*slices.Max(rates[0]) {
		return best
	}
	return 0
}

// median returns the middle of the values, or the upper one of two.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// tuneOnce tunes before the second token if Options.Tune is set.
func (e *Engine) tuneOnce(ctx context.Context, tokens int) error {
	if !e.tune || e.passes == 0 || tokens > 1 || ctx.Err() != nil {
		return nil
	}
	e.tune = false
	var err error
	e.tuned, err = e.Tune(ctx, tuneTime)
	return err
}

// Tuned returns the choices that the engine has measured because of Options.Tune.
func (e *Engine) Tuned() []Tuned { return e.tuned }

// lowerName returns the name of a type as plans write it.
func lowerName(t quant.Type) string { return strings.ToLower(t.String()) }
