package cpu

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A controller is a version of control groups: where its groups are, and what their files are called
// (docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html). What is cached of files counts as used,
// but is given back when memory is wanted.
type controller struct {
	name, root string // the name is that in /proc/self/cgroup
	limit, use string
	cached     []string // keys of memory.stat
}

var controllers = []controller{
	{"", "sys/fs/cgroup", "memory.max", "memory.current", []string{"inactive_file", "active_file"}},
	{"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}},
}

// within returns what is left of a RAM to this process by the limits of its control groups and of those that
// they are part of.
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

// within returns what is left of a RAM by the limit of one group. In a container the group of /proc/self/cgroup
// may not be there, but is then the root.
func (c *controller) within(ram RAM, system fs.FS, group string) RAM {
	read := func(name string) string {
		text, _ := fs.ReadFile(system, path.Join(group, name))
		return strings.TrimSpace(string(text))
	}
	limit, err := strconv.ParseInt(read(c.limit), 10, 64) // "max" is none
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
