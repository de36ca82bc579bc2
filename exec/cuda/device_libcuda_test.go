//go:build libcuda

package cuda_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/driver"
)

// realDriver returns the driver of the machine and the number of a device if PESTI_DEVICE is cuda:N.
func realDriver(t *testing.T) (cuda.Driver, int) {
	t.Helper()
	name := os.Getenv("PESTI_DEVICE")
	if name == "" || name == "virtual" {
		return nil, 0
	}
	digits, ok := strings.CutPrefix(name, "cuda:")
	number, err := strconv.Atoi(digits)
	if !ok || err != nil {
		t.Fatalf("PESTI_DEVICE is %s, expected virtual or cuda:N", name)
	}
	return driver.New(), number
}
