//go:build libcuda

package main

import (
	"context"
	"fmt"
	"io"

	"pesti/exec/cuda"
	"pesti/exec/cuda/driver"
	"pesti/exec/plan"
)

// cudaDriver returns the driver that this build has in it.
func (a *app) cudaDriver(context.Context, int) (cuda.Driver, error) { return driver.New(), nil }

// infoCUDA prints the rows of info's table about CUDA, one for each device.
func (a *app) infoCUDA(_ context.Context, w io.Writer) error {
	d := driver.New()
	found, err := d.Devices()
	if err != nil {
		return err
	}
	version := d.Version()
	for i, p := range found {
		if _, err := fmt.Fprintf(w, "cuda\t%d: %s, sm_%d%d, %s of memory, driver for CUDA %d.%d\n", i, p.Name,
			p.Major, p.Minor, plan.HumanBytes(p.Memory), version/1000, version%1000/10); err != nil {
			return err
		}
	}
	return nil
}
