package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagValues describes the values of package pflag's flag types, because pflag's errors use Go's
// terms. Flag types of this program have their own texts.
var flagValues = map[string]string{
	"bool":     "true or false",
	"float64":  "a number such as 0.5",
	"int":      "an integer of 64 bits",
	"int64":    "an integer of 64 bits",
	"intSlice": "integers such as 128,512",
}

// llamaFlags maps flags of llama.cpp to the flags of this program, where the names are not similar.
var llamaFlags = map[string]string{
	"ngl": "gpu-layers", "n-gpu-layers": "gpu-layers",
	"n-predict": "tokens", "predict": "tokens", "n-gen": "tokens",
	"prompt-file": "file", "n-prompt": "prompt",
	"b": "ubatch", "ub": "ubatch", "batch-size": "ubatch",
	"np": "sequences", "parallel": "sequences",
	"ctk": "kv", "ctv": "kv", "cache-type-k": "kv", "cache-type-v": "kv",
	"s": "seed",
}

// fromLlama returns a hint for the name of a flag of llama.cpp, or "" if cmd has no such flag under another name.
func fromLlama(cmd *cobra.Command, name string) string {
	if (name == "m" || name == "model") && strings.Contains(cmd.Use, "MODEL") {
		return "; the model is an argument: " + strings.TrimSuffix(cmd.UseLine(), " [flags]")
	}
	f := cmd.Flags().Lookup(llamaFlags[name])
	switch {
	case f == nil:
		return ""
	case f.Shorthand != "":
		return fmt.Sprintf("; did you mean -%s, --%s?", f.Shorthand, f.Name)
	}
	return fmt.Sprintf("; did you mean --%s?", f.Name)
}

// flagMistake rewords an error of pflag about cmd's flags.
func flagMistake(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		f := value.GetFlag()
		why := fmt.Sprint(value.Unwrap())
		var number *strconv.NumError
		if errors.As(err, &number) {
			why = "expected " + flagValues[f.Value.Type()]
		}
		hint := ""
		if f.Shorthand != "" { // -ngl reads as -n with the value gl
			hint = fromLlama(cmd, f.Shorthand+value.GetValue())
		}
		return fmt.Errorf("--%s: found %.40q, %s%s", f.Name, value.GetValue(), why, hint)
	case errors.As(err, &bare):
		kind, _ := pflag.UnquoteUsage(bare.GetFlag())
		return fmt.Errorf("--%s: found nothing after it, expected %s", bare.GetFlag().Name, kind)
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if in := unknown.GetSpecifiedShortnames(); in != "" {
			if hint := fromLlama(cmd, in); hint != "" {
				return fmt.Errorf("unknown flag -%s%s", in, hint)
			}
			return fmt.Errorf("unknown flag -%s", name)
		}
		if hint := fromLlama(cmd, name); hint != "" {
			return fmt.Errorf("unknown flag --%s%s", name, hint)
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("unknown flag --%s%s", name, didYouMean("--", name, names))
	}
	return err
}

// unknownVerb returns the error for a verb that group does not have.
func unknownVerb(group *cobra.Command, name string) error {
	var names []string
	for _, verb := range group.Commands() {
		names = append(names, verb.Name())
	}
	return fmt.Errorf("unknown verb %q%s", name, didYouMean("", name, names))
}

// didYouMean returns a suggestion of the name most similar to the typed one, or "" if none is
// similar.
func didYouMean(sign, typed string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		d := editDistance(typed, name)
		if short := min(len(typed), len(name)); short >= 3 && typed[:short] == name[:short] {
			d = 1 // one begins like the other, such as ctx-size of llama.cpp and ctx
		}
		if d < min(least, len(typed)) {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", sign, best)
}

// editDistance returns the number of edits from a to b, where an edit inserts, removes or replaces
// a byte or swaps two adjacent bytes.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1) // distances of prefixes of a and b
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
				continue
			}
			rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

// hint returns a message about a mistake in a command line for cmd, with a reference to the help.
func hint(cmd *cobra.Command, message string) string {
	if strings.Contains(message, " --help") {
		return message
	}
	join := "; see "
	if strings.HasSuffix(message, "?") {
		join = " See "
	}
	return message + join + cmd.CommandPath() + " --help"
}
