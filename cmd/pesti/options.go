package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/lower"
)

// isaVariable is the environment variable that caps the instruction set.
const isaVariable = "PESTI_ISA"

// compileFlags are the options of a compilation, which all verbs that compile share, but for values.
type compileFlags struct {
	target, precision, kv, isa      choice
	planner, tiles, activations     choice
	ctx, ubatch, sequences, threads count
	devices                         count
	split                           choice
	gpuLayers                       count
	passes                          string
	values                          []string
	weights                         string // a sidecar
	on                              device // of verbs that run what they compile
	runs                            bool   // whether the verb is one

	set *pflag.FlagSet // these flags alone
}

// addCompileFlags gives cmd the options of a compilation.
func addCompileFlags(cmd *cobra.Command, precision string) *compileFlags {
	c := newCompileFlags(precision)
	cmd.Flags().AddFlagSet(c.set)
	return c
}

func newCompileFlags(precision string) *compileFlags {
	var isas []string
	for _, s := range exec.InstructionSets() {
		isas = append(isas, s.Name)
	}
	isas = append(isas, plan.CUDAISAs...)
	c := &compileFlags{
		target:    choice{"cpu", lower.TargetNames()},
		precision: choice{precision, []string{"exact", "fast"}},
		kv:        choice{"", []string{"f32", "f16", "fp8", "q8_0"}},
		isa:       choice{"", isas},
		planner:   choice{"", lower.Planners()},
		tiles:     choice{"off", []string{"on", "off"}},
		ctx:       count{0, 1},
		ubatch:    count{0, 1},
		sequences: count{1, 1},
		threads:   count{int64(exec.DefaultThreads()), 1},
		devices:   count{1, 1},
		gpuLayers: count{0, 1},
		split:     choice{"layers", []string{"layers", "tensor"}},
		set:       pflag.NewFlagSet("compile", pflag.ContinueOnError),

		activations: choice{"auto", []string{"auto", "q8x2", "mixed", "q8"}},
	}
	c.set.Var(&c.target, "target", "what to compile for")
	c.set.Var(&c.precision, "precision", "exact computes in float32, fast in integers where it can")
	c.set.Var(&c.kv, "kv", "element type of the KV cache (default f16 in fast, f32 in exact)")
	c.set.VarP(&c.ctx, "ctx", "c", "positions of a sequence (default 4096, or what the model was trained for)")
	c.set.Var(&c.ubatch, "ubatch", "maximum number of tokens of one step (default 512)")
	c.set.Var(&c.sequences, "sequences", "maximum number of sequences at a time")
	c.set.VarP(&c.threads, "threads", "t", "maximum number of workers; no more run than there are processors")
	c.set.Var(&c.devices, "devices", "number of devices of target cuda that share the model")
	c.set.Var(&c.gpuLayers, "gpu-layers", "run the last `N` layers on devices of target cuda, and the other layers, embedding and output on the processor; a number above that of the layers runs all on devices (default all)")
	c.set.Var(&c.split, "split", "how devices share the model: each has some of the layers, or some rows or columns of each matrix")
	c.set.Var(&c.isa, "isa", "instruction set, at most the one that "+isaVariable+" names (default the best one); for target cuda the compute capability (default the lowest, or that of the device)")
	c.set.Var(&c.activations, "activations", "format of activations in precision fast: q8x2 has 15 bits; q8 has 8, with larger errors; mixed has 15 where 8 cost most accuracy, in q, k, v and logits; auto is mixed on AVX2 and q8x2 elsewhere")
	c.set.Var(&c.tiles, "tiles", "a program for whole chunks of 64 tokens of a prompt, in bf16: faster with instruction set amx, but logits depend on how a prompt is split into calls")
	c.set.StringVar(&c.weights, "weights", "", "`FILE.safetensors` with the matrices of the model in FP8, as quantize writes it")
	c.set.StringVar(&c.passes, "passes", "", "passes to leave out: a `LIST` of -name,-name, or none to leave out all that are optional")
	c.set.Var(&c.planner, "planner", "plan buffers with the planner of this `NAME` alone (default all planners, of which the best result counts)")
	// In help a default of 0 would be a riddle; the texts tell.
	for _, name := range []string{"ctx", "ubatch", "gpu-layers"} {
		c.set.Lookup(name).DefValue = ""
	}
	return c
}

// addValues gives cmd the option that names values to keep, for verbs whose plan or output shows them.
func (c *compileFlags) addValues(cmd *cobra.Command, help string) {
	c.set.StringSliceVar(&c.values, "values", nil, help)
	cmd.Flags().AddFlag(c.set.Lookup("values"))
}

// addDevice gives cmd the option that names the device to run on.
func (c *compileFlags) addDevice(cmd *cobra.Command) {
	c.withDevice()
	cmd.Flags().AddFlag(c.set.Lookup(deviceFlag))
}

func (c *compileFlags) withDevice() {
	c.runs = true
	c.set.Var(&c.on, deviceFlag, "where to run: on the processor, on the virtual device, which needs no GPU, or on a GPU; virtual:N and cuda:N are devices by number (default cpu, or for target cuda cuda:0)")
}

// modelOnly returns a usage error if an option is given that a finished plan cannot take.
func (c *compileFlags) modelOnly(path string) error {
	var err error
	c.set.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "threads" && f.Name != "weights" && f.Name != deviceFlag && err == nil {
			err = usagef("--%s is an option of compile, and %s is a plan that is compiled already", f.Name, path)
		}
	})
	return err
}

// sidecar opens the file of --weights, which holds the matrices of model; nil where there is none.
func (c *compileFlags) sidecar(a *app, model *gguf.File) (*sidecar.File, error) {
	if c.weights == "" {
		return nil, nil
	}
	return a.openSidecar(c.weights, model)
}

// changed returns the first of the options called names that is given, "" if none is.
func (c *compileFlags) changed(names []string) string {
	for _, name := range names {
		if c.set.Lookup(name).Changed {
			return name
		}
	}
	return ""
}

// withoutDevice returns the same options for the processor.
func (c *compileFlags) withoutDevice() *compileFlags {
	p := *c
	p.on = device{}
	return &p
}

// options returns the options of lower.Compile, which checks them. An error is about an instruction
// set that is not to be had.
func (c *compileFlags) options(a *app) (lower.Options, error) {
	target := c.target.word
	if c.on.onDevice() && !c.set.Changed("target") {
		target = plan.CUDA
	}
	if c.on.onDevice() && target != plan.CUDA {
		return lower.Options{}, usagef("--target is %s and --%s is %s, expected --target cuda", target, deviceFlag, c.on.String())
	}
	set, err := c.isa.word, error(nil)
	if target != plan.CUDA {
		set, err = chooseISA(c.isa.word, a.getenv(isaVariable))
	}
	if err != nil {
		return lower.Options{}, err
	}
	if c.isa.word == "" && target != plan.CUDA {
		if text := withheld(exec.InstructionSets(), a.getenv(isaVariable), set); text != "" && !slices.Contains(a.notices, text) {
			a.warn([]string{text})
		}
	}
	host, err := c.host(a)
	if err != nil {
		return lower.Options{}, err
	}
	return lower.Options{
		Target: target, Host: host, ISA: set, Precision: c.precision.word, KV: cacheFormat(c.kv.word),
		Ctx: c.ctx.n, Ubatch: c.ubatch.n, Sequences: c.sequences.n, Threads: int(c.threads.n),
		Passes: c.passes, Planner: c.planner.word, Tiles: c.tiles.word, Outputs: c.values,
		Activations: c.activations.word,
		Devices:     int(c.devices.n), Split: c.split.word,
	}, nil
}

// host returns what stays on the processor beside devices, nil for nothing.
func (c *compileFlags) host(a *app) (*lower.Host, error) {
	if c.gpuLayers.n == 0 {
		return nil, nil
	}
	set, err := chooseISA("", a.getenv(isaVariable))
	return &lower.Host{GPULayers: int(c.gpuLayers.n), ISA: set, Threads: int(c.threads.n)}, err
}

// cacheFormat returns the format that plans know for a value of --kv.
func cacheFormat(kv string) string {
	if kv == "fp8" {
		return "f8_e4m3"
	}
	return kv
}

// withheld is a notice where the processor has a better instruction set than the one chosen, which
// the system does not allow and a cap, where there is one, would; "" elsewhere.
func withheld(sets []exec.InstructionSet, most, chosen string) string {
	for _, s := range sets {
		if s.Withheld && (most == "" || most == s.Name) {
			return fmt.Sprintf("the processor has %s, and this process %s, as in some containers; prompts take longer with %s", s.Name, s.Why, chosen)
		}
	}
	return ""
}

// chooseISA returns the instruction set to compile for: the one asked for, or the best that the
// machine has, the build has kernels for, and the cap allows.
func chooseISA(asked, most string) (string, error) {
	best, err := exec.BestISA(most)
	if err != nil {
		return "", fmt.Errorf("%s: %w", isaVariable, err)
	}
	if asked == "" {
		return best, nil
	}
	if slices.Contains(plan.CUDAISAs, asked) {
		return "", usagef("--isa %s: is for --target cuda", asked)
	}
	if built := exec.BuiltISAs(); !slices.Contains(built, asked) {
		return "", fmt.Errorf("--isa %s: this build has no kernels for it; expected one of %s", asked, strings.Join(built, ", "))
	}
	if _, err := exec.UsableISAs(asked); err != nil {
		return "", fmt.Errorf("--isa: %w", err)
	}
	if usable, _ := exec.UsableISAs(best); !slices.Contains(usable, asked) {
		return "", fmt.Errorf("--isa %s: %s allows no more than %s", asked, isaVariable, most)
	}
	return asked, nil
}

// allowedISA returns an error if a plan needs an instruction set beyond the cap.
func allowedISA(needed, most string) error {
	if most == "" {
		return nil
	}
	if _, err := exec.BestISA(most); err != nil {
		return fmt.Errorf("%s: %w", isaVariable, err)
	}
	for _, s := range exec.InstructionSets() {
		switch s.Name {
		case needed:
			return nil
		case most:
			return fmt.Errorf("the plan is for instruction set %s, and %s allows no more than %s; compile the model again, with: pesti compile MODEL -o PLAN", needed, isaVariable, most)
		}
	}
	return fmt.Errorf("the plan is for instruction set %s, which is not known", needed)
}
