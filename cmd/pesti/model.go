package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	lib "pesti"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
)

// demoName is the MODEL argument that means the embedded model.
const demoName = lib.Demo

// openModel opens a MODEL and keeps its warnings for loaded.
func (a *app) openModel(name string) (*gguf.File, error) {
	s, err := a.openSource(name, lib.Options{})
	if err != nil {
		return nil, err
	}
	return s.File, nil
}

// loadModel opens a MODEL, loads its hyper-parameters, and keeps the warnings of both. The caller
// closes the file.
func (a *app) loadModel(name string) (*frontend.Model, error) {
	s, err := a.openSource(name, lib.Options{})
	if err != nil {
		return nil, err
	}
	m, err := s.Load()
	if err != nil {
		s.Close()
		return nil, err
	}
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
