package kernel

// bindEmbed copies each token's row of the embedding table. The caller must reject ids outside the
// table; here they leave the row unchanged.
func bindEmbed(b *binder) Func {
	table := b.weight("table")
	tokens, y, n, split, rows := b.i32("tokens"), b.f32("y"), b.int("n"), b.split(), b.rows()
	vocab, scale := int32(b.int("vocab")), float32(b.float("scale"))
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			id := tokens[m]
			if id < 0 || id >= vocab {
				continue
			}
			row := y[m*n : (m+1)*n]
			table.gather(row, m, int(id))
			if scale != 1 {
				for i := range row {
					row[i] *= scale
				}
			}
		}
	}
}

// bindSelect copies the rows that the input "rows" names.
func bindSelect(b *binder) Func {
	x, rows, y, n, split := b.f32("x"), b.i32("rows"), b.f32("y"), b.int("n"), b.split()
	return func(r *Run) {
		lo, hi := split.of(r.R)
		for m := lo; m < hi; m++ {
			from := int(rows[m])
			if from < 0 || from >= r.T {
				continue
			}
			copy(y[m*n:(m+1)*n], x[from*n:(from+1)*n])
		}
	}
}

// bindCopy copies a value to an output buffer.
func bindCopy(b *binder) Func {
	x, y, n, split, rows := b.f32("x"), b.f32("y"), b.int("n"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		copy(y[lo*n:hi*n], x[lo*n:hi*n])
	}
}
