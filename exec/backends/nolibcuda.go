//go:build !libcuda

package backends

func openCUDA() (Driver, error) { return nil, ErrNotBuilt }
