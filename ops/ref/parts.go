package ref

// Sum adds the elements of xs, in order. All have the length of dst.
func Sum(dst []float32, xs ...[]float32) {
	for i := range dst {
		sum := 0.0
		for _, x := range xs {
			sum += float64(x[i])
		}
		dst[i] = float32(sum)
	}
}

// GetPart is GetRows for a part of a table that begins at row first. Rows outside the part are
// zeros.
func GetPart(dst, table []float32, ids []int32, n, first int, scale float64) {
	for i, id := range ids {
		row := dst[i*n : (i+1)*n]
		at := (int(id) - first) * n
		if at < 0 || at+n > len(table) {
			clear(row)
			continue
		}
		Scale(row, table[at:at+n], scale)
	}
}

// Concat concatenates rows: row m of dst is row m of each of xs, in order. widths are their row
// lengths. dst must not overlap an operand.
func Concat(dst []float32, widths []int, xs ...[]float32) {
	width, at := 0, 0
	for _, n := range widths {
		width += n
	}
	for i, x := range xs {
		for m := 0; m*widths[i] < len(x); m++ {
			copy(dst[m*width+at:][:widths[i]], x[m*widths[i]:])
		}
		at += widths[i]
	}
}

// Columns returns elements [from, to) of each row of n elements of x.
func Columns(x []float32, n, from, to int) []float32 {
	var y []float32
	for at := 0; at+n <= len(x); at += n {
		y = append(y, x[at+from:at+to]...)
	}
	return y
}
