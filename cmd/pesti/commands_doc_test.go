package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandTable: the table in docs/commands.md has every verb once, and nothing else.
func TestCommandTable(t *testing.T) {
	root := (&app{}).root()
	var verbs []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasSubCommands() {
			verbs = append(verbs, cmd.CommandPath())
		}
	}
	walk(root)

	_, table, found := strings.Cut(readFile(t, "../../docs/commands.md"), "\n| command | does |\n|---|---|\n")
	if !found {
		t.Fatal("docs/commands.md has no table of commands")
	}
	var told []string
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		names, _, _ := strings.Cut(strings.ReplaceAll(line[2:], `\|`, "/"), " | ") // the first cell
		for _, code := range regexp.MustCompile("`[^`]+`").FindAllString(names, -1) {
			words := strings.TrimPrefix(strings.Trim(code, "`"), "pesti ")
			verb, _, err := root.Find(strings.Fields(words))
			if err != nil || verb.HasSubCommands() {
				t.Errorf("docs/commands.md has %s, which is no verb", code)
				continue
			}
			told = append(told, verb.CommandPath())
		}
	}
	for _, verb := range verbs {
		if !slices.Contains(told, verb) {
			t.Errorf("docs/commands.md lacks %s", verb)
		}
	}
	if slices.Sort(told); len(slices.Compact(slices.Clone(told))) != len(told) {
		t.Errorf("docs/commands.md has %q, expected each once", told)
	}
}
