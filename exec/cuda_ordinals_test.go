package exec_test

import (
	"slices"
	"testing"

	"pesti/exec"
)

// TestDeviceOrdinals checks that missing ordinals follow the last one and skip the given ones.
func TestDeviceOrdinals(t *testing.T) {
	for _, c := range []struct {
		given, want []int
	}{
		{nil, []int{0, 1, 2}}, {[]int{1}, []int{1, 2, 3}}, {[]int{1, 0}, []int{1, 0, 2}}, {[]int{2, 1}, []int{2, 1, 3}},
		{[]int{5, 6, 4}, []int{5, 6, 4}}, {[]int{3, 2, 1, 0}, []int{3, 2, 1}},
	} {
		if got := exec.DeviceOrdinals(c.given, 3); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, expected %v", c.given, got, c.want)
		}
	}
}
