package main

import "strings"

// A target has the required value of a measurement, and the value to aim for. 0 means no target.
type target struct{ required, goal float64 }

// A known model has a label and targets for the ratio of our speed to llama.cpp's.
type known struct {
	file, label     string
	decode, prefill target  // of the tests below
	fast            float64 // required of decode where memory is fast, if not 0
	read            target  // of our speed in decodeTest as a fraction of the memory roofline; the zero value is that of every model
}

// fastMemory is the read bandwidth in bytes a second above which memory is fast.
const fastMemory = 50e9

// bandwidth returns the target for the fraction of the memory roofline.
func (k known) bandwidth() target {
	if k.read == (target{}) {
		return bandwidth
	}
	return k.read
}

var models = []known{
	{"smollm2-135m-instruct-q4_1.gguf", "SmolLM2-135M Q4_1", target{1.3, 1.7}, target{2.5, 5}, 0, target{}},
	{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "Qwen2.5-0.5B Q4_K_M", target{1.9, 2.4}, target{5, 10}, 0, target{}},
	{"gemma-3-270m-q4_k_m.gguf", "gemma-3-270m Q4_K_M", target{1.5, 1.8}, target{3.5, 8}, 0, target{}},

	// With random weights, from conformance/benchmodels. The targets are for AVX-512 VNNI without AMX.
	{"qwen2-1.5b-q4_k_m.gguf", "Qwen2.5 1.5B shape Q4_K_M", target{1, 1.2}, target{1.35, 1.6}, 1.1, target{0.8, 0.95}},
	{"llama-3b-q4_k_m.gguf", "Llama 3.2 3B shape Q4_K_M", target{1, 1.2}, target{1.35, 1.6}, 1.1, target{0.8, 0.95}},
	{"llama-3b-q8_0.gguf", "Llama 3.2 3B shape Q8_0", target{1, 1.2}, target{1.35, 1.6}, 1.1, target{0.8, 0.95}},
	{"llama-8b-q4_k_m.gguf", "Llama 3 8B shape Q4_K_M", target{1, 1.2}, target{1.35, 1.6}, 1.1, target{0.8, 0.95}},
}

// The tests for which models have targets.
var (
	decodeTest  = test{NGen: 128}
	prefillTest = test{NPrompt: 512}
)

// Targets of every model.
var (
	shortTest  = test{NPrompt: 32} // a short prompt
	shortRatio = 2.0

	longDecode  = test{NGen: 128, NDepth: 4096} // the ratio must be at least that of decodeTest
	longPrefill = test{NPrompt: 4096}           // the ratio must be at least that of prefillTest

	bandwidth = target{0.75, 0.9} // our speed in decodeTest as a fraction of the memory roofline

	startRatio = 0.5 // largest ratio of our time to theirs

	spareMemory = int64(64 << 20) // allowed peak above the file, the caches and the arena
)

// lookup returns the entry of a model. Unknown models get only a label.
func lookup(file string) known {
	for _, k := range models {
		if k.file == file {
			return k
		}
	}
	return known{file: file, label: strings.TrimSuffix(file, ".gguf")}
}

// targetOf returns the target of a test's ratio.
func targetOf(m *modelReport, t test) target {
	k := lookup(m.File)
	switch t {
	case decodeTest:
		if found := m.find(t); found != nil && k.fast > 0 && median(found.Read) > fastMemory {
			return target{k.fast, k.decode.goal}
		}
		return k.decode
	case prefillTest:
		return k.prefill
	case shortTest:
		return target{required: shortRatio}
	case longDecode:
		return target{required: ratioOf(m, decodeTest)}
	case longPrefill:
		return target{required: ratioOf(m, prefillTest)}
	}
	return target{}
}

// ratioOf returns the ratio of a test, or 0 if it was not measured.
func ratioOf(m *modelReport, t test) float64 {
	if found := m.find(t); found != nil {
		return found.ratio()
	}
	return 0
}

// verdict compares a ratio with the target.
func (t target) verdict(ratio float64) string {
	switch {
	case t.required == 0 || ratio == 0:
		return "-"
	case ratio < t.required:
		return "**below**"
	case t.goal > 0 && ratio >= t.goal:
		return "goal"
	default:
		return "ok"
	}
}
