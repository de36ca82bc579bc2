// Package sidecar stores a model's matrices in FP8, a type that GGUF does not have, in a separate file:
// the sidecar of the GGUF file.
//
// A sidecar is a safetensors file. For each matrix it has a tensor F8_E4M3 [rows, cols] with the name
// that the matrix has in the GGUF file, and a tensor F32 [rows] with ".scale" appended to that name.
// The element in row i and column j is scale[i] · E4M3(i, j). The __metadata__ of the file hold the
// format and the identity of the model.
//
// The package imports gguf, gguf/numfmt, gguf/quant and gguf/safetensors. It knows no graph and no plan.
package sidecar

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"pesti/gguf"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
	"pesti/gguf/safetensors"
)

// Type is the type of the weights, as graphs and plans name it.
const Type = "f8_e4m3"

// Types, names and metadata keys of the file.
const (
	codeType    = "F8_E4M3"
	scaleType   = "F32"
	scaleSuffix = ".scale"

	formatKey, format   = "format", "pesti.fp8_e4m3.row" // one scale for each row
	sizeKey             = "model.size"
	directoryKey        = "model.directory"
	dataKey, samplesKey = "model.data", "model.samples"
)

// A Weight is one matrix of a sidecar.
type Weight struct {
	Name       string
	Rows, Cols int64
	codes      *safetensors.Tensor
	scales     *safetensors.Tensor
}

// Size returns the size of codes and scales in bytes.
func (w *Weight) Size() int64 { return w.Rows*w.Cols + 4*w.Rows }

// A File is an open sidecar.
type File struct {
	*safetensors.File
	weights []Weight
	byName  map[string]int
}

// Open opens the file at path and checks that it belongs to model, is complete and has the right
// shapes. Codes and scales are not read.
func Open(path string, model *gguf.File) (*File, error) {
	st, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := of(st, model)
	if err != nil {
		st.Close()
		return nil, err
	}
	return f, nil
}

// Parse is like Open for a file in memory.
func Parse(name string, data []byte, model *gguf.File) (*File, error) {
	st, err := safetensors.Parse(name, data)
	if err != nil {
		return nil, err
	}
	return of(st, model)
}

// of checks a file against the model.
func of(st *safetensors.File, model *gguf.File) (*File, error) {
	if got := st.Metadata[formatKey]; got != format {
		return nil, fmt.Errorf("%s: the format in its metadata is %q, expected %q, as quantize writes it", st.Path, got, format)
	}
	for _, id := range []struct{ key, want string }{
		{sizeKey, strconv.FormatInt(model.Size, 10)}, {directoryKey, directory(model)},
	} {
		if got := st.Metadata[id.key]; got != id.want {
			return nil, fmt.Errorf("%s: is for another model than %s: %s is %q, expected %q; quantize this model again", st.Path, model.Path, id.key, got, id.want)
		}
	}
	f := &File{File: st, byName: map[string]int{}}
	for _, t := range Matrices(model) {
		w := Weight{Name: t.Name, Rows: t.Dims[1], Cols: t.Dims[0]}
		var err error
		if w.codes, err = expect(st, t.Name, codeType, w.Rows, w.Cols); err != nil {
			return nil, err
		}
		if w.scales, err = expect(st, t.Name+scaleSuffix, scaleType, w.Rows); err != nil {
			return nil, err
		}
		f.byName[t.Name] = len(f.weights)
		f.weights = append(f.weights, w)
	}
	if found, want := len(st.Tensors()), 2*len(f.weights); found != want {
		return nil, fmt.Errorf("%s: has %d tensors, expected the %d of the matrices of %s", st.Path, found, want, model.Path)
	}
	return f, nil
}

// expect returns the tensor of the given name, type and shape.
func expect(st *safetensors.File, name, dtype string, shape ...int64) (*safetensors.Tensor, error) {
	t, ok := st.Tensor(name)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: has no tensor %q, expected %s%v; quantize the model again", st.Path, name, dtype, shape)
	case t.DType != dtype || !slices.Equal(t.Shape, shape):
		return nil, fmt.Errorf("%s: tensor %q is %s%v, expected %s%v", st.Path, name, t.DType, t.Shape, dtype, shape)
	}
	return t, nil
}

// directory is the digest of the model's header, metadata and tensor directory.
func directory(model *gguf.File) string { return fmt.Sprintf("sha256:%x", model.Digest()) }

// WeightsDigest returns the digest of the weights as plans store it. It is an error if they were quantized from
// other weights than the model's, whose digest is model, see gguf.File.WeightsDigest. It reads the whole file.
func (f *File) WeightsDigest(model string) (string, error) {
	key := dataKey
	if gguf.SampledDigest(model) {
		key = samplesKey
	}
	if got := f.Metadata[key]; got != model {
		return "", fmt.Errorf("%s: was made from other weights than the model's: %s is %q, expected %q; quantize this model again", f.Path, key, got, model)
	}
	sum, err := f.HashData()
	return fmt.Sprintf("sha256:%x", sum), err
}

// Weights returns the matrices in the order of the model's directory. Callers must not change them.
func (f *File) Weights() []Weight { return f.weights }

// Names returns the names of the matrices.
func (f *File) Names() []string {
	var names []string
	for i := range f.weights {
		names = append(names, f.weights[i].Name)
	}
	return names
}

// Weight returns the matrix called name, and whether there is one.
func (f *File) Weight(name string) (*Weight, bool) {
	i, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	return &f.weights[i], true
}

// Codes returns the rows of a matrix in E4M3, as safetensors.File.Bytes does.
func (f *File) Codes(w *Weight) []byte { return f.Bytes(w.codes) }

// Scales returns a copy of the scales of the rows.
func (f *File) Scales(w *Weight) ([]float32, error) {
	scales := make([]float32, w.Rows)
	info, _ := quant.Lookup(quant.F32)
	err := f.Read(w.scales, func(data []byte) { info.Dequantize(scales, data) })
	return scales, err
}

// ReadCodes copies len(p) of the codes of a matrix, from code at on, as safetensors.File.ReadAt does.
func (f *File) ReadCodes(w *Weight, p []byte, at int64) error { return f.ReadAt(w.codes, p, at) }

// Values returns rows [first, end) of a matrix as float32, row-major.
func (f *File) Values(w *Weight, first, end int64) ([]float32, error) {
	scales, err := f.Scales(w)
	if err != nil {
		return nil, err
	}
	values := make([]float32, (end-first)*w.Cols)
	err = f.Read(w.codes, func(codes []byte) {
		for i := range end - first {
			row := codes[(first+i)*w.Cols:][:w.Cols]
			for j, code := range row {
				values[i*w.Cols+int64(j)] = scales[first+i] * numfmt.E4M3ToF32(code)
			}
		}
	})
	return values, err
}

// Matrices returns the tensors that a sidecar holds: the weights of matrix products. The embedding table
// is one of them if it is also the output projection; otherwise rows are only copied from it.
func Matrices(model *gguf.File) []*gguf.Tensor {
	_, untied := model.Tensor("output.weight")
	var list []*gguf.Tensor
	for i := range model.Tensors() {
		t := &model.Tensors()[i]
		info, _ := quant.Lookup(t.Type)
		if len(t.Dims) == 2 && !info.Integer && !(untied && t.Name == "token_embd.weight") {
			list = append(list, t)
		}
	}
	return list
}

// Writer returns a writer of the sidecar of model. It reads all weights of the model to compute their
// digest. They are read again when the file is written, so model must stay open until then.
func Writer(model *gguf.File) (*safetensors.Writer, error) {
	data, err := model.WeightsDigest(false)
	if err != nil {
		return nil, err
	}
	some, err := model.WeightsDigest(true)
	if err != nil {
		return nil, err
	}
	w := safetensors.NewWriter(map[string]string{
		formatKey: format, sizeKey: strconv.FormatInt(model.Size, 10), directoryKey: directory(model),
		dataKey: data, samplesKey: some,
	})
	matrices := Matrices(model)
	if len(matrices) == 0 {
		return nil, fmt.Errorf("%s: has no matrices, expected a model with weights", model.Path)
	}
	for _, t := range matrices {
		if info, _ := quant.Lookup(t.Type); info.Dequantize == nil {
			return nil, fmt.Errorf("%s: tensor %q: values of type %s cannot be decoded", model.Path, t.Name, t.Type)
		}
		if t.Elems() == 0 {
			return nil, fmt.Errorf("%s: tensor %q: dims %v hold no elements, expected at least one", model.Path, t.Name, t.Dims)
		}
	}
	// Scales come first, so that they are aligned for any number of rows.
	scales := make([][]float32, len(matrices))
	for i, t := range matrices {
		w.Add(t.Name+scaleSuffix, scaleType, []int64{t.Dims[1]}, func(out io.Writer) error {
			scales[i] = scales[i][:0]
			if err := eachRow(model, t, func(row []float32) error {
				s, err := scaleOf(row)
				if err != nil {
					return fmt.Errorf("%s: tensor %q, row %d: %w", model.Path, t.Name, len(scales[i]), err)
				}
				scales[i] = append(scales[i], s)
				return nil
			}); err != nil {
				return err
			}
			info, _ := quant.Lookup(quant.F32)
			data := make([]byte, 4*len(scales[i]))
			info.Quantize(data, scales[i])
			_, err := out.Write(data)
			return err
		})
	}
	for i, t := range matrices {
		w.Add(t.Name, codeType, []int64{t.Dims[1], t.Dims[0]}, func(out io.Writer) error {
			codes, at := make([]byte, t.Dims[0]), 0
			return eachRow(model, t, func(row []float32) error {
				quantize(codes, row, scales[i][at])
				at++
				_, err := out.Write(codes)
				return err
			})
		})
	}
	return w, nil
}

// elemsAtOnce is the approximate number of elements that are dequantized at a time.
const elemsAtOnce = 1 << 18

// eachRow calls use with each row of t as float32.
func eachRow(model *gguf.File, t *gguf.Tensor, use func(row []float32) error) error {
	cols := t.Dims[0]
	step := max(elemsAtOnce/cols, 1)
	for first := int64(0); first < t.Dims[1]; first += step {
		end := min(first+step, t.Dims[1])
		values, err := model.Values(t, first, end)
		if err != nil {
			return err
		}
		for row := range slices.Chunk(values, int(cols)) {
			if err := use(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// scaleOf returns the scale by which the largest element of a row becomes the largest number of E4M3, or
// 1 for a row of zeros.
func scaleOf(row []float32) (float32, error) {
	top := float32(0)
	for _, x := range row {
		x = float32(math.Abs(float64(x)))
		if !(x <= math.MaxFloat32) {
			return 0, fmt.Errorf("has an element %v, expected finite numbers", x)
		}
		top = max(top, x)
	}
	if s := top / numfmt.E4M3Max; s >= smallest {
		return s, nil
	}
	return 1, nil // a row of such small elements counts as zero
}

// smallest is the smallest scale whose inverse is a normal float32.
const smallest = 0x1p-126

// quantize stores row/scale in E4M3.
func quantize(codes []byte, row []float32, scale float32) {
	for i, x := range row {
		codes[i] = numfmt.F32ToE4M3(x / scale)
	}
}
