package main

import (
	"errors"
	"fmt"

	lib "pesti"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/exec/sample"
	"pesti/lower"
)

// fieldFlags maps fields in errors of packages to flags.
var fieldFlags = map[string]string{
	"Weights": "weights",
	"Temp":    "temp", "TopK": "top-k", "TopP": "top-p", "MinP": "min-p", "RepeatPenalty": "repeat-penalty", "RepeatLast": "repeat-last",
	"Passes": "passes", "Target": "target", "Split": "split", "Devices": "devices", "Activations": "activations", "Precision": "precision", "Tiles": "tiles", "Ubatch": "ubatch", "Sequences": "sequences", "Outputs": "values", "Threads": "threads", "GPULayers": "gpu-layers", "KV": "kv", "Ctx": "ctx", "Rows": "rows", "ISA": "isa",
}

// withFlag converts an error about a field to an error about its flag.
func withFlag(err error) error {
	var p *sample.ParamError
	if errors.As(err, &p) {
		return usagef("--%s %s", fieldFlags[p.Field], p.Text())
	}
	flag := func(field string) string { return "--" + fieldFlags[field] }
	var o *lower.OptionError
	if errors.As(err, &o) {
		return usagef("%s", o.Text(flag))
	}
	var l *lib.OptionError
	if errors.As(err, &l) && fieldFlags[l.Field] != "" {
		return usagef("%s", l.Text(flag))
	}
	return err
}

// flagsHint returns a hint for an error: the flags that change the limit, or a command; "" for
// other errors.
func flagsHint(err error) string {
	var input *lib.InputError
	switch {
	case errors.As(err, &input):
		return fmt.Sprintf("; name the %s with --%s", input.Input, input.Input)
	case errors.Is(err, exec.ErrOutOfMemory):
		return " (--ctx, --sequences, --ubatch)"
	case errors.Is(err, exec.ErrNoSequence):
		return " (--sequences)"
	case errors.Is(err, exec.ErrContextFull):
		return " (--ctx)"
	case errors.Is(err, plan.ErrNotSealed):
		return " (pesti plan verify --seal)"
	case errors.Is(err, sample.ErrNotFinite):
		return "; try pesti inspect --check"
	}
	return ""
}
