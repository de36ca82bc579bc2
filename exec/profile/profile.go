// Package profile owns what is known about the time of a plan's steps: times and counts that an engine has
// collected, reports that compare them with the plan's costs and a roofline, and traces.
//
// It holds data and computes from it; package exec has the clocks and fills a Profile. It imports
// exec/plan for costs, exec/cpu for the roofline of a processor, exec/cpu/kernel for the names of its
// probes, and exec/cuda for the counts and limits of a GPU. It prints nothing for people.
package profile

import (
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A Roofline is what the workers of a machine can do: see cpu.Roofline.
type Roofline = cpu.Roofline

// A GPU is the published limits of one: see cuda.GPU.
type GPU = cuda.GPU

// A Traffic is what went through one memory of a device: see cuda.Traffic.
type Traffic = cuda.Traffic

// GPUs returns the names that LookupGPU takes.
func GPUs() []string { return cuda.GPUs() }

// LookupGPU returns the GPU of a name.
func LookupGPU(name string) (GPU, bool) { return cuda.LookupGPU(name) }

// Classes returns the names of the classes of instructions, in the order of cuda.Counts.Instructions.
func Classes() []string { return cuda.Classes[:] }

// A Profile is what the steps of an engine took since it was opened, or since its profile was last reset.
type Profile struct {
	Workers  int              // 1 on a device
	Device   *cuda.Properties // nil for the processor
	Counted  bool             // whether it holds counts instead of times
	Programs []ProgramTimes   // of the programs that ran, in the order of the plan
}

// A ProgramTimes is what the runs of one program took. Times of workers are in the order of their
// numbers.
type ProgramTimes struct {
	Program *plan.Program
	Runs    int64
	Load    plan.Workload     // of a run: the mean, rounded
	Tokens  int64             // of all runs
	Wall    time.Duration     // of all runs, each from the start of the first worker to the end of the last one
	Steps   [][]time.Duration // by ID of the step, of each worker, summed over runs
	Waits   [][]time.Duration // by wave: how long each worker waited for the last one to arrive
	Counts  [][]cuda.Counts   // by ID of the step, of a device that counts: of each kernel, summed over runs
}

// A Traced is one run of a program.
type Traced struct {
	Program *plan.Program
	Load    plan.Workload
	Begin   time.Duration // since Open
	End     time.Duration
	Spans   [][]Span // of each worker, by ID of the step
}

// A Span is when one worker computed one step, as durations since Open.
type Span struct{ Begin, End time.Duration }

// MaxTrace is the largest number of runs that an engine keeps a trace of.
const MaxTrace = 1 << 12
