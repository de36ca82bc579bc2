// Command benchmodels writes models with random weights for measurements. Shapes, tensor types and vocabularies
// are those of published files, so speed and memory use are too. It keeps files that are present, and prints the
// paths of the models.
//
//	go run ./conformance/benchmodels -list
//	go run ./conformance/benchmodels llama-8b-q4_k_m
//	go run ./conformance/benchmodels -layers 2 -o FOLDER all
//
// The vocabularies come from the folder of models, where make models puts them. Values have the sizes
// of weights before training: activations stay finite and logits differ, but the text means nothing.
//
// It defines the shapes and the values. It imports gguf and gguf/quant, to write the files, and
// conformance/testenv.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pesti/conformance/testenv"
	"pesti/gguf"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) { // package flag has printed the help
			fmt.Fprintln(os.Stderr, "benchmodels:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("benchmodels", flag.ContinueOnError)
	f.SetOutput(stderr)
	folder := f.String("o", "", "`FOLDER` for the files (default bench in the folder of models)")
	layers := f.Int("layers", 0, "write only the first `N` layers (default all)")
	list := f.Bool("list", false, "print the names of the models and stop")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *list {
		_, err := fmt.Fprintln(stdout, strings.Join(names(), "\n"))
		return err
	}
	models, err := testenv.ModelsFolder()
	if err != nil {
		return err
	}
	if *folder == "" {
		*folder = filepath.Join(models, testenv.BenchModels)
	}
	chosen, err := choose(f.Args(), *layers)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	for i := range chosen {
		s := &chosen[i]
		path := filepath.Join(*folder, s.name+".gguf")
		begin := time.Now()
		switch _, err := os.Stat(path); {
		case err == nil:
			fmt.Fprintf(stderr, "%s: present\n", s.name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		default:
			if err := s.writeFile(path, filepath.Join(models, "vocab", s.vocabFile)); err != nil {
				return err
			}
			fmt.Fprintf(stderr, "%s: written in %.0f s\n", s.name, time.Since(begin).Seconds())
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

func names() []string {
	var list []string
	for i := range shapes {
		list = append(list, shapes[i].name)
	}
	return list
}

// choose returns the shapes of the given names, cut to a number of layers if that is not 0. "all" is every
// shape.
func choose(args []string, layers int) ([]shape, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("found no NAME, expected all or some of %s", strings.Join(names(), ", "))
	}
	if len(args) == 1 && args[0] == "all" {
		args = names()
	}
	var chosen []shape
	for _, name := range args {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("found the name %q, expected all or some of %s", name, strings.Join(names(), ", "))
		}
		s := shapes[i]
		if layers < 0 || layers > s.layers {
			return nil, fmt.Errorf("-layers is %d, expected 1 to %d for %s, or 0 for all", layers, s.layers, name)
		}
		if layers > 0 {
			s.layers, s.name = layers, fmt.Sprintf("%s-%dl", s.name, layers)
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// writeFile writes the model to path, with the vocabulary of another file.
func (s *shape) writeFile(path, vocabulary string) error {
	vocab, err := gguf.Open(vocabulary)
	if err != nil {
		return fmt.Errorf("%w; run make models", err)
	}
	defer vocab.Close()
	w, err := s.writer(vocab)
	if err != nil {
		return err
	}
	return w.WriteFile(path)
}

// writer returns the model, whose weights are made while it is written.
func (s *shape) writer(vocab *gguf.File) (*gguf.Writer, error) {
	w := gguf.NewWriter()
	if err := s.metadata(w, vocab); err != nil {
		return nil, err
	}
	g := &generator{pools: map[poolKey][]byte{}}
	for _, t := range s.tensors() {
		w.AddTensorFunc(t.name, t.typ, t.dims, func(out io.Writer) error { return g.write(out, &t) })
	}
	return w, nil
}
