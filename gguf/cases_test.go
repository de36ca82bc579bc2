package gguf

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/testenv"
)

// A fileCase is a file built byte by byte that must be accepted, or refused with
// the words in want.
type fileCase struct{ name, data, want string }

// fileCases returns the cases: damaged files, and valid files that differ little from
// them.
func fileCases() []fileCase {
	var files []fileCase
	add := func(name, data, want string) { files = append(files, fileCase{name, data, want}) }
	d := func(dims ...uint64) []uint64 { return dims }
	zeros := func(n int) string { return strings.Repeat("\x00", n) }
	const f32, q4_0, q8_0, q4K = 0, 2, 8, 12

	// The header.
	for _, n := range []int{0, 1, 3, 4, 7, 8, 15, 16, 23} {
		add(fmt.Sprintf("first %d bytes", n), H(3, 0, 0)[:n], "truncated")
	}
	add("empty of version 3", H(3, 0, 0), "")
	add("empty of version 2", H(2, 0, 0), "")
	add("version 0", H(0, 0, 0), "version 0 is not known")
	add("version 1", H(1, 0, 0), "version 1 is not supported")
	add("version 4", H(4, 0, 0), "version 4 is not known")
	add("version 3 big-endian", H(3<<24, 0, 0), "byte order")
	add("version 2 big-endian", H(2<<24, 0, 0), "byte order")
	add("magic big-endian", "FUGG"+H(3, 0, 0)[4:], "byte order")
	add("other magic", "GGUX"+H(3, 0, 0)[4:], `starts with "GGUX"`)
	add("one other byte", "X", `starts with "X"`)
	add("web page", "<!DOCTYPE html>\n<html><head><title>Sign in</title>", "web page")
	add("web page after space", "\n  <html>", "web page")
	add("LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer")
	add("GGJT", "tjgg"+zeros(40), "older than GGUF")
	for _, h := range []string{H(3, 1<<59, 0), H(3, 0, 1<<58), H(3, 1<<63, 0), H(3, 0, 1<<63), H(3, 1e6, 0), H(3, math.MaxUint64, math.MaxUint64)} {
		add(fmt.Sprintf("counts % x", h[8:]), h, "holds at most 0")
		add(fmt.Sprintf("counts % x, some bytes", h[8:]), h+zeros(900), "holds at most")
	}
	add("a pair too many", H(3, 0, 2)+KV("a", Uint8, "\x01"), "truncated")

	// Keys and values.
	for _, n := range []uint64{math.MaxUint64, 1 << 63, 1 << 48, 1 << 40, 1 << 30} {
		add(fmt.Sprintf("key of length %d", n), H(3, 0, 1)+num(n)+zeros(6), "key 1 of 1: truncated")
		add(fmt.Sprintf("string of length %d", n), H(3, 0, 1)+KV("a", String, num(n)), `key "a": truncated`)
	}
	for _, n := range []uint64{math.MaxUint64, 1 << 61, 1 << 32, 1 << 30, 3} {
		for k := range kinds {
			if Kind(k) == Array {
				continue
			}
			add(fmt.Sprintf("array of %d %s", n, Kind(k)), H(3, 0, 1)+KV("a", Array, A(Kind(k), n, "\x01\x01")), `key "a": truncated`)
		}
	}
	add("array of strings that ends early", H(3, 0, 1)+KV("a", Array, A(String, 2, S("x")+num(uint64(2))+"y")), `key "a": truncated`)
	add("array of no strings", H(3, 0, 1)+KV("a", Array, A(String, 0, "")), "")
	add("array of arrays", H(3, 0, 1)+KV("a", Array, A(Array, 1, A(Uint8, 1, "x"))), "array of arrays")
	deep := A(Uint8, 1, "x")
	deep = strings.Repeat(num(uint32(Array))+num(uint64(1)), 10000) + deep
	add("arrays 10,000 deep", H(3, 0, 1)+KV("a", Array, deep), "array of arrays")
	add("unknown kind", H(3, 0, 1)+KV("a", 13, zeros(8)), "value type 13 is not known")
	add("unknown kind, all bits", H(3, 0, 1)+KV("a", math.MaxUint32, zeros(8)), "is not known")
	add("array of unknown kind", H(3, 0, 1)+KV("a", Array, A(13, 0, "")), "array of value type 13")
	add("empty key", H(3, 0, 1)+KV("", Uint8, "\x01"), "empty key")
	add("duplicate key", H(3, 0, 2)+KV("a", Uint8, "\x01")+KV("a", Uint32, num(uint32(1))), "duplicate key")
	add("bool 2", H(3, 0, 1)+KV("a", Bool, "\x02"), "bool stored as 2")
	add("bool 2 in an array", H(3, 0, 1)+KV("a", Array, A(Bool, 3, "\x00\x01\x02")), "bool stored as 2")
	add("key cut short", H(3, 0, 1)+S("abcdefghij")[:14], "key 1 of 1: truncated")
	add("key of 65,535 bytes", H(3, 0, 1)+KV(strings.Repeat("k", 65535), Uint8, "\x01"), "")
	add("key of 65,536 bytes", H(3, 0, 1)+KV(strings.Repeat("k", 65536), Uint8, "\x01"), "key of 65536 bytes")
	add("long key of a bad value", H(3, 0, 1)+KV(strings.Repeat("k", 65535), 13, "\x01"), strings.Repeat("k", 100)+`": value type 13`)
	add("key that is not UTF-8", H(3, 0, 1)+KV("\xff\x00", Uint8, "\x01"), "")
	add("bad value of a key that would steer a terminal", H(3, 0, 1)+KV("a\n\x1b[2J\x00\u202e", 13, "\x01"), `key "a\n\x1b[2J\x00\u202e": value type 13`)

	// Alignment.
	align := func(kind Kind, value string) string { return H(3, 0, 1) + KV("general.alignment", kind, value) }
	for _, n := range []uint32{0, 3, 33, 1 << 21, 1 << 31, math.MaxUint32} {
		add(fmt.Sprintf("alignment %d", n), align(Uint32, num(n)), `key "general.alignment": found`)
	}
	for _, n := range []uint32{1, 2, 32, 64, 4096, 1 << 20} {
		add(fmt.Sprintf("alignment %d", n), align(Uint32, num(n)), "")
	}
	add("alignment as i32", align(Int32, num(uint32(32))), `key "general.alignment": found i32, expected u32`)
	add("alignment as u64", align(Uint64, num(uint64(32))), `key "general.alignment": found u64, expected u32`)
	add("alignment as u16", align(Uint16, num(uint16(32))), `key "general.alignment": found u16, expected u32`)
	add("alignment as string", align(String, S("32")), `key "general.alignment": found string, expected u32`)

	// Tensors. Each directory is followed by 4096 bytes of data, unless the case states otherwise.
	tensors := func(t ...string) string {
		return pad(H(3, uint64(len(t)), 0)+strings.Join(t, ""), 32) + zeros(4096)
	}
	add("one tensor", tensors(T("t", d(32, 2), f32, 0)), "")
	add("no dims", tensors(T("t", nil, f32, 0)), "")
	add("no dims of blocks", tensors(T("t", nil, q4_0, 0)), `tensor "t": first dim is 1`)
	add("4 dims", tensors(T("t", d(2, 2, 2, 2), f32, 0)), "")
	add("a zero dim", tensors(T("t", d(32, 0), f32, 0)), "")
	add("a zero dim before a large one", tensors(T("t", d(0, 1<<40), f32, 0)), "")
	add("a zero dim first in blocks", tensors(T("t", d(0, 3), q4_0, 0)), "")
	add("5 dims", tensors(T("t", d(1, 1, 1, 1, 1), f32, 0)), `tensor "t": found 5 dims`)
	for _, n := range []uint32{9, math.MaxUint32} {
		add(fmt.Sprintf("%d dims", n), tensors(S("t")+num(n)+zeros(100)), fmt.Sprintf(`tensor "t": found %d dims`, n))
	}
	add("dims 2^40 2^40", tensors(T("t", d(1<<40, 1<<40), f32, 0)), `tensor "t": dims`)
	add("dim 2^62", tensors(T("t", d(1<<62), f32, 0)), `tensor "t": dims`)
	add("dim 2^63", tensors(T("t", d(1<<63), f32, 0)), `tensor "t": dim 0 is`)
	add("dim 2^64-1", tensors(T("t", d(2, math.MaxUint64), f32, 0)), `tensor "t": dim 1 is`)
	add("Q8_0 32 2^59", tensors(T("t", d(32, 1<<59), q8_0, 0)), `tensor "t": dims`)
	add("Q8_0 32 2^58", tensors(T("t", d(32, 1<<57), q8_0, 0)), `tensor "t": needs`)
	add("Q4_K 255", tensors(T("t", d(255), q4K, 0)), `tensor "t": first dim is 255, expected a multiple of 256 for Q4_K`)
	add("Q4_K 256", tensors(T("t", d(256), q4K, 0)), "")
	add("Q4_K 128 2", tensors(T("t", d(128, 2), q4K, 0)), `tensor "t": first dim is 128`)
	for _, typ := range []uint32{4, 5, 31, 32, 33, 36, 37, 38} {
		add(fmt.Sprintf("type %d", typ), tensors(T("t", d(32), typ, 0)), fmt.Sprintf(`tensor "t": type %d (`, typ))
		add(fmt.Sprintf("type %d removed", typ), tensors(T("t", d(32), typ, 0)), "removed")
	}
	for _, typ := range []uint32{42, 1 << 31, math.MaxUint32} {
		add(fmt.Sprintf("type %d", typ), tensors(T("t", d(32), typ, 0)), fmt.Sprintf(`tensor "t": type %d is not known`, typ))
	}
	add("duplicate tensor", tensors(T("t", d(8), f32, 0), T("t", d(8), f32, 32)), `tensor "t": duplicate name`)
	add("name of 63 bytes", tensors(T(strings.Repeat("n", 63), d(8), f32, 0)), "")
	add("name of 64 bytes", tensors(T(strings.Repeat("n", 64), d(8), f32, 0)), "… of 64 bytes")
	add("name longer than the file", tensors(num(uint64(1<<40))+zeros(100)), "tensor 1 of 1: truncated")
	add("bad type of a tensor whose name would steer a terminal", tensors(T("t\r\n\x1b]0;x\a\x00", d(32), 4, 0)), `tensor "t\r\n\x1b]0;x\a\x00": type 4`)
	add("long name that would steer a terminal", tensors(T(strings.Repeat("\x1b", 70), d(8), f32, 0)), "… of 70 bytes")
	add("overlap", tensors(T("a", d(16), f32, 0), T("b", d(8), f32, 32)), `tensor "b": starts at offset 32, overlapping "a"`)
	add("overlap within", tensors(T("a", d(64), f32, 0), T("b", d(8), f32, 64)), "overlapping")
	add("same place", tensors(T("a", d(8), f32, 0), T("b", d(8), f32, 0)), "overlapping")
	add("overlap in other order", tensors(T("a", d(8), f32, 32), T("b", d(16), f32, 0)), "overlapping")
	add("overlap after an empty tensor", tensors(T("a", d(16), f32, 0), T("e", d(0), f32, 32), T("b", d(8), f32, 32)), "overlapping")
	add("other order", tensors(T("a", d(8), f32, 32), T("b", d(8), f32, 0)), "")
	add("a gap", tensors(T("a", d(8), f32, 0), T("b", d(8), f32, 128)), "")
	add("empty tensors in one place", tensors(T("a", d(0), f32, 0), T("b", d(0), f32, 0), T("c", d(8), f32, 0)), "")
	add("offset 1", tensors(T("t", d(8), f32, 1)), `tensor "t": offset 1, expected a multiple of the alignment 32`)
	add("offset 2^64-32", tensors(T("t", d(8), f32, math.MaxUint64-31)), `tensor "t": offset`)
	add("offset 2^63-32", tensors(T("t", d(8), f32, math.MaxInt64-31)), `tensor "t": needs`)
	add("offset at the end", tensors(T("t", d(8), f32, 4096)), `tensor "t": needs`)
	add("empty at the end", tensors(T("t", d(0), f32, 4096)), "")
	add("empty beyond the end", tensors(T("t", d(0), f32, 4128)), `tensor "t": needs`)
	add("all of the data", tensors(T("t", d(1024), f32, 0)), "")
	add("larger than the data", tensors(T("t", d(1025), f32, 0)), `tensor "t": needs 4100 bytes`)
	add("no data", H(3, 1, 0)+T("t", d(8), f32, 0), `tensor "t": needs 32 bytes`)
	add("no data, no padding, empty tensor", H(3, 1, 0)+T("t", d(0), f32, 0), "")
	add("no data, no padding, empty tensor of two dims", H(3, 1, 0)+T("a", d(0, 5), f32, 0), "")
	add("empty tensor behind one without padding", pad(H(3, 2, 0)+T("a", d(3), f32, 0)+T("e", d(0), f32, 32), 32)+zeros(12), "")
	add("empty tensor farther behind", pad(H(3, 2, 0)+T("a", d(3), f32, 0)+T("e", d(0), f32, 64), 32)+zeros(12), `tensor "e": needs 0 bytes at offset 64`)
	add("empty tensor at 2^63-32", tensors(T("t", d(0), f32, math.MaxInt64-31)), `tensor "t": needs`)
	add("last tensor without padding", pad(H(3, 2, 0)+T("a", d(8), f32, 0)+T("b", d(1), f32, 32), 32)+zeros(36), "")
	add("last tensor a byte short", pad(H(3, 2, 0)+T("a", d(8), f32, 0)+T("b", d(1), f32, 32), 32)+zeros(35), `tensor "b": needs 4 bytes`)
	add("data starts aligned", H(3, 1, 1)+KV("general.alignment", Uint32, num(uint32(1)))+T("t", d(3), 24, 0)+"\x01\x02\x03", "")
	add("more tensors than entries", tensors()[:24-16]+num(uint64(200))+num(uint64(0))+zeros(4096), "holds at most")
	add("directory cut short", H(3, 1, 0)+T("t", d(8, 8, 8), f32, 0)[:24], "truncated")
	return files
}

// TestFileCases checks that each file is accepted or refused as stated, at once, without allocating
// the amount that a count or a length in the file claims.
func TestFileCases(t *testing.T) {
	for _, f := range fileCases() {
		t.Run(f.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := Parse("name.gguf", slices.Clip([]byte(f.data))) // no capacity beyond the data, as in a mapped file
			runtime.ReadMemStats(&after)
			// Take the best of three, since the time includes garbage collection.
			took := time.Hour
			for range 3 {
				start := testenv.ProcessorTime()
				Parse("name.gguf", []byte(f.data))
				took = min(took, testenv.ProcessorTime()-start)
			}
			if took > 50*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("allocated %d bytes for a file of %d", used, len(f.data))
			}
			if f.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				useAll(t, got)
				return
			}
			if err == nil {
				t.Fatalf("accepted, want an error with %q", f.want)
			}
			if s := err.Error(); !strings.HasPrefix(s, "name.gguf: ") || !strings.Contains(s, f.want) || !printable(s) {
				t.Errorf("error is %q, want one printable line that starts with the file and has %q", s, f.want)
			}
		})
	}
}

// TestHugeCounts opens files with a wrong number of entries that would fit in the file's bytes. Memory for that
// number must not be allocated, however large the file is.
func TestHugeCounts(t *testing.T) {
	data := make([]byte, 256<<20)
	for _, h := range []string{
		H(3, 0, uint64(len(data)-24)/minKeyValue),
		H(3, uint64(len(data)-24)/minTensor, 0),
	} {
		copy(data, h)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("name.gguf", data)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("% x: accepted", h)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("% x: allocated %d bytes before it found that %v", h, used, err)
		}
	}
}

// TestManyEntries opens a file with so many keys and tensors that quadratic time would be
// minutes.
func TestManyEntries(t *testing.T) {
	const n = 200_000
	var pairs, tensors strings.Builder
	for i := range n {
		pairs.WriteString(KV(fmt.Sprint("k", i), Uint8, "x"))
		tensors.WriteString(T(fmt.Sprint("t", i), []uint64{1}, 24, uint64(n-1-i)*32))
	}
	data := pad(H(3, n, n)+pairs.String()+tensors.String(), 32)
	start := testenv.ProcessorTime()
	f, err := Parse("name.gguf", []byte(data+strings.Repeat("\x00", 32*n)))
	if err != nil {
		t.Fatal(err)
	}
	if took := testenv.ProcessorTime() - start; took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if len(f.Keys()) != n || len(f.Tensors()) != n {
		t.Errorf("%d keys, %d tensors, want %d of each", len(f.Keys()), len(f.Tensors()), n)
	}
	if x, ok := f.Tensor(fmt.Sprint("t", n-1)); !ok || x.Offset != int64(len(data)) {
		t.Errorf("the last tensor is %+v, want it first in the data, at %d", x, len(data))
	}
}

// TestOneRecover checks that only the guard for truncated mapped files recovers from panics. A
// recover elsewhere would hide faults that the checks overlook.
func TestOneRecover(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.go", "mapped/*.go", "safetensors/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var with []string
	for _, name := range files {
		if text, err := os.ReadFile(name); err != nil {
			t.Error(err)
		} else if !strings.HasSuffix(name, "_test.go") && strings.Contains(string(text), "recover()") {
			with = append(with, name)
		}
	}
	if !slices.Equal(with, []string{filepath.Join("mapped", "guard.go")}) {
		t.Errorf("%v recover, expected mapped/guard.go alone", with)
	}
}
