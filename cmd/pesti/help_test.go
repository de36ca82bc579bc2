package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagGroups checks that every flag of every verb is in exactly one group, and that every name
// in a group is a flag.
func TestFlagGroups(t *testing.T) {
	groups := map[string][]string{}
	for _, g := range flagGroups {
		for _, name := range g.flags {
			groups[name] = append(groups[name], g.title)
		}
	}
	used := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			if len(groups[f.Name]) != 1 {
				t.Errorf("%s: flag --%s is in the groups %q, expected one", cmd.CommandPath(), f.Name, groups[f.Name])
			}
			if out := ok(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...); strings.Count(out, "--"+f.Name+" ") == 0 {
				t.Errorf("%s --help does not list --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
	walk((&app{}).root())
	for name := range groups {
		if !used[name] {
			t.Errorf("no verb has the flag --%s of group %s", name, groups[name])
		}
	}
}

// TestHelpGolden: help of run begins with the flags that people need most.
func TestHelpGolden(t *testing.T) {
	const path = "testdata/run-help.golden"
	got := ok(t, "run", "--help")
	threads := regexp.MustCompile(`(?m)^(  -t, --threads N .*\(default )\d+(\))$`)
	if n := len(threads.FindAllString(got, -1)); n != 1 {
		t.Fatalf("run --help has %d lines of --threads with a default, expected 1:\n%s", n, got)
	}
	got = threads.ReplaceAllString(got, "${1}N${2}") // the number of cores
	if *update {
		saveFile(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("run --help prints:\n%s\nwant %s; read the difference, then go test ./cmd/pesti -run 'Help|Explain' -update", got, path)
	}
	var titles []string
	for line := range strings.Lines(got) {
		if title, ok := strings.CutSuffix(line, " flags:\n"); ok {
			titles = append(titles, title)
		}
	}
	if !slices.Equal(titles, []string{"Common", "Sampling", "Compilation", "Device", "Profile"}) {
		t.Errorf("groups are %q", titles)
	}
}
