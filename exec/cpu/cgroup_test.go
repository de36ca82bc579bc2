package cpu

import (
	"testing"
	"testing/fstest"
)

func TestControlGroups(t *testing.T) {
	const gib = 1 << 30
	machine := RAM{16 * gib, 12 * gib}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  RAM
	}{
		{"none", nil, machine},
		{"version 2", map[string]string{
			"proc/self/cgroup":               "0::/a\n",
			"sys/fs/cgroup/a/memory.max":     "4294967296\n",
			"sys/fs/cgroup/a/memory.current": "1073741824\n",
		}, RAM{4 * gib, 3 * gib}},
		{"cached files count as available", map[string]string{
			"proc/self/cgroup":               "0::/a\n",
			"sys/fs/cgroup/a/memory.max":     "4294967296\n",
			"sys/fs/cgroup/a/memory.current": "4294967296\n",
			"sys/fs/cgroup/a/memory.stat":    "anon 1073741824\ninactive_file 1073741824\nactive_file 2147483648\nfile 3221225472\n",
		}, RAM{4 * gib, 3 * gib}},
		{"no limit", map[string]string{
			"proc/self/cgroup":               "0::/a\n",
			"sys/fs/cgroup/a/memory.max":     "max\n",
			"sys/fs/cgroup/a/memory.current": "1073741824\n",
		}, machine},
		{"limit of the parent group", map[string]string{
			"proc/self/cgroup":                 "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":     "8589934592\n",
			"sys/fs/cgroup/a/b/memory.current": "0\n",
			"sys/fs/cgroup/a/memory.max":       "2147483648\n",
			"sys/fs/cgroup/a/memory.current":   "1073741824\n",
		}, RAM{2 * gib, gib}},
		{"in a container", map[string]string{
			"proc/self/cgroup":             "0::/elsewhere\n",
			"sys/fs/cgroup/memory.max":     "1073741824\n",
			"sys/fs/cgroup/memory.current": "2147483648\n",
		}, RAM{gib, 0}},
		{"less is available on the machine than in the group", map[string]string{
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.max":     "15032385536\n",
			"sys/fs/cgroup/memory.current": "0\n",
		}, RAM{14 * gib, 12 * gib}},
		{"version 1", map[string]string{
			"proc/self/cgroup": "11:cpu,cpuacct:/c\n7:memory:/c\n",
			"sys/fs/cgroup/memory/c/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/c/memory.usage_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/c/memory.stat":           "total_inactive_file 1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":   "5\n",
		}, RAM{2 * gib, gib}},
		{"not a number", map[string]string{
			"proc/self/cgroup":             "0::/\nx\n1:2\n",
			"sys/fs/cgroup/memory.max":     "-1\n",
			"sys/fs/cgroup/memory.current": "y\n",
		}, machine},
	} {
		system := fstest.MapFS{}
		for name, text := range c.files {
			system[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := within(machine, system); got != c.want {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}
