//go:build libcuda

package main

import (
	"fmt"

	"pesti/exec/cuda"
	"pesti/exec/cuda/driver"
	"pesti/exec/cuda/virtual"
)

func openDriver(word string) (cuda.Driver, error) {
	switch word {
	case "cuda":
		return driver.New(), nil
	case "virtual":
		return virtual.New(virtual.Config{}), nil
	}
	return nil, fmt.Errorf("-device %s: expected virtual or cuda:N", word)
}
