package exec

// PackedWeight returns a weight in the layout that products read, nil where they read the file.
func (e *Engine) PackedWeight(name string) []byte {
	for i := range e.packings {
		if p := &e.packings[i]; p.name == name {
			return p.dst
		}
	}
	return nil
}
