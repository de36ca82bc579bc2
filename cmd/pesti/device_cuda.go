//go:build libcuda

package main

import (
	"context"
	"io"

	"pesti/exec/cuda"
	"pesti/exec/cuda/driver"
)

// cudaDriver returns the driver that this build has in it.
func (a *app) cudaDriver(context.Context) (cuda.Driver, error) { return driver.New(), nil }

// infoCUDA prints the rows of info's table about CUDA.
func (a *app) infoCUDA(_ context.Context, w io.Writer) error { return printDevices(w, driver.New()) }
