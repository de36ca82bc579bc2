package sample

// window holds the ids of the most recent tokens. The zero window is empty and has no room.
type window struct {
	ids  []int32
	next int // index of the oldest token, once the window is full
}

func newWindow(size int) window { return window{ids: make([]int32, 0, size)} }

func (w *window) add(id int32) {
	switch {
	case len(w.ids) < cap(w.ids):
		w.ids = append(w.ids, id)
	case len(w.ids) > 0:
		w.ids[w.next] = id
		w.next = (w.next + 1) % len(w.ids)
	}
}
