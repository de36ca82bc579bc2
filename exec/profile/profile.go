// Package profile describes the time of a plan's steps: times and counts that an engine has
// collected, reports that compare them with the plan's costs and a roofline, and traces.
//
// Package exec has the clocks and fills a Profile. It imports exec/plan for costs, exec/cpu for the
// roofline of a processor, exec/cpu/kernel for the names of its probes, exec/cuda for the counts and
// limits of a GPU, and exec/load for the work of other programs. It prints no text for users.
package profile

import (
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A Roofline holds the peak rates of a machine's workers: see cpu.Roofline.
type Roofline = cpu.Roofline

// A GPU holds the published peak rates of a GPU: see cuda.GPU.
type GPU = cuda.GPU

// A Traffic counts the accesses to one memory space of a device: see cuda.Traffic.
type Traffic = cuda.Traffic

// GPUs returns the names for LookupGPU.
func GPUs() []string { return cuda.GPUs() }

// LookupGPU returns the GPU with a name.
func LookupGPU(name string) (GPU, bool) { return cuda.LookupGPU(name) }

// Classes returns the names of the classes of instructions, in the order of cuda.Counts.Instructions.
func Classes() []string { return cuda.Classes[:] }

// A Profile holds the times or counts of an engine's steps since Open or since the last reset of
// the profile.
type Profile struct {
	Workers  int              // 1 on a device
	Device   *cuda.Properties // nil for the processor
	Counted  bool             // it holds counts instead of times
	Programs []ProgramTimes   // programs that ran, in the order of the plan
}

// A ProgramTimes holds the times or counts of one program's runs. Lists of workers are in order of
// worker index.
type ProgramTimes struct {
	Program *plan.Program
	Runs    int64
	Load    plan.Workload     // mean workload of a run, rounded
	Tokens  int64             // evaluated in all runs
	Wall    time.Duration     // total of all runs, each from the first worker's start to the last one's end
	Steps   [][]time.Duration // by step ID and worker, summed over runs
	Waits   [][]time.Duration // by wave and worker: time spent waiting for the last worker
	Counts  [][]cuda.Counts   // by step ID, for a device that counts: counts of each kernel, summed over runs
}

// A Traced is one run of a program.
type Traced struct {
	Program *plan.Program
	Load    plan.Workload
	Begin   time.Duration // since Open
	End     time.Duration
	Spans   [][]Span // by worker and step ID
}

// A Span holds when one worker began and ended a step, as durations since Open.
type Span struct{ Begin, End time.Duration }

// MaxTrace is the largest number of runs in a trace.
const MaxTrace = 1 << 12
