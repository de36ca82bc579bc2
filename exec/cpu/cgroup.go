package cpu

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A controller describes a version of control groups: the location and the file names of its groups
// (docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html). The kernel counts cached files
// as used memory; they are reclaimed when memory is needed.
type controller struct {
	name, root string // the name is that in /proc/self/cgroup
	limit, use string
	cached     []string // keys of memory.stat
}

var controllers = []controller{
	{"", "sys/fs/cgroup", "memory.max", "memory.current", []string{"inactive_file", "active_file"}},
	{"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}},
}

// within reduces a RAM to the limits of this process's control groups and all their parents.
func within(ram RAM, system fs.FS) RAM {
	groups, _ := fs.ReadFile(system, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, group
		if len(f) != 3 {
			continue
		}
		for _, c := range controllers {
			if !strings.Contains(","+f[1]+",", ","+c.name+",") {
				continue
			}
			for group := path.Join("/", f[2]); ; group = path.Dir(group) {
				ram = c.within(ram, system, path.Join(c.root, group))
				if group == "/" {
					break
				}
			}
		}
	}
	return ram
}

// within reduces a RAM to the limit of one group. In a container, the group of /proc/self/cgroup may not be
// visible; it is then the root group.
func (c *controller) within(ram RAM, system fs.FS, group string) RAM {
	read := func(name string) string {
		text, _ := fs.ReadFile(system, path.Join(group, name))
		return strings.TrimSpace(string(text))
	}
	limit, err := strconv.ParseInt(read(c.limit), 10, 64) // "max" means no limit
	if err != nil || limit < 0 || limit >= ram.Total {
		return ram
	}
	use, err := strconv.ParseInt(read(c.use), 10, 64)
	if err != nil {
		return ram
	}
	for line := range strings.Lines(read("memory.stat")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, cached := range c.cached {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && key == cached {
				use -= n
			}
		}
	}
	return RAM{limit, min(ram.Available, max(limit-max(use, 0), 0))}
}
