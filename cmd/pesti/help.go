package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flagGroup is a section of the flags in help. Flags of one name mean the same in every verb.
type flagGroup struct {
	title string
	flags []string // in the order in which help lists them
}

// flagGroups has every flag of every verb.
var flagGroups = []flagGroup{
	{"Common", []string{
		"prompt", "file", "ids", "tokens", "depth", "repeat", "output", "type", "model", "weights",
		"but", "bisect", "max-kl", "max-d", "tensors", "check", "extract", "memory",
		"view", "stage", "program", "layer", "all", "explain", "dump", "values", "verify", "hash", "seal",
		"split-max-size", "split-max-tensors", "detokenize", "no-bos", "no-parse-special",
		"speculate", "strict", "stats", "json", "version", "help",
	}},
	{"Sampling", []string{"temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "stop", "ignore-eos"}},
	{"Compilation", []string{
		"precision", "ctx", "threads", "kv", "sequences", "ubatch", "activations", "isa", "passes", "planner", "tiles",
	}},
	{"Device", []string{"device", "target", "devices", "split", "gpu-layers", "tune"}},
	{"Profile", []string{"profile", "profile-steps", "trace", "trace-runs", "roofline", "gpu"}},
}

// printUsage prints how a command is used: what cobra prints, with the flags in groups.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nAvailable Commands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	groups, titles := groupedFlags(cmd.LocalFlags())
	for i, set := range groups {
		title := titles[i] + " flags"
		if len(groups) == 1 {
			title = "Flags"
		}
		fmt.Fprintf(&b, "\n%s:\n%s", title, set.FlagUsages())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", cmd.CommandPath())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}

// groupedFlags returns the flags of a command by group, without empty groups, and the titles.
func groupedFlags(all *pflag.FlagSet) (groups []*pflag.FlagSet, titles []string) {
	for _, g := range flagGroups {
		set := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range g.flags {
			if f := all.Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		if set.HasAvailableFlags() {
			groups, titles = append(groups, set), append(titles, g.title)
		}
	}
	return groups, titles
}
