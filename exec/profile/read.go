package profile

import (
	"encoding/json"
	"fmt"

	"pesti/exec/plan"
)

// A readReport has the common fields of a Report and a CountReport, of which only the latter has a
// GPU.
type readReport struct {
	Plan     string `json:"plan"`
	GPU      *GPU   `json:"gpu"`
	Programs []struct {
		Program string `json:"program"`
		Steps   []struct {
			Step      int     `json:"step"`
			Seconds   float64 `json:"seconds"`
			Predicted float64 `json:"predicted"`
		} `json:"steps"`
	} `json:"programs"`
}

// StepTimes returns the seconds of each step, by program, from the JSON of a report, which must be
// of plan p. For a report of counts they are the predictions.
func StepTimes(text []byte, p *plan.Plan) (map[string][]float64, error) {
	var r readReport
	if err := json.Unmarshal(text, &r); err != nil || r.Plan == "" {
		return nil, fmt.Errorf("is no profile, expected the JSON of a profile's report")
	}
	if digest := plan.Digest(p); r.Plan != digest {
		return nil, fmt.Errorf("is a profile of another plan: found %s, expected %s; measure this plan, with the same options", r.Plan, digest)
	}
	times := map[string][]float64{}
	for i := range r.Programs {
		g := &r.Programs[i]
		for j, m := range g.Steps {
			if m.Step != j || m.Seconds < 0 || m.Predicted < 0 {
				return nil, fmt.Errorf("program %s: found step %d with %v seconds, expected step %d and a time", g.Program, m.Step, m.Seconds, j)
			}
			took := m.Seconds
			if r.GPU != nil {
				took = m.Predicted
			}
			times[g.Program] = append(times[g.Program], took)
		}
	}
	return times, nil
}
