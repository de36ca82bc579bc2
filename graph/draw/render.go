package draw

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"pesti/graph/draw/graphviz"
)

// A rendering is an output format of pictures: the layout engine's format, and a function that
// converts it (nil: no conversion).
type rendering struct {
	layout string
	finish func(layout []byte, w io.Writer) error
}

var renderings = map[string]rendering{
	"svg": {"svg", nil},
	"png": {"json", writePNG},
}

// Render lays out a dot text and writes it as "svg" or "png". It runs Graphviz in-process, so
// nothing has to be installed. A picture of some hundred boxes takes seconds.
func Render(text, format string, w io.Writer) error {
	r, ok := renderings[format]
	if !ok {
		return fmt.Errorf("picture format is %q, expected one of %q", format, slices.Sorted(maps.Keys(renderings)))
	}
	out, err := graphviz.Render(context.Background(), text, r.layout)
	if err != nil {
		return fmt.Errorf("laying out the picture: %w", err)
	}
	if r.finish != nil {
		return r.finish(out, w)
	}
	_, err = w.Write(out)
	return err
}
