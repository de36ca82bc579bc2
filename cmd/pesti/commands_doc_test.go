package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandTable: the table in docs/commands.md has each verb once, with the usage that help prints, and
// names no flag that the verb lacks.
func TestCommandTable(t *testing.T) {
	lacking := map[string]*cobra.Command{} // by usage
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasSubCommands() {
			lacking[strings.TrimSuffix(cmd.UseLine(), " [flags]")] = cmd
		}
	}
	walk((&app{}).root())

	_, table, found := strings.Cut(readFile(t, "../../docs/commands.md"), "\n| command | does |\n|---|---|\n")
	if !found {
		t.Fatal("docs/commands.md has no table of commands")
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		usage, does, _ := strings.Cut(strings.ReplaceAll(line, `\|`, "/"), "` | ")
		usage = strings.ReplaceAll(strings.TrimPrefix(usage, "| `"), "/", "|")
		cmd := lacking[usage]
		if cmd == nil {
			t.Errorf("docs/commands.md has %q, expected one of %q", usage, slices.Sorted(maps.Keys(lacking)))
			continue
		}
		delete(lacking, usage)
		for _, flag := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(does, -1) {
			if cmd.Flags().Lookup(flag[1]) == nil && !strings.Contains(does, flag[0]+"` of other verbs") {
				t.Errorf("docs/commands.md: %s has no flag --%s", cmd.CommandPath(), flag[1])
			}
		}
	}
	for usage := range lacking {
		t.Errorf("docs/commands.md lacks %q", usage)
	}
}
