package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strings"

	"pesti/gguf"
	"pesti/gguf/quant"
)

const (
	// unit is the number of values that are copied at once, a multiple of every block length.
	unit = 256
	// poolUnits is the number of different units in the pool of one type and spread.
	poolUnits = 1024
)

// A poolKey identifies the pool of a matrix.
type poolKey struct {
	typ    quant.Type
	spread float64
}

// A generator produces weights. Each tensor depends on its name and shape alone, so two files of a model
// are equal.
//
// Quantizing random values takes longer than writing a file does. A matrix is therefore drawn, unit by
// unit, from a pool of units of normally distributed values, quantized once.
type generator struct{ pools map[poolKey][]byte }

// write writes the data of a tensor.
func (g *generator) write(out io.Writer, t *tensor) error {
	if t.values != nil || len(t.dims) == 1 {
		return writeVector(out, t)
	}
	pool, size, err := g.pool(t)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed(t.name), 1))
	buffer := make([]byte, 0, 4096*size)
	for left := elems(t) / unit; left > 0; left-- {
		at := int(random.Uint32N(poolUnits)) * size
		if buffer = append(buffer, pool[at:at+size]...); len(buffer) == cap(buffer) || left == 1 {
			if _, err := out.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	return nil
}

// pool returns the units that a matrix is drawn from, and the bytes of one.
func (g *generator) pool(t *tensor) (pool []byte, size int, err error) {
	info, ok := quant.Lookup(t.typ)
	if !ok || info.Quantize == nil || unit%info.BlockLen != 0 || t.dims[0]%unit != 0 {
		return nil, 0, fmt.Errorf("tensor %s: found rows of %d values in %s, expected a multiple of %d in a type that can be written", t.name, t.dims[0], t.typ, unit)
	}
	size = unit / info.BlockLen * info.BlockBytes
	key := poolKey{t.typ, t.spread}
	if g.pools[key] == nil {
		pool := make([]byte, poolUnits*size)
		info.Quantize(pool, normal(poolUnits*unit, seed(fmt.Sprint(key)), 0, t.spread))
		g.pools[key] = pool
	}
	return g.pools[key], size, nil
}

func writeVector(out io.Writer, t *tensor) error {
	values := t.values
	if values == nil {
		values = normal(int(elems(t)), seed(t.name), t.mean, t.spread)
	}
	info, _ := quant.Lookup(quant.F32)
	data := make([]byte, len(values)*info.BlockBytes)
	info.Quantize(data, values)
	_, err := out.Write(data)
	return err
}

// normal returns normally distributed values.
func normal(n int, seed uint64, mean, spread float64) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(float64(spread*random.NormFloat64()) + mean)
	}
	return values
}

// seed returns the seed of a name.
func seed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

func elems(t *tensor) int64 {
	n := int64(1)
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// copyVocabulary copies the keys of the tokenizer from vocab, which must have size tokens.
func copyVocabulary(w *gguf.Writer, vocab *gguf.File, size int) error {
	const tokens = "tokenizer.ggml.tokens"
	if n, _ := vocab.Len(tokens); n != size {
		return fmt.Errorf("%s: found %d entries in %s, expected %d; run make models", vocab.Paths()[0], n, tokens, size)
	}
	for _, key := range vocab.Keys() {
		if v, ok := vocab.Value(key); ok && strings.HasPrefix(key, "tokenizer.") {
			w.Set(key, v)
		}
	}
	return nil
}
