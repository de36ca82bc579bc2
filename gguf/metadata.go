package gguf

import (
	"errors"
	"fmt"
	"math"
)

// ErrNoKey is the error (by errors.Is) for a key that is absent.
var ErrNoKey = errors.New("no such key")

// Keys returns all keys in file order. Callers must not change the slice.
func (f *File) Keys() []string { return f.keys }

// Has reports whether key is present.
func (f *File) Has(key string) bool { _, ok := f.values[key]; return ok }

// Value returns the value of key, and whether it is present.
func (f *File) Value(key string) (Value, bool) {
	v, ok := f.values[key]
	return v, ok
}

// Len returns the number of elements of the array at key, and whether there is an
// array.
func (f *File) Len(key string) (int, bool) {
	v, ok := f.values[key]
	return v.n, ok && v.kind == Array
}

// Str returns the string at key.
func (f *File) Str(key string) (string, error) { return scalar[string](f, key, "a string") }

// Bool returns the bool at key.
func (f *File) Bool(key string) (bool, error) { return scalar[bool](f, key, "a bool") }

// Float returns the float at key, of either width.
func (f *File) Float(key string) (float64, error) { return scalar[float64](f, key, "a float") }

// Uint returns the integer at key, which may have any type but must not be
// negative.
func (f *File) Uint(key string) (uint64, error) {
	const want = "an integer that is not negative"
	v, err := f.find(key)
	if err != nil {
		return 0, err
	}
	if v.kind != Array {
		switch x := v.Any().(type) {
		case uint64:
			return x, nil
		case int64:
			if x >= 0 {
				return uint64(x), nil
			}
			return 0, fmt.Errorf("%s: key %q: found %d, expected %s", f.Path, key, x, want)
		}
	}
	return 0, f.mismatch(key, v, want)
}

// Strs returns a copy of the array of strings at key.
func (f *File) Strs(key string) ([]string, error) {
	v, err := f.array(key, "an array of strings", String)
	if err != nil {
		return nil, err
	}
	// The strings are parts of one string, so that a vocabulary takes two allocations.
	blob := string(v.raw)
	c := &cursor{data: v.raw}
	all := make([]string, v.n)
	for i := range all {
		n := len(c.str())
		all[i] = blob[c.pos-n : c.pos]
	}
	return all, c.err
}

// Ints returns the array at key of integers of any width, or of bools as 0 and 1.
func (f *File) Ints(key string) ([]int64, error) {
	const want = "an array of integers"
	v, err := f.array(key, want, Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64, Bool)
	if err != nil {
		return nil, err
	}
	c := &cursor{data: v.raw}
	all := make([]int64, v.n)
	for i := range all {
		switch v.elem {
		case Uint8, Bool:
			all[i] = int64(c.u8())
		case Int8:
			all[i] = int64(int8(c.u8()))
		case Uint16:
			all[i] = int64(c.u16())
		case Int16:
			all[i] = int64(int16(c.u16()))
		case Uint32:
			all[i] = int64(c.u32())
		case Int32:
			all[i] = int64(int32(c.u32()))
		default:
			x := c.u64()
			if v.elem == Uint64 && x > math.MaxInt64 {
				return nil, fmt.Errorf("%s: key %q: element %d is %d, expected less than 2^63", f.Path, key, i, x)
			}
			all[i] = int64(x)
		}
	}
	return all, nil
}

// Floats returns the array of floats at key. Elements of 64 bits are rounded.
func (f *File) Floats(key string) ([]float32, error) {
	v, err := f.array(key, "an array of floats", Float32, Float64)
	if err != nil {
		return nil, err
	}
	c := &cursor{data: v.raw}
	all := make([]float32, v.n)
	for i := range all {
		if v.elem == Float32 {
			all[i] = c.f32()
		} else {
			all[i] = float32(c.f64())
		}
	}
	return all, nil
}

func (f *File) find(key string) (Value, error) {
	v, ok := f.values[key]
	if !ok {
		return v, fmt.Errorf("%s: key %q: %w", f.Path, key, ErrNoKey)
	}
	return v, nil
}

func (f *File) mismatch(key string, v Value, want string) error {
	return fmt.Errorf("%s: key %q: found %s, expected %s", f.Path, key, v.TypeName(), want)
}

// scalar returns the value at key if Any returns it as a T.
func scalar[T any](f *File, key, want string) (T, error) {
	var none T
	v, err := f.find(key)
	if err != nil {
		return none, err
	}
	if v.kind != Array {
		if x, ok := v.Any().(T); ok {
			return x, nil
		}
	}
	return none, f.mismatch(key, v, want)
}

// array returns the value at key if it is an array of one of the kinds.
func (f *File) array(key, want string, elems ...Kind) (Value, error) {
	v, err := f.find(key)
	if err != nil {
		return v, err
	}
	if v.kind == Array {
		for _, k := range elems {
			if v.elem == k {
				return v, nil
			}
		}
	}
	return v, f.mismatch(key, v, want)
}
