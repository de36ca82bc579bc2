package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/lower"
)

// isaVariable is the environment variable that caps the instruction set.
const isaVariable = "PESTI_ISA"

// compileFlags are the options of a compilation. All verbs that compile have them; some also have
// --values.
type compileFlags struct {
	target, precision, kv, isa      choice
	planner, tiles, activations     choice
	ctx, ubatch, sequences, threads count
	devices                         count
	split                           choice
	gpuLayers                       count
	passes                          string
	values                          []string
	weights                         string // path of a sidecar
	on                              device // for verbs that run what they compile
	runs                            bool   // whether the verb runs what it compiles

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
	c.set.Var(&c.target, "target", "backend to compile for")
	c.set.Var(&c.precision, "precision", "exact computes in float32; fast multiplies integers where the target has kernels for them")
	c.set.Var(&c.kv, "kv", "element type of the KV cache (default f16 in fast, f32 in exact)")
	c.set.VarP(&c.ctx, "ctx", "c", "context length of a sequence, in tokens (default 4096, or the length that the model was trained for if that is less)")
	c.set.Var(&c.ubatch, "ubatch", "maximum number of tokens in one forward pass (default 512)")
	c.set.Var(&c.sequences, "sequences", "maximum number of sequences at the same time")
	c.set.VarP(&c.threads, "threads", "t", "maximum number of worker threads; at most one runs on each usable core")
	c.set.Var(&c.devices, "devices", "number of devices of target cuda that share the model")
	c.set.Var(&c.gpuLayers, "gpu-layers", "run the last `N` layers on devices of target cuda, and the rest of the model on the CPU: embedding, first layers, output; if N exceeds the number of layers, the devices run everything (default all)")
	c.set.Var(&c.split, "split", "how devices share the model: with layers, each has some of the layers; with tensor, each has some rows or columns of every matrix")
	c.set.Var(&c.isa, "isa", "instruction set to compile for (default the best one that the machine has and "+isaVariable+" allows); for target cuda the compute capability (default the lowest, or that of the device)")
	c.set.Var(&c.activations, "activations", "format of activations in precision fast: q8x2 has 15 bits; q8 has 8 bits, with larger errors; mixed has 15 bits for q, k, v and logits, and 8 elsewhere; auto is mixed on AVX2, and q8x2 with other instruction sets")
	c.set.Var(&c.tiles, "tiles", "on adds a program that computes whole chunks of 64 prompt tokens in bf16: faster with instruction set amx, but logits then depend on how a prompt is split into calls")
	c.set.StringVar(&c.weights, "weights", "", "`FILE.safetensors` that quantize wrote: the matrices of the model in FP8")
	c.set.StringVar(&c.passes, "passes", "", "passes to leave out: a `LIST` such as -cse,-fold, or none to leave out all of them: "+strings.Join(optionalPasses(), ", "))
	c.set.Var(&c.planner, "planner", "place buffers with the planner of this `NAME` alone: "+strings.Join(lower.Planners(), ", ")+" (default all; the smallest arena wins)")
	// Help must not show a default of 0 for these: their texts state the default.
	for _, name := range []string{"ctx", "ubatch", "gpu-layers"} {
		c.set.Lookup(name).DefValue = ""
	}
	return c
}

// optionalPasses returns the names of the passes that --passes can leave out. A pass that runs twice has one name.
func optionalPasses() []string {
	var names []string
	for _, p := range lower.Passes() {
		if !p.Required && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// addValues gives cmd the option that names extra output values of the plan.
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
	c.set.Var(&c.on, deviceFlag, "where to run: the CPU, a virtual GPU in software, or a GPU by number; cuda:0,cuda:1 names several (default cpu, or for target cuda cuda:0)")
}

// modelOnly returns a usage error if an option is given that only applies to compiling.
func (c *compileFlags) modelOnly(path string) error {
	var err error
	c.set.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "threads" && f.Name != "weights" && f.Name != deviceFlag && err == nil {
			err = usagef("--%s is an option of compile, and %s is a plan that is compiled already", f.Name, path)
		}
	})
	return err
}

// changed returns the name of the first of these options that the command line has, "" if it has none.
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

// options returns the options for lower.Compile, which checks them. Its own errors are about
// unavailable instruction sets and devices.
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
		Target: target, Host: host, ISA: set, Precision: c.precision.word, KV: c.kv.word,
		Ctx: c.ctx.n, Ubatch: c.ubatch.n, Sequences: c.sequences.n, Threads: int(c.threads.n),
		Passes: c.passes, Planner: c.planner.word, Tiles: c.tiles.word, Outputs: c.values,
		Activations: c.activations.word,
		Devices:     int(c.devices.n), Split: c.split.word,
	}, nil
}

// host describes the CPU that runs some layers in addition to the devices, nil if none do.
func (c *compileFlags) host(a *app) (*lower.Host, error) {
	if c.gpuLayers.n == 0 {
		return nil, nil
	}
	set, err := chooseISA("", a.getenv(isaVariable))
	return &lower.Host{GPULayers: int(c.gpuLayers.n), ISA: set, Threads: int(c.threads.n)}, err
}

// withheld returns a notice if the processor has a better instruction set than the chosen one and the system
// does not allow it. It returns "" if there is none, or if the cap excludes it anyway.
func withheld(sets []exec.InstructionSet, most, chosen string) string {
	for _, s := range sets {
		if s.Withheld && (most == "" || most == s.Name) {
			return fmt.Sprintf("the processor has %s, and this process %s, as in some containers; prompts take longer with %s", s.Name, s.Why, chosen)
		}
	}
	return ""
}

// chooseISA returns the instruction set to compile for: asked, or the best one if asked is "". The
// machine and the build must have it, and it must not exceed the cap.
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
			return fmt.Errorf("the plan is for instruction set %s, but %s allows no more than %s; compile the model again, with: pesti compile MODEL -o PLAN", needed, isaVariable, most)
		}
	}
	return fmt.Errorf("the plan is for instruction set %s, which is not known", needed)
}
