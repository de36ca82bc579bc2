package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
	"pesti/lower/target"
)

func (a *app) version() *cobra.Command {
	return a.verb("version", "Print the version", `  pesti version`, arity{0, 0, "none"},
		func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		})
}

// versionText returns the version of the module, and the commit where the build knows it.
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
	return a.verb("info", "Tell what this program and this machine can do", `  pesti info`, arity{0, 0, "none"},
		func(cmd *cobra.Command, args []string) error {
			t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "version\t%s\n", versionText())
			fmt.Fprintf(t, "built\t%s, %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			fmt.Fprintf(t, "cores\t%d usable\n", runtime.GOMAXPROCS(0))
			fmt.Fprintf(t, "targets\t%s\n", strings.Join(target.Names(lower.Targets()), ", "))
			if err := a.infoCUDA(cmd.Context(), t); err != nil {
				return err
			}
			fmt.Fprintf(t, "architectures\t%s\n", strings.Join(frontend.Architectures(), ", "))
			fmt.Fprintf(t, "tensor types\t%s\n", strings.Join(tensorTypes(), ", "))
			fmt.Fprintf(t, "plan format\t%d\n", plan.Version)
			fmt.Fprintln(t)
			fmt.Fprintf(t, "instruction set\tthis machine\tthis build\n")
			for _, s := range isa.Detect() {
				machine, build := "has it", "has kernels"
				if !s.Has {
					machine = s.Why
				}
				if !slices.Contains(builtISAs(), s.Name) {
					build = "no kernels yet"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, machine, build)
			}
			if most := a.getenv(isaVariable); most != "" {
				fmt.Fprintf(t, "%s\t%s at most\t\n", isaVariable, most)
			}
			fmt.Fprintln(t)
			fmt.Fprintf(t, "kernel\tinstruction set\n")
			for _, k := range kernel.Table() {
				fmt.Fprintf(t, "%s\t%s\n", k.Name, k.ISA)
			}
			for _, k := range kernel.Matmuls() {
				fmt.Fprintf(t, "%s\t%s\n", k.Name, k.ISA)
			}
			return t.Flush()
		})
}

// tensorTypes returns the names of the types that can be computed with.
func tensorTypes() []string {
	const last = 64 // beyond all ids of the format
	var names []string
	for id := range quant.Type(last) {
		if t, ok := quant.Lookup(id); ok && t.Dequantize != nil {
			names = append(names, t.Name)
		}
	}
	return names
}
