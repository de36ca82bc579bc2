//go:build libcuda

package backends

import "pesti/exec/cuda/driver"

func openCUDA() (Driver, error) { return driver.New(), nil }
