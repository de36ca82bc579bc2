package draw

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/goccy/go-graphviz"
)

// formats is the table of renderings.
var formats = map[string]graphviz.Format{
	"svg": graphviz.SVG,
	"png": graphviz.PNG,
}

// Render lays out a dot text and writes it as "svg" or "png". It runs Graphviz in-process;
// nothing need be installed. A png of some hundred boxes takes seconds.
func Render(text, format string, w io.Writer) (err error) {
	f, ok := formats[format]
	if !ok {
		return fmt.Errorf("picture format is %q, expected one of %q", format, slices.Sorted(maps.Keys(formats)))
	}
	ctx := context.Background()
	gv, err := graphviz.New(ctx)
	if err != nil {
		return fmt.Errorf("starting the layout engine: %w", err)
	}
	defer gv.Close()
	g, err := graphviz.ParseBytes([]byte(text))
	if err != nil {
		return fmt.Errorf("reading the dot text: %w", err)
	}
	defer g.Close()
	if err := gv.Render(ctx, g, f, w); err != nil {
		return fmt.Errorf("drawing the %s: %w", format, err)
	}
	return nil
}
