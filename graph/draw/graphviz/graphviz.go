// Package graphviz contains the layout engine: Graphviz, compiled to WebAssembly and run by wazero
// in this process. Nothing has to be installed, and nothing is loaded before the first picture.
//
// The WebAssembly module comes from github.com/goccy/go-graphviz v0.2.10 (Graphviz has the Eclipse
// Public License 2.0). That package itself is not linked: it compiles the module at every start of
// a program, and keeps the machine code in a shared temporary folder that any user can prepare.
//
// It imports no package of this module.
package graphviz

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

//go:embed graphviz.wasm.gz
var packed []byte

// Render lays out a graph in the dot language with Graphviz's engine "dot" and returns it in one
// of Graphviz's output formats: "svg", "json", "plain", …
func Render(ctx context.Context, text, format string) ([]byte, error) {
	code, err := module()
	if err != nil {
		return nil, err
	}
	config := wazero.NewRuntimeConfig()
	if cache := machineCode(); cache != nil {
		defer cache.Close(ctx)
		config = config.WithCompilationCache(cache)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config)
	defer r.Close(ctx)
	h, err := start(ctx, r, code)
	if err != nil {
		return nil, fmt.Errorf("starting Graphviz: %w", err)
	}
	out := h.render(text, format)
	return out, h.err
}

func module() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// machineCode returns the cache of compiled code in the user's cache folder, or nil if there is no
// such folder. Compiling takes a second, reading the compiled code a tenth of that.
func machineCode() wazero.CompilationCache {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, "pesti", "graphviz"))
	if err != nil {
		return nil
	}
	return cache
}

// A host is a running Graphviz. It keeps the first error. After an error its calls do nothing.
type host struct {
	ctx      context.Context
	mod      api.Module
	messages bytes.Buffer // Graphviz's errors, and warnings about fonts without metrics
	err      error
}

// start provides the module's imports: the system interface, and callbacks for plug-ins written in
// Go, which are not used.
func start(ctx context.Context, r wazero.Runtime, code []byte) (*host, error) {
	compiled, err := r.CompileModule(ctx, code)
	if err != nil {
		return nil, err
	}
	env := r.NewHostModuleBuilder("env")
	for _, f := range compiled.ImportedFunctions() {
		if from, name, _ := f.Import(); from == "env" {
			absent := api.GoFunc(func(context.Context, []uint64) {
				panic(errors.New(name + " is not there")) // becomes the error of the call
			})
			env.NewFunctionBuilder().WithGoFunction(absent, f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	if _, err := env.Instantiate(ctx); err != nil {
		return nil, err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return nil, err
	}
	h := &host{ctx: ctx}
	h.mod, err = r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStderr(&h.messages))
	return h, err
}

// render calls Graphviz's C interface (https://graphviz.org/pdf/libguide.pdf). Memory is freed only
// with the module.
func (h *host) render(text, format string) []byte {
	context := h.call("gvContextPlugins", h.builtins(), 0)
	graph := h.call("agmemread", h.string(text))
	if h.err == nil && graph == 0 {
		h.err = fmt.Errorf("reading the graph: %s", h.reason())
		return nil
	}
	if h.call("gvLayout", context, graph, h.string("dot")) != 0 {
		h.fail("laying out the graph: %s", h.reason())
	}
	result := h.call("malloc", 8) // a pointer and a length
	if h.call("gvRenderData", context, graph, h.string(format), result, result+4) != 0 {
		h.fail("format %q: %s", format, h.reason())
	}
	if h.err != nil {
		return nil
	}
	return bytes.Clone(h.read(h.word(result), h.word(result+4)))
}

// builtins returns the address of the list of plug-ins that the module was linked with: pairs of
// a name and an address, ended by a pair of zeros. The module has the list as a slice of
// addresses of pairs, with 8 bytes for each.
func (h *host) builtins() uint64 {
	const pair = 8
	result := h.call("malloc", 4)
	h.call("wasm_bridge_SymList_default", result)
	slice := h.word(result)
	n, data := h.word(slice), h.word(slice+4)
	list := h.call("malloc", pair*(n+1))
	for i := range n {
		h.write(list+pair*i, h.read(h.word(data+8*i), pair))
	}
	h.write(list+pair*n, make([]byte, pair))
	return list
}

// reason returns the first error among the messages.
func (h *host) reason() string {
	for line := range strings.Lines(h.messages.String()) {
		if text, ok := strings.CutPrefix(line, "Error: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return "no reason given"
}

func (h *host) fail(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf(format, args...)
	}
}

// call returns the result of an exported function, 0 if it has no result.
func (h *host) call(name string, args ...uint64) uint64 {
	if h.err != nil {
		return 0
	}
	f := h.mod.ExportedFunction(name)
	if f == nil {
		h.fail("Graphviz has no function %s", name)
		return 0
	}
	results, err := f.Call(h.ctx, args...)
	if err != nil {
		h.fail("%s: %w", name, err)
	}
	if len(results) == 0 {
		return 0
	}
	return results[0]
}

// string returns the address of a copy of s in the module, ended by a zero.
func (h *host) string(s string) uint64 {
	at := h.call("malloc", uint64(len(s)+1))
	h.write(at, append([]byte(s), 0))
	return at
}

func (h *host) write(at uint64, data []byte) {
	if h.err == nil && !h.mod.Memory().Write(uint32(at), data) {
		h.fail("Graphviz is out of memory")
	}
}

// read returns a view of the module's memory.
func (h *host) read(at, size uint64) []byte {
	if h.err != nil {
		return nil
	}
	memory := h.mod.Memory()
	size = min(size, uint64(memory.Size())-min(at, uint64(memory.Size())))
	data, _ := memory.Read(uint32(at), uint32(size))
	return data
}

func (h *host) word(at uint64) uint64 {
	if h.err != nil {
		return 0
	}
	v, _ := h.mod.Memory().ReadUint32Le(uint32(at))
	return uint64(v)
}
