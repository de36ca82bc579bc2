package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
)

func (a *app) version() *cobra.Command {
	return a.verb("version", "Print the version", `  pesti version`, arity{0, 0, "none"},
		func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		})
}

// versionText returns the version of the module, and the commit if the build has it.
func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "pesti (unknown version)"
	}
	text := "pesti " + info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " (modified)"
		}
	}
	return text
}

func (a *app) info() *cobra.Command {
	return a.verb("info", "Print what this build and this machine support", `  pesti info`, arity{0, 0, "none"},
		func(cmd *cobra.Command, args []string) error {
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "version\t%s\n", versionText())
			fmt.Fprintf(t, "built\t%s, %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			fmt.Fprintf(t, "cores\t%d usable\n", exec.UsableCores())
			fmt.Fprintf(t, "memory\t%s\n", ramText(exec.DetectRAM()))
			fmt.Fprintf(t, "targets\t%s\n", strings.Join(lower.TargetNames(), ", "))
			if err := a.infoCUDA(cmd.Context(), t); err != nil {
				return err
			}
			fmt.Fprintf(t, "architectures\t%s\n", strings.Join(frontend.Architectures(), ", "))
			fmt.Fprintf(t, "tensor types\t%s\n", strings.Join(typeNames(quant.Dequantizable()), ", "))
			fmt.Fprintf(t, "plan format\t%d\n", plan.Version)
			fmt.Fprintln(t)
			best, err := exec.BestISA(a.getenv(isaVariable))
			if err != nil {
				return fmt.Errorf("%s: %w", isaVariable, err)
			}
			usable, err := exec.UsableISAs(best)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "instruction set\tused\n")
			for _, s := range exec.InstructionSets() {
				fmt.Fprintf(t, "%s\t%s\n", s.Name, a.useOf(s, usable))
			}
			fmt.Fprintf(t, "activations in fast\t%s\n", lower.Targets()[0].DefaultRounding(best))
			fmt.Fprintf(t, "tuned\t%s\n", a.tunedText(best))
			fmt.Fprintln(t)
			fmt.Fprintf(t, "kernel\tused\tvariants\n")
			for _, k := range exec.CPUKernels() {
				fmt.Fprintf(t, "%s\t%s\t%s\n", k.Name, k.Best(usable), strings.Join(k.ISAs, ", "))
			}
			return t.Flush()
		})
}

// useOf returns a text that says whether an instruction set is used, and if not, why.
func (a *app) useOf(s exec.InstructionSet, usable []string) string {
	switch {
	case !slices.Contains(exec.BuiltISAs(), s.Name):
		return "no: this build, for " + runtime.GOARCH + ", has no kernels for it"
	case !s.Has:
		return "no: this machine " + s.Why
	case !slices.Contains(usable, s.Name):
		return "no: " + isaVariable + " allows no more than " + a.getenv(isaVariable)
	}
	return "yes"
}

// typeNames returns the names of types of tensors.
func typeNames(types []quant.Type) []string {
	names := make([]string, len(types))
	for i, typ := range types {
		names[i] = typ.String()
	}
	return names
}
