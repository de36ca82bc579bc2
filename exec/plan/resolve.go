package plan

import "path/filepath"

// ResolveFile returns the path of a file that the plan at planPath names: plans name files relative to their
// own folder, with slashes.
func ResolveFile(planPath, file string) string {
	name := filepath.FromSlash(file)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(planPath), name)
	}
	return name
}
