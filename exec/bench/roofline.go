package bench

import (
	"cmp"
	"context"
	"errors"

	"pesti/exec"
	"pesti/exec/cpu"
	"pesti/exec/plan"
	"pesti/exec/profile"
)

// A Roofline holds the machine's limits on a test's speed, measured between its runs on the same
// threads.
type Roofline struct {
	TokenBytes int64             `json:"token_bytes"` // weights and KV caches that a token reads
	ReadTS     float64           `json:"read_ts"`     // limit in tokens per second, from reading alone
	OfRead     float64           `json:"of_read"`     // the median speed ÷ read_ts
	ComputeTS  float64           `json:"compute_ts"`  // limit in tokens per second, from computing alone
	OfCompute  float64           `json:"of_compute"`
	Machine    *profile.Roofline `json:"machine"`
}

// A testRoof measures the roofline while a test is measured. A nil one measures nothing.
type testRoof struct {
	prober *cpu.Prober
	plan   *plan.Plan
	loads  []plan.Workload
	bytes  int64 // size of the buffer that is read
}

// newTestRoof returns a testRoof for a test. Its buffer has as many bytes as one of the test's
// tokens, or a chunk of its prompt, reads.
func newTestRoof(e *exec.Engine, t *Test) (*testRoof, error) {
	r := &testRoof{plan: e.Plan(), loads: testLoads(t, e.Plan())}
	costs := plan.NewCoster(r.plan)
	for _, l := range r.loads {
		c, err := costs.Program(r.plan.ProgramFor(l), l, e.Threads())
		if err != nil {
			return nil, err
		}
		r.bytes += c.Stream()
	}
	var err error
	r.prober, err = e.Prober(r.bytes / int64(len(r.loads)))
	return r, err
}

// testLoads returns the workloads of the forward passes of a test.
func testLoads(t *Test, p *plan.Plan) []plan.Workload {
	pos, end := int64(t.NDepth), int64(t.NDepth+t.Tokens())
	var loads []plan.Workload
	for pos < end {
		l := plan.Workload{T: 1, Seqs: 1, Pos: pos}
		if t.NGen == 0 {
			l.T = p.ChunkLen(pos, end-pos)
		}
		if pos += l.T; t.NGen > 0 || pos == end {
			l.R = 1
		}
		loads = append(loads, l)
	}
	return loads
}

func (r *testRoof) sample(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.prober.Sample(ctx)
}

// result compares speeds, in tokens per second, with the roofline.
func (r *testRoof) result(tokens int, speeds []float64) (*Roofline, error) {
	if r == nil {
		return nil, nil
	}
	machine := r.prober.Roofline()
	var reading, computing float64
	for _, l := range r.loads {
		read, compute, err := profile.Limits(r.plan, r.plan.ProgramFor(l), l, machine)
		if err != nil {
			return nil, errors.Join(err, r.prober.Free())
		}
		reading, computing = reading+read, computing+compute
	}
	n := float64(tokens)
	res := &Roofline{TokenBytes: r.bytes / int64(tokens), Machine: machine,
		ReadTS: n / cmp.Or(reading, 1), ComputeTS: n / cmp.Or(computing, 1)}
	res.OfRead, res.OfCompute = cpu.Median(speeds)/res.ReadTS, cpu.Median(speeds)/res.ComputeTS
	return res, r.prober.Free()
}
