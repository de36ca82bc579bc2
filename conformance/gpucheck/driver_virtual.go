//go:build !libcuda

package main

import (
	"fmt"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

func openDriver(word string) (cuda.Driver, error) {
	if word != "virtual" {
		return nil, fmt.Errorf("-device %s: this build has no driver but the virtual one; build it with -tags libcuda", word)
	}
	return virtual.New(virtual.Config{}), nil
}
