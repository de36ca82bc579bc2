package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrases are wordings that readers stumbled over, with what to write in their place. They are
// searched for in code, comments, messages and documents.
var phrases = []struct{ pattern, instead string }{
	{`milliards?`, "billions"},
	{`in brackets`, "in parentheses"},
	{`by turns`, "interleaved, alternating"},
	{`executors? that (is|are) not ours`, "an independent executor"},
	{`how many (of them )?are worth`, "an adaptive draft length"},
	{`where it is zero, what`, "Zero means …"},
	{`is what is known of`, "holds"},
	{`is taken to be of it`, "a sentence with a subject"},
	{`what a test misses`, "a test that lacks a dependency"},
	{`tells? of`, "reports, describes, lists"},
	{`telling`, "reporting, distinguishing"},
	{`those that`, "the … that"},
	{`that of which`, "the … whose"},
	{`have apart`, "differ in"},
	{`as (it|they) stands?`, "unchanged, in the file's layout"},
	{`whoever`, "the caller, the reader"},
	{`wherein`, "in which"},
	{`beside`, "next to, in addition to, compared with"},
	{`what (is left|there is) of`, "the rest of, the available"},
	{`holds? ([^.;:\n]{0,90} )?against`, "checks … against"},
	{`holds? (it|them|that|an? [a-z]+|the [a-z]+)? ?to the`, "checks … against"},
	{`held against`, "checked against"},
	{`\w*(summaris|penalis|quantis|tokenis|normalis|initialis|optimis(e|ation)|recognis)\w*`, "American spelling, with z"},
	{`\w*(colour|neighbour|favour|behaviour|cancelled|cancelling|labelled|licence|centred)\w*`, "American spelling"},
	{`wants no more`, "stops reading"},
	{`has had enough`, "stopped reading"},
}

// identifiers are names of declarations that a reader of this field would not understand, with the names to
// use. A rule applies below its folder; "" is everywhere.
// A pattern that ends in ".go" is for file names. No rule forbids Step, Next and Rows, which now are a step of a plan, the
// next element and a number of rows, as readers expect, or a local "most" that is a maximum.
var identifiers = []struct{ folder, pattern, instead string }{
	{"exec", `(?i)^cards?$`, "cudaDevice"},
	{"exec", `(?i)^stages?$`, "segment"},
	{"exec", `(?i)^(link|ferry|detours?)$`, "peerLink, hostCopy, HostStagedPairs"},
	{"exec", `^(Together|FeedEach|Room)$`, "one Batch; Remaining, NextChunk, MaxLogitRows"},
	{"exec", `^(follow|ranked)$`, "feedbackTokens, topK…"},
	{"exec/sample", `^Enough$`, "TopKNeeded"},
	{"exec/speculate", `(?i)^(pace|hope|keep|rise|slope|alike)$`, "draftController, optimism, …"},
	{"exec/plan", `^(OnDevice|On|Places|Cards)$`, "IsCUDAKernel, DeviceBytes, DeviceIDs, NumDevices, NumGPUs"},
	{"exec/plan", `^(Load|works|touches|looksBack)$`, "Workload, costModels"},
	{"exec/plan", `^(Fit|Cut|MostLive|Need|Spread)$`, "SelectProgram, ChunkLen, PeakBytes, MemoryUse, DeviceBreakdown"},
	{"exec/plan", `^(Directory|Data)$`, "HeaderDigest, WeightsDigest"},
	{"exec", `^(cards?|stages?|together)\.go$`, "cuda_device.go, capture.go, forward.go"},
	{"exec/cpu/kernel", `^(r16\w*|lanes|blocks|exact)\.go$`, "panel16…, swar, unpacked, dequant_f32"},
	{"exec/cpu/kernel", `(?i)^r16`, "panel16"},
	{"", `(?i)^sharpness$`, "attnScale"},
	{"lower", `(?i)^(site|way|lacks|division|beside)$`, "deviceTarget, ActivationFormat, WhyNot, partition, implicitArgs"},
	{"graph/pass", `(?i)^(cuts|atom|grain|bring|look)$`, "shard bounds, granule, alignment, gather, look-up"},
	{"graph/draw", `(?i)^(heirs|holding|look|heat)$`, "successors, buffer contents, style, color"},
	{"graph/page", `(?i)^(heirs|holding|look|heat)$`, "successors, buffer contents, style, color"},
	{"cmd", `(?i)^(subject|side|trusted|rounds|mistakes|sibling|turns|referee)$`, "source, operand, reference, coverage, suggest, reexec, pairedRuns"},
	{"conformance", `(?i)^(subject|side|trusted|rounds|mistakes|sibling|turns|referee)$`, "source, operand, reference, coverage, suggest, reexec, pairedRuns"},
	{"conformance", `^(hollow|leftout|peer|tape|measure)$`, "sparsegguf, skipreport, llamacpp, gorgoniaref, metrics"},
	{"", `(?i)quantise`, "quantize"},
	{"", `(?i)swiglu`, "GatedMLP"},
	{"", `(?i)^guess`, "draft"},
}

// sourceFiles returns the paths of all files of the module but those of hidden folders and test data, from
// the repository's root.
func sourceFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name[0] == '.' || name == "testdata" || name == "bin"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			paths = append(paths, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestWords: code and documents do not use the wordings of the first table.
func TestWords(t *testing.T) {
	patterns := make([]*regexp.Regexp, len(phrases))
	for i, p := range phrases {
		patterns[i] = regexp.MustCompile(`(?i)\b` + p.pattern + `\b`)
	}
	read := 0
	for _, path := range sourceFiles(t) {
		if !prose(path) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		read++
		text, lines := running(string(data))
		for i, re := range patterns {
			for _, at := range re.FindAllStringIndex(text, -1) {
				n, _ := slices.BinarySearch(lines, at[0]+1)
				t.Errorf("%s:%d: %q, expected %s", path, n, text[at[0]:at[1]], phrases[i].instead)
			}
		}
	}
	if read < 300 {
		t.Errorf("read %d files: the walk does not see the repository", read)
	}
}

// running returns a text with a space for each line break inside a paragraph, so that phrases are found that go
// on in the next line of a comment, a document or a string. Indentation and comment marks are left out. A line
// that is empty otherwise ends a paragraph. lines has the offset of each line in the result.
func running(data string) (text string, lines []int) {
	var b strings.Builder
	for line := range strings.Lines(data) {
		lines = append(lines, b.Len())
		line = strings.TrimSpace(margin.ReplaceAllString(line, ""))
		b.WriteString(line)
		if line == "" {
			b.WriteByte('\n')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String(), lines
}

// margin is what comments begin with in each line: of Go and C, of Python and make, of quotations in Markdown.
var margin = regexp.MustCompile(`^\s*(//+|#+|\*|>)?`)

// TestRunning: a phrase is found across line breaks, with the line in which it begins, and not across paragraphs.
func TestRunning(t *testing.T) {
	for _, c := range []struct{ text, found string }{
		{"// a\n// by\n//\tturns\n", "by turns 2"},
		{"\t// by turns\n", "by turns 1"},
		{"# by\n# turns", "by turns 1"},
		{"x := `one\nby \nturns`", "by turns 2"},
		{"> by\n> turns", "by turns 1"},
		{"// by\n//\n// turns\n", ""},
		{"by\n\nturns", ""},
	} {
		text, lines := running(c.text)
		found := ""
		if at := strings.Index(text, "by turns"); at >= 0 {
			n, _ := slices.BinarySearch(lines, at+1)
			found = fmt.Sprintf("by turns %d", n)
		}
		if found != c.found {
			t.Errorf("in %q found %q, expected %q", c.text, found, c.found)
		}
	}
}

// prose reports whether people read a file: not generated files, stories, or this file.
func prose(path string) bool {
	switch path {
	case "conformance/rules/words_test.go", "LICENSE":
		return false
	case "conformance/demo/stories.py": // the demo model was trained on its stories
		return false
	}
	ext := filepath.Ext(path)
	return slices.Contains([]string{".go", ".md", ".py", ".sh", ".cu", ".cuh", ".c", ".cmake"}, ext) || filepath.Base(path) == "Makefile"
}

// TestNames: no declaration, also of a local variable, and no package has a name of the second table.
func TestNames(t *testing.T) {
	fset := token.NewFileSet()
	for _, path := range sourceFiles(t) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		check := func(id *ast.Ident) {
			for _, rule := range identifiers {
				if rule.folder != "" && folder != rule.folder && !strings.HasPrefix(folder, rule.folder+"/") {
					continue
				}
				if regexp.MustCompile(rule.pattern).MatchString(id.Name) {
					t.Errorf("%s:%d: %s is declared, expected a name such as %s", path, fset.Position(id.Pos()).Line, id.Name, rule.instead)
				}
			}
		}
		check(f.Name)
		check(&ast.Ident{Name: filepath.Base(path), NamePos: f.Package})
		for _, id := range declared(f) {
			check(id)
		}
	}
}

// declared returns the identifiers that a file declares: types, functions, methods, fields, parameters, constants,
// variables.
func declared(f *ast.File) (ids []*ast.Ident) {
	define := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok {
				ids = append(ids, id)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = append(ids, n.Name)
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.Field:
			ids = append(ids, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				define(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				define(n.Key, n.Value)
			}
		}
		return true
	})
	return ids
}
