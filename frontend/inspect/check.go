package inspect

import (
	"fmt"

	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
)

// Check reads all of a file and returns a line for each fault, which begins with the file's path: values that
// are NaN or infinite, and what the front end and the tokenizer refuse. A file without tensors (a vocabulary)
// or of an unsupported architecture is no fault; warnings name what was not checked.
func Check(f *gguf.File) (faults, warnings []string) {
	for _, d := range f.Check() {
		faults = append(faults, f.Path+": "+d.String())
	}
	arch, err := f.Str("general.architecture")
	switch {
	case err != nil:
		faults = append(faults, err.Error())
	case !supported(arch):
		warnings = append(warnings, fmt.Sprintf("%s: architecture %q is not supported, so that hyper-parameters and shapes are not checked", f.Path, arch))
	case len(f.Tensors()) > 0:
		if m, err := frontend.Load(f); err != nil {
			faults = append(faults, err.Error())
		} else {
			warnings = append(warnings, m.Warnings...)
		}
	}
	if f.Has("tokenizer.ggml.model") {
		if t, err := tokenizer.FromGGUF(f); err != nil {
			faults = append(faults, err.Error())
		} else {
			warnings = append(warnings, t.Warnings()...)
		}
	}
	return faults, warnings
}
