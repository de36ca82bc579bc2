package page

import (
	"maps"
	"slices"
	"strings"
)

// successors returns, for each value that a stage defines and the next stage lacks, the value of
// the next stage that it became part of: a value named after it, or a value computed from it, or
// that value's successor. It is "" if no value is computed from it.
func successors(before, after string) map[string]string {
	old, now := definitions(before), definitions(after)
	known := map[string]bool{}
	for _, name := range words(after) {
		known[name] = true
	}
	is := map[string]bool{}
	for _, d := range now {
		for _, name := range d.values {
			is[name] = true
		}
	}
	takers := map[string][]string{} // defined values, by the operands of their line
	was := map[string]bool{}
	for _, d := range old {
		for _, name := range d.values {
			was[name] = true
		}
		for _, name := range d.takes {
			takers[name] = append(takers[name], d.values...)
		}
	}
	namesakes := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if at := strings.LastIndexByte(name, '.'); at > 0 && !was[name] {
			namesakes[name[:at]] = name
		}
	}
	var successor func(name string, asked map[string]bool) string
	successor = func(name string, asked map[string]bool) string {
		if to := namesakes[name]; to != "" {
			return to
		}
		asked[name] = true
		for _, taker := range takers[name] {
			if is[taker] {
				return taker
			}
			if !asked[taker] {
				if to := successor(taker, asked); to != "" {
					return to
				}
			}
		}
		return ""
	}
	gone := map[string]string{}
	for name := range was {
		if !known[name] {
			gone[name] = successor(name, map[string]bool{})
		}
	}
	return gone
}

// A definition is a line that defines values.
type definition struct{ values, takes []string }

func definitions(text string) []definition {
	var all []definition
	for line := range strings.Lines(text) {
		// A name may contain the equals sign.
		plain := word.ReplaceAllStringFunc(line, func(w string) string { return strings.Repeat("_", len(w)) })
		at := strings.Index(plain, " = ")
		if at < 0 || !strings.HasPrefix(strings.TrimLeft(line, " "), "%") {
			continue
		}
		all = append(all, definition{words(line[:at]), words(line[at:])})
	}
	return all
}

// words returns the names of values in a text.
func words(text string) []string {
	return slices.DeleteFunc(word.FindAllString(text, -1), func(s string) bool { return s[0] != '%' })
}
