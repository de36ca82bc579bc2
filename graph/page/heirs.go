package page

import (
	"maps"
	"slices"
	"strings"
)

// heirs returns, for each value that a stage defines and the next one does not know, the value there
// that it became part of: one that is named after it, or the one that takes it, or what that became
// part of. It is "" where nothing takes the value.
func heirs(before, after string) map[string]string {
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
	takers := map[string][]string{} // values, by what their line takes
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
	var heir func(name string, asked map[string]bool) string
	heir = func(name string, asked map[string]bool) string {
		if to := namesakes[name]; to != "" {
			return to
		}
		asked[name] = true
		for _, taker := range takers[name] {
			if is[taker] {
				return taker
			}
			if !asked[taker] {
				if to := heir(taker, asked); to != "" {
					return to
				}
			}
		}
		return ""
	}
	gone := map[string]string{}
	for name := range was {
		if !known[name] {
			gone[name] = heir(name, map[string]bool{})
		}
	}
	return gone
}

// A definition is a line that defines values.
type definition struct{ values, takes []string }

func definitions(text string) []definition {
	var all []definition
	for line := range strings.Lines(text) {
		// A name may hold what looks like the sign.
		plain := word.ReplaceAllStringFunc(line, func(w string) string { return strings.Repeat("_", len(w)) })
		at := strings.Index(plain, " = ")
		if at < 0 || !strings.HasPrefix(strings.TrimLeft(line, " "), "%") {
			continue
		}
		all = append(all, definition{words(line[:at]), words(line[at:])})
	}
	return all
}

// words returns the values that a text names.
func words(text string) []string {
	return slices.DeleteFunc(word.FindAllString(text, -1), func(s string) bool { return s[0] != '%' })
}
