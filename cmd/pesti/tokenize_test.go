package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pesti/gguf"
)

func TestTokenize(t *testing.T) {
	tokenize := func(stdin string, args ...string) string {
		t.Helper()
		r := call{stdin: stdin, args: append([]string{"tokenize"}, args...)}.run()
		if r.code != 0 || r.err != "" {
			t.Fatalf("tokenize %q of %q: %+v", args, stdin, r)
		}
		return r.out
	}
	out := tokenize("Once upon a time", "demo", "--ids")
	var ids []int32
	if err := json.Unmarshal([]byte(out), &ids); err != nil || len(ids) != storyTokens {
		t.Fatalf("--ids prints %q: %v", out, err)
	}
	if want := strings.ReplaceAll(fmt.Sprint(ids), " ", ", ") + "\n"; out != want {
		t.Errorf("--ids prints %q, want %q", out, want)
	}
	if out := tokenize("", "demo", "--ids"); out != "[]\n" {
		t.Errorf("--ids of nothing prints %q", out)
	}

	// One line for each token: its id and its text.
	lines := strings.Split(strings.TrimSuffix(tokenize("a \"b\"\n", "demo"), "\n"), "\n")
	text := ""
	for _, l := range lines {
		var id int32
		var piece string
		if n, err := fmt.Sscanf(l, "%d\t%q", &id, &piece); n != 2 {
			t.Fatalf("line %q: %v", l, err)
		}
		text += piece
	}
	if text != "a \"b\"\n" {
		t.Errorf("the pieces are %q together", text)
	}

	// Detokenizing either form of ids gives the same bytes.
	for _, text := range []string{"", "x", "a\n", "\r\n\r\n", "naïve 日本 🙂", "\x00\xff\xfe", " two  spaces "} {
		array := tokenize(text, "demo", "--ids")
		if got := tokenize(array, "demo", "--detokenize"); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		spaced := strings.NewReplacer("[", "", "]", "", ",", "").Replace(array)
		if got := tokenize(spaced, "demo", "--detokenize"); got != text {
			t.Errorf("%q came back from %q as %q", text, spaced, got)
		}
	}
}

func TestTokenizeSpecial(t *testing.T) {
	withBOS := rewrittenDemo(t, false, func(w *gguf.Writer) { w.SetBool("tokenizer.ggml.add_bos_token", true) })
	ids := func(text string, args ...string) (list []int32) {
		t.Helper()
		r := call{stdin: text, args: append([]string{"tokenize", "--ids", withBOS}, args...)}.run()
		if err := json.Unmarshal([]byte(r.out), &list); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		return list
	}
	empty := ids("")
	if len(empty) != 1 {
		t.Fatalf("an empty text has the ids %v, want BOS alone", empty)
	}
	if got := ids("", "--no-bos"); len(got) != 0 {
		t.Errorf("--no-bos gives %v", got)
	}
	text := func(ids string, args ...string) string {
		t.Helper()
		r := call{stdin: ids, args: append([]string{"tokenize", "--detokenize", withBOS}, args...)}.run()
		if r.code != 0 || r.err != "" {
			t.Fatalf("%+v", r)
		}
		return r.out
	}
	bos := fmt.Sprint(empty[0])
	name := text(bos, "--no-bos")
	if name == "" {
		t.Fatalf("BOS has no name")
	}
	// The BOS token that tokenize added is removed, once.
	for _, in := range []string{"", "x", " a\n", "naïve"} {
		array := strings.Trim(fmt.Sprint(ids(in)), "[]")
		if got := text(array); got != in {
			t.Errorf("%q came back as %q", in, got)
		}
		if got := text(array, "--no-bos"); got != name+in {
			t.Errorf("%q came back with --no-bos as %q, want %q", in, got, name+in)
		}
	}
	if got := text(bos + " " + bos); got != name {
		t.Errorf("BOS twice is %q, want %q", got, name)
	}
	if got := text(""); got != "" {
		t.Errorf("no ids are %q", got)
	}
	if got := ids(name); len(got) != 1 {
		t.Errorf("the name of BOS gives %v, want it once", got)
	}
	if got := ids(name, "--no-bos"); len(got) != 1 || got[0] != empty[0] {
		t.Errorf("the name of BOS with --no-bos gives %v", got)
	}
	if got := ids(name, "--no-bos", "--no-parse-special"); len(got) < 2 {
		t.Errorf("the name of BOS as plain text gives %v", got)
	}
}

func TestTokenizeErrors(t *testing.T) {
	for stdin, word := range map[string]string{
		"[1, 2":   "]",
		"1 two":   `"two"`,
		"-1":      `"-1"`,
		"9999999": "9999999",
		"1.5":     `"1.5"`,
	} {
		call{stdin: stdin, args: []string{"tokenize", "demo", "--detokenize"}}.run().fails(t, 1, word)
	}
	pesti("tokenize", "none.gguf").fails(t, 1, "none.gguf")
	none := rewrittenDemo(t, true, nil, "tokenizer.ggml.model")
	pesti("tokenize", none).fails(t, 1, none, "tokenizer.ggml.model")
	// A doubtful tokenizer causes a warning and no error.
	r := call{stdin: "a", args: []string{"tokenize", "--ids", rewrittenDemo(t, true, nil, "tokenizer.ggml.pre")}}.run()
	if r.code != 0 || !strings.HasPrefix(r.err, "pesti: warning: ") || !strings.Contains(r.err, "tokenizer.ggml.pre") || r.out == "" {
		t.Errorf("without a splitter: %+v", r)
	}
}

func TestParseIDs(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "[]",
		"[]":                 "[]",
		" [ ] ":              "[]",
		"1":                  "[1]",
		"1,2,3":              "[1 2 3]",
		"[785, 3974]\n":      "[785 3974]",
		"785 3974\r\n1\t2\n": "[785 3974 1 2]",
		"2147483647":         "[2147483647]",
		"2147483648":         `found "2147483648"`,
		"[1":                 "]",
		"1]":                 `found "1]"`,
		"[[1]]":              `found "[1]"`,
		"x":                  `found "x"`,
	} {
		ids, err := parseIDs(in)
		got := fmt.Sprint(ids)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("parseIDs(%q) = %s, want %s", in, got, want)
		}
	}
}
