package main

import (
	"os"
	"path/filepath"
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

// TestHelpGolden compares the help of the program and of each verb with a text in testdata. There, the default number of
// threads is N, because it depends on the machine.
func TestHelpGolden(t *testing.T) {
	threads := regexp.MustCompile(`(?m)^(  -t, --threads N .*\(default )\d+(\))$`)
	written := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		verb := strings.Fields(cmd.CommandPath())
		path := filepath.Join("testdata", "help", strings.Join(verb, "-")+".golden")
		written[path] = true
		got := threads.ReplaceAllString(ok(t, append(verb[1:], "--help")...), "${1}N${2}")
		if *update {
			saveFile(t, path, got)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s --help prints:\n%s\nwant %s; read the difference, then go test ./cmd/pesti -run Help -update", cmd.CommandPath(), got, path)
		}
	}
	walk((&app{}).root())
	files, err := filepath.Glob("testdata/help/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if !written[path] {
			t.Errorf("%s is the help of no verb; remove it", path)
		}
	}
}

// TestRunHelp: help of run begins with the flags that people need most.
func TestRunHelp(t *testing.T) {
	var titles []string
	for line := range strings.Lines(ok(t, "run", "--help")) {
		if title, ok := strings.CutSuffix(line, " flags:\n"); ok {
			titles = append(titles, title)
		}
	}
	if !slices.Equal(titles, []string{"Common", "Sampling", "Compilation", "Device", "Profile"}) {
		t.Errorf("groups are %q", titles)
	}
}
