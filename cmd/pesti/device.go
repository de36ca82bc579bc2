package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
)

// deviceFlag is the name of the flag whose value is a device.
const deviceFlag = "device"

// A device is the value of a flag that says where a plan runs: on the processor, or on a numbered
// device of a CUDA driver. The zero value says nothing.
type device struct {
	word   string // onProcessor or that of a driver
	number int
}

const onProcessor = "cpu"

// drivers are those of CUDA by the word that a device begins with.
var drivers = []struct {
	word string
	open func(*app, context.Context) (cuda.Driver, error)
}{
	{"virtual", (*app).virtualDriver},
	{"cuda", (*app).cudaDriver},
}

func (d *device) String() string {
	if d.number == 0 && d.word != "cuda" {
		return d.word
	}
	return fmt.Sprintf("%s:%d", d.word, d.number)
}

func (d *device) Type() string { return "cpu|virtual|cuda:N" }

// Set takes a word, and behind that of a driver the number of a device, which is 0 where it is left out.
func (d *device) Set(s string) error {
	word, digits, numbered := strings.Cut(strings.ToLower(s), ":")
	known := word == onProcessor && !numbered
	for _, driver := range drivers {
		known = known || driver.word == word
	}
	number, err := 0, error(nil)
	if numbered {
		number, err = strconv.Atoi(digits)
	}
	if !known || err != nil || number < 0 {
		return fmt.Errorf("expected %s", strings.ReplaceAll(d.Type(), "|", ", "))
	}
	*d = device{word, number}
	return nil
}

// openDriver returns the driver of a device, and nil for the processor, which needs none. Where the
// driver is in another program, that takes this one's place, and openDriver does not return. The end
// of ctx interrupts kernels of the virtual device, which may run for minutes.
func (a *app) openDriver(ctx context.Context, d device) (cuda.Driver, error) {
	for _, driver := range drivers {
		if driver.word == d.word {
			return driver.open(a, ctx)
		}
	}
	return nil, nil
}

// openDevice opens a device, to be closed by the caller; nil is the processor.
func (a *app) openDevice(ctx context.Context, d device) (cuda.Device, error) {
	driver, err := a.openDriver(ctx, d)
	if driver == nil || err != nil {
		return nil, err
	}
	opened, err := driver.Open(d.number)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	return opened, nil
}

// reachDriver opens the driver that a flag asks for, before a verb reads its input or prints: another
// program that takes this one's place must find all as this one did.
func (a *app) reachDriver(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup(deviceFlag)
	if f == nil || !f.Changed {
		return nil
	}
	d, ok := f.Value.(*device)
	if !ok {
		return nil
	}
	_, err := a.openDriver(cmd.Context(), *d)
	return err
}

func (a *app) virtualDriver(ctx context.Context) (cuda.Driver, error) {
	driver := virtual.New(virtual.Config{})
	context.AfterFunc(ctx, driver.Interrupt)
	return driver, nil
}
