package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/lower"
)

// A shell is a shell with a completion script.
type shell struct {
	name   string
	use    string // line that loads the script
	script func(root *cobra.Command, w io.Writer) error
}

var shells = []shell{
	{"bash", "source <(pesti completion bash)", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
	{"zsh", "source <(pesti completion zsh)", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }},
	{"fish", "pesti completion fish | source", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
	{"powershell", "pesti completion powershell | Out-String | Invoke-Expression", func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }},
}

func (a *app) completion() *cobra.Command {
	var names []string
	help := "Run this line in the shell, or add it to its start-up file:\n\n"
	for _, s := range shells {
		names = append(names, s.name)
		help += fmt.Sprintf("  %-12s%s\n", s.name, s.use)
	}
	use := "completion " + strings.Join(names, "|")
	cmd := a.verb(use, "Print a completion script for a shell", `  pesti completion bash`,
		arity{1, 1, "one of " + strings.Join(names, ", ")}, func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names, args[0])
			if i < 0 {
				return usagef("found %q, expected one of %s", args[0], strings.Join(names, ", "))
			}
			return shells[i].script(cmd.Root(), a.stdout)
		})
	cmd.ValidArgs = names
	cmd.Long = cmd.Short + ".\n\n" + help
	return cmd
}

// completes reports whether a command line comes from a completion script, which asks for the
// completions of another command line.
func completes(args []string) bool {
	return len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)
}

// fileEndings are the file name extensions for each placeholder in the usage of a verb or flag.
var fileEndings = map[string][]string{
	"MODEL": {"gguf"},
	"PLAN":  {"plan"},
	"A":     {"gguf", "plan"},
	"B":     {"gguf", "plan"},
}

// addCompletions adds completions to all verbs below cmd.
func addCompletions(cmd *cobra.Command) error {
	for _, verb := range cmd.Commands() {
		if err := addCompletions(verb); err != nil {
			return err
		}
	}
	if cmd.ValidArgs == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = completeArgument
	}
	var first error
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		complete := completeFlag(f)
		if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); first == nil {
			first = err
		}
	})
	return first
}

// completeArgument completes the next argument according to its placeholder in the verb's usage.
func completeArgument(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	words := strings.Fields(cmd.Use)[1:]
	if len(args) >= len(words) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	word := strings.Trim(words[len(args)], "[]")
	if word == "FILE" && cmd.HasParent() && cmd.Parent().Name() == "plan" {
		word = "PLAN"
	}
	var endings []string
	for _, kind := range strings.Split(word, "|") {
		endings = append(endings, fileEndings[kind]...)
	}
	switch {
	case endings == nil && word == "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	case endings == nil:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case strings.HasPrefix(demoName, typed) && slices.Contains(endings, "gguf"):
		return demoOrFile(endings, typed)
	}
	return endings, cobra.ShellCompDirectiveFilterFileExt
}

// demoOrFile completes to the demo and to the files of the current folder. A shell cannot offer words and files
// at once, so this lists the files itself.
func demoOrFile(endings []string, typed string) ([]string, cobra.ShellCompDirective) {
	words, directive := []string{demoName}, cobra.ShellCompDirectiveNoFileComp
	entries, _ := os.ReadDir(".") // on an error there is still the demo
	for _, e := range entries {
		name := e.Name()
		switch info, err := os.Stat(name); { // follows links
		case err != nil || !strings.HasPrefix(name, typed) || strings.HasPrefix(name, "."):
		case info.IsDir():
			words = append(words, name+"/")
			directive |= cobra.ShellCompDirectiveNoSpace // the folder's contents come next
		case slices.Contains(endings, strings.TrimPrefix(filepath.Ext(name), ".")):
			words = append(words, name)
		}
	}
	return words, directive
}

// completeFlag completes the values of a flag, by its type or by the placeholder in its usage.
func completeFlag(f *pflag.Flag) cobra.CompletionFunc {
	if c, ok := f.Value.(*choice); ok {
		return cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp)
	}
	switch f.Name {
	case "passes":
		return completePasses
	case "program":
		return completeProgram
	case "but":
		return completeBut
	}
	kind, _ := pflag.UnquoteUsage(f)
	switch {
	case kind == "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case kind == "FILE":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case fileEndings[kind] != nil:
		return cobra.FixedCompletions(fileEndings[kind], cobra.ShellCompDirectiveFilterFileExt)
	}
	return cobra.NoFileCompletions
}

// completePasses completes a list of passes to switch off.
func completePasses(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	lists := []string{"none"}
	if before != "" {
		lists = nil
	}
	for _, name := range optionalPasses() {
		if !slices.Contains(strings.Split(before, ","), "-"+name) {
			lists = append(lists, before+"-"+name)
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeProgram completes the name of a program that plans may have.
func completeProgram(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return lower.ProgramNames(), cobra.ShellCompDirectiveNoFileComp
}

// completeBut completes OPTION=VALUE of compile: first the option, then its value.
func completeBut(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	options := newCompileFlags("").set
	name, value, found := strings.Cut(typed, "=")
	if !found {
		var names []string
		options.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name+"=") })
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	f := options.Lookup(name)
	if f == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	values, directive := completeFlag(f)(cmd, args, value)
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = name + "=" + v
	}
	return words, directive
}
