package draw

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/goccy/go-graphviz"
)

// A rendering is a format that pictures come in: what the layout engine writes, and what makes a
// picture of that (nil: it is one).
type rendering struct {
	layout graphviz.Format
	finish func(layout []byte, w io.Writer) error
}

var renderings = map[string]rendering{
	"svg": {graphviz.SVG, nil},
	"png": {"json", writePNG},
}

// Render lays out a dot text and writes it as "svg" or "png". It runs Graphviz in-process;
// nothing need be installed. A picture of some hundred boxes takes seconds.
func Render(text, format string, w io.Writer) error {
	r, ok := renderings[format]
	if !ok {
		return fmt.Errorf("picture format is %q, expected one of %q", format, slices.Sorted(maps.Keys(renderings)))
	}
	out, err := lay(text, r.layout)
	if err != nil {
		return fmt.Errorf("laying out the picture: %w", err)
	}
	if r.finish != nil {
		return r.finish(out, w)
	}
	_, err = w.Write(out)
	return err
}

func lay(text string, format graphviz.Format) ([]byte, error) {
	ctx := context.Background()
	gv, err := graphviz.New(ctx)
	if err != nil {
		return nil, err
	}
	defer gv.Close()
	g, err := graphviz.ParseBytes([]byte(text))
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var b bytes.Buffer
	err = gv.Render(ctx, g, format, &b)
	return b.Bytes(), err
}
