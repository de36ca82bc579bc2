// Package kernels holds the CUDA kernels: their sources, and the PTX that build.py makes of them, in
// modules for several targets. PTX for a target runs on every later GPU, whose driver compiles it.
//
// It imports nothing of this module. The parameters of kernels are in exec/cuda, which writes
// abi.cuh from them.
//
// A source is a family of kernels, and one module for each target that it is compiled for:
//
//	rows       embedding, norms and rounding to q8x2, selection
//	top        the greatest elements of rows
//	gemv       products of few columns: x normed and rounded to q8x2 by each block, weights as integers
//	gemv_f32   the same in float32
//	gemm       products of many columns on tensor cores, over q8x2
//	gemm_f32   the same in float32
//	attention  for few tokens, and the cache
//	prefill    attention for many tokens
//	parts      what joins the parts of a value that several devices have computed
//
// The virtual device runs the same PTX, so that results have the same bits there and on a GPU: nothing
// may depend on the order in which blocks run, and no instruction may be used whose result the manual
// leaves open (ex2.approx, rsqrt.approx, …). Sums whose order matters are written with __fadd_rn and
// __fmaf_rn. A row's bits depend neither on other rows nor on the grid.
//
// # How to add a kernel
//
//  1. exec/cuda/abi.go: its parameters, a struct in the list of abi_test.go, and a method that says
//     how it is launched. Then go test ./exec/cuda -run TestHeader -update.
//  2. Here: the kernel, in the source of its kin, named as in the Call. Code for sm_75 has no cp.async;
//     what later GPUs do better is behind __CUDA_ARCH__, and the source gets that target in build.py.
//  3. A test beside exec/cuda/product_test.go, against ops/ref.
//
// Then
//
//	python3 exec/cuda/kernels/build.py           # compiles; pinned compilers come by pip
//	python3 exec/cuda/kernels/build.py --ptxas   # registers and spills on every GPU, into kernels.md
//	go test ./exec/cuda/...
//
// A weight type is a row of layouts in exec/cuda/layout.go with its function that packs, and a struct in
// weights.cuh with its case in with_integers or with_values; tests go over the table.
package kernels

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.ptx
var files embed.FS

// A Set is the modules for one target: those compiled for it, and of other sources those for earlier ones.
type Set struct {
	ISA string // "sm_75"

	major, minor int // of the least GPU
	driver       int // the least driver, as Driver.Version gives it: that of the compiler of the modules
}

// sets are the targets of build.py, later ones better.
var sets = []Set{
	{"sm_75", 7, 5, 11080},
	{"sm_80", 8, 0, 11080},
	{"sm_89", 8, 9, 12010},
}

// Sets returns the targets, later ones better.
func Sets() []Set { return sets }

// For returns the best set for a GPU of compute capability major.minor and a driver of a version, 1000·major +
// 10·minor, or says which of the two is too old.
func For(driver, major, minor int) (Set, error) {
	least := sets[0]
	switch {
	case !least.runsOn(major, minor):
		return Set{}, fmt.Errorf("the GPU has compute capability %d.%d, expected %d.%d or later", major, minor, least.major, least.minor)
	case driver < least.driver:
		return Set{}, fmt.Errorf("the driver is for CUDA %d.%d, expected %d.%d or later: update it", driver/1000, driver%1000/10, least.driver/1000, least.driver%1000/10)
	}
	best := least
	for _, s := range sets {
		if s.runsOn(major, minor) && driver >= s.driver {
			best = s
		}
	}
	return best, nil
}

// Lookup returns the set of a target, and whether a GPU and a driver can run it.
func Lookup(isa string, driver, major, minor int) (Set, error) {
	for _, s := range sets {
		switch {
		case s.ISA != isa:
		case !s.runsOn(major, minor):
			return Set{}, fmt.Errorf("kernels for %s need compute capability %d.%d, and the GPU has %d.%d", isa, s.major, s.minor, major, minor)
		case driver < s.driver:
			return Set{}, fmt.Errorf("kernels for %s need a driver for CUDA %d.%d, and it is for %d.%d: update it", isa, s.driver/1000, s.driver%1000/10, driver/1000, driver%1000/10)
		default:
			return s, nil
		}
	}
	return Set{}, fmt.Errorf("no kernels for %s", isa)
}

func (s Set) runsOn(major, minor int) bool {
	return major > s.major || major == s.major && minor >= s.minor
}

// Module returns the name and the PTX of the module that has a kernel: of a source that is compiled for several
// targets, the one for the latest that the set allows.
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

// runsAll reports whether what s is for runs the modules of another set.
func (s Set) runsAll(other Set) bool { return other.runsOn(s.major, s.minor) }
