// Package kernels has the CUDA kernels: their sources, and the PTX that build.py compiles from them, in
// modules for several targets. PTX for a target runs on every later GPU: the driver compiles it.
//
// It imports no package of this module. The parameters of kernels are defined in exec/cuda, whose test
// TestHeader -update generates abi.cuh.
//
// Each source file has a family of kernels, and is compiled to one module for each of its targets:
//
//	rows       embedding, norms, quantization to q8x2, selection
//	top        top-k of rows
//	gemv       products of few columns with integer weights; each block normalizes and quantizes x to q8x2
//	gemv_f32   the same in float32
//	gemm       products of many columns on tensor cores, with x in q8x2
//	gemm_f32   the same in float32
//	attention  attention of few tokens, cache writes
//	prefill    attention of many tokens
//	parts      sum and concatenation of the partial results of several devices
//
// The virtual device runs the same PTX and must give the same bits as a GPU. Therefore no result may
// depend on the order in which blocks run, and no instruction may be used whose result the PTX manual
// leaves open (ex2.approx, rsqrt.approx, …). Sums whose order matters are written with __fadd_rn and
// __fmaf_rn. A row's bits depend neither on other rows nor on the grid.
//
// # How to add a kernel
//
//  1. exec/cuda/abi.go: a struct with its parameters, which is added to the list in abi_test.go, and a
//     method that returns its Call. Then run go test ./exec/cuda -run TestHeader -update.
//  2. Here: the kernel, with the name in the Call, in the source file of its family. Code for sm_75 has no
//     cp.async. Put code for later GPUs under #if __CUDA_ARCH__ and add the target to the source in
//     build.py.
//  3. exec/cuda: a test that compares it with ops/ref; see product_test.go.
//
// Then
//
//	python3 exec/cuda/kernels/build.py           # compiles; pip installs pinned compilers
//	python3 exec/cuda/kernels/build.py --ptxas   # registers and spills on every GPU, into kernels.md
//	go test ./exec/cuda/...
//
// To add a weight type, add a row to layouts in exec/cuda/layout.go with its pack function, and a struct to
// weights.cuh with its case in with_integers or with_values. The tests cover all rows of the table.
package kernels

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.ptx
var files embed.FS

// A Set is the modules for one target. A source that is not compiled for the target is included in its
// version for the latest earlier target.
type Set struct {
	ISA string // "sm_75"

	major, minor int // least compute capability
	driver       int // least driver version, as in Driver.Version: that of the compiler of the modules
}

// sets has the targets of build.py, the best last.
var sets = []Set{
	{"sm_75", 7, 5, 11080},
	{"sm_80", 8, 0, 11080},
	{"sm_89", 8, 9, 12010},
}

// Sets returns the targets, the best last.
func Sets() []Set { return sets }

// For returns the best set for a driver version (1000·major + 10·minor) and a GPU of compute capability
// major.minor. The error says which of the two is too old.
func For(driver, major, minor int) (Set, error) {
	least := sets[0]
	switch {
	case !least.runsOn(major, minor):
		return Set{}, fmt.Errorf("the GPU has compute capability %d.%d, expected %d.%d or later", major, minor, least.major, least.minor)
	case driver < least.driver:
		return Set{}, fmt.Errorf("the driver supports CUDA %d.%d, expected %d.%d or later: update the driver", driver/1000, driver%1000/10, least.driver/1000, least.driver%1000/10)
	}
	best := least
	for _, s := range sets {
		if s.runsOn(major, minor) && driver >= s.driver {
			best = s
		}
	}
	return best, nil
}

// Lookup returns the set of a target, or an error if the driver or the GPU cannot run it.
func Lookup(isa string, driver, major, minor int) (Set, error) {
	for _, s := range sets {
		switch {
		case s.ISA != isa:
		case !s.runsOn(major, minor):
			return Set{}, fmt.Errorf("kernels for %s: the GPU has compute capability %d.%d, expected %d.%d or later", isa, major, minor, s.major, s.minor)
		case driver < s.driver:
			return Set{}, fmt.Errorf("kernels for %s: the driver supports CUDA %d.%d, expected %d.%d or later: update the driver", isa, driver/1000, driver%1000/10, s.driver/1000, s.driver%1000/10)
		default:
			return s, nil
		}
	}
	return Set{}, fmt.Errorf("no kernels for %s", isa)
}

func (s Set) runsOn(major, minor int) bool {
	return major > s.major || major == s.major && minor >= s.minor
}

// Module returns the name and the PTX of the module that has a kernel. If its source is compiled for
// several targets, it is the module for the latest target that the set allows.
func (s Set) Module(kernel string) (name string, ptx []byte, err error) {
	entry := []byte(".entry " + kernel + "(")
	for i := len(sets) - 1; i >= 0; i-- {
		if !s.runsAll(sets[i]) {
			continue
		}
		names, err := fs.Glob(files, "*."+sets[i].ISA+".ptx")
		if err != nil {
			return "", nil, err
		}
		for _, name := range names {
			ptx, err := files.ReadFile(name)
			if err != nil {
				return "", nil, err
			}
			if bytes.Contains(ptx, entry) {
				return name, ptx, nil
			}
		}
	}
	return "", nil, fmt.Errorf("no kernel %s for %s", kernel, s.ISA)
}

// runsAll reports whether GPUs of target s can run the modules of another set.
func (s Set) runsAll(other Set) bool { return other.runsOn(s.major, s.minor) }
