package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/sidecar"
)

// demoName is the MODEL argument that means the embedded model.
const demoName = "demo"

// openModel opens a MODEL and keeps its warnings for loaded.
func (a *app) openModel(name string) (*gguf.File, error) {
	if name == demoName {
		return gguf.Parse(demoName, demo.GGUF())
	}
	if name == "" {
		return nil, cannot("opened", name, syscall.ENOENT)
	}
	if isPlan(name) {
		return nil, usagef("%s: is a plan, expected a model", name)
	}
	f, err := gguf.Open(name)
	if err != nil {
		return nil, err
	}
	a.warn(f.Warnings())
	a.inputs = append(a.inputs, f.Paths()...)
	return f, nil
}

// loadModel opens a MODEL, loads its hyper-parameters, and keeps the warnings of both. The caller
// closes the file.
func (a *app) loadModel(name string) (*frontend.Model, error) {
	f, err := a.openModel(name)
	if err != nil {
		return nil, err
	}
	m, err := frontend.Load(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	a.warn(m.Warnings)
	return m, nil
}

// isPlan reports whether the file at path begins like a plan. It returns false for an unreadable
// file; opening it as a model then reports the error.
func isPlan(path string) bool { return path != demoName && plan.IsPlan(headOf(path)) }

// isModel reports whether the file at path begins like a model.
func isModel(path string) bool { return bytes.HasPrefix(headOf(path), []byte(gguf.Magic)) }

// headSize is the number of bytes by which plans and models are recognized.
const headSize = 64

// headOf returns the first headSize bytes of the file at path, or fewer if it is shorter. It returns none if the
// file cannot be read.
func headOf(path string) []byte {
	// Reading from a pipe would remove the bytes from it.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head)
	return head[:n]
}

// planModel opens the model of the plan at path: the given one, or else the one that the plan
// names.
func (a *app) planModel(path string, p *plan.Plan, given string) (*gguf.File, error) {
	switch {
	case given != "":
		return a.openModel(given)
	case p.Model.File == "":
		f, err := a.openModel(demoName)
		if err != nil {
			return nil, err
		}
		if err := exec.CheckModel(p, f); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: names no model, so it is opened with demo: %w, or name its model with --model", path, err)
		}
		return f, nil
	}
	f, err := a.openModel(plan.ResolveFile(path, p.Model.File))
	if err != nil {
		return nil, fmt.Errorf("%s: its model: %w; name the model with --model", path, err)
	}
	return f, nil
}

// modelPath returns the path of its model that a plan at planPath records: pathFrom, or "" for the
// embedded model.
func modelPath(planPath, model string) (string, error) {
	if model == demoName {
		return "", nil
	}
	return pathFrom(planPath, model)
}

// pathFrom returns the path of a file relative to the plan's folder, or its absolute path if there
// is no relative one.
func pathFrom(planPath, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Dir(planPath))
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(dir, path); err == nil {
		path = rel
	}
	return filepath.ToSlash(path), nil
}

// openSidecar opens the sidecar at path, which holds model's matrices in FP8.
func (a *app) openSidecar(path string, model *gguf.File) (*sidecar.File, error) {
	f, err := sidecar.Open(path, model)
	if err != nil {
		return nil, err
	}
	a.inputs = append(a.inputs, path)
	return f, nil
}

// planSidecar opens the sidecar of the plan at path: the given one, or else the one that the plan
// names; nil if the plan needs none.
func (a *app) planSidecar(path string, p *plan.Plan, given string, model *gguf.File) (*sidecar.File, error) {
	switch {
	case p.Sidecar == (plan.Sidecar{}) && given != "":
		return nil, usagef("--weights names a file with weights of the plan, but all weights of %s are in the model", path)
	case p.Sidecar == (plan.Sidecar{}):
		return nil, nil
	case given != "":
		return a.openSidecar(given, model)
	}
	f, err := a.openSidecar(plan.ResolveFile(path, p.Sidecar.File), model)
	if err != nil {
		return nil, fmt.Errorf("%s: its weights: %w; name the file with --weights", path, err)
	}
	return f, nil
}

// digestSidecar returns the digest of a sidecar's weights. It is an error if they were quantized
// from weights with another digest than the model's.
func digestSidecar(f *sidecar.File, model string) (string, error) {
	if err := f.CheckData(model); err != nil {
		return "", err
	}
	sum, err := f.HashData()
	return fmt.Sprintf("sha256:%x", sum), err
}

// sampled is the prefix of a digest of samples of the weights.
const sampled = "samples-"

// digestWeights returns the digest of a model's weights for a plan: of all weights, or of samples.
func digestWeights(f *gguf.File, whole bool) (string, error) {
	if whole {
		sum, err := f.HashData()
		return fmt.Sprintf("sha256:%x", sum), err
	}
	sum, err := f.SampleData()
	return fmt.Sprintf(sampled+"sha256:%x", sum), err
}
