package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
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

// reachDriver opens the driver that a verb will use, before it reads its input or prints: another
// program that takes this one's place must find all as this one did.
func (a *app) reachDriver(cmd *cobra.Command, args []string) error {
	f := cmd.Flags().Lookup(deviceFlag)
	if f == nil {
		return nil
	}
	given, ok := f.Value.(*device)
	if !ok {
		return nil
	}
	on := *given
	if !f.Changed {
		for _, name := range args {
			if isCUDAPlan(name) {
				on = firstGPU
			}
		}
		if t := cmd.Flags().Lookup("target"); t != nil && t.Value.String() == plan.CUDA {
			on = firstGPU
		}
	}
	_, err := a.openDriver(cmd.Context(), on)
	return err
}

// firstGPU is where plans for CUDA devices run unless something else is said.
var firstGPU = device{word: "cuda"}

// onDevice reports whether d is a device and not the processor.
func (d device) onDevice() bool { return d.word != "" && d.word != onProcessor }

// isCUDAPlan tells whether the file at path is a plan for CUDA devices, by its first lines.
func isCUDAPlan(path string) bool {
	if !isPlan(path) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	for line := range strings.Lines(string(head[:n])) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "target" {
			return words[1] == plan.CUDA
		}
	}
	return false
}

// setFor returns the instruction set to compile for where a device is to run it: the best of those with
// kernels that it and its driver have.
func (d device) setFor(driver cuda.Driver) (string, error) {
	found, err := driver.Devices()
	if err != nil {
		return "", fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	if d.number >= len(found) {
		return "", fmt.Errorf("--%s %s: there is no such device, expected a number below %d", deviceFlag, d.String(), len(found))
	}
	set, err := kernels.For(driver.Version(), found[d.number].Major, found[d.number].Minor)
	if err != nil {
		return "", fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	return set.ISA, nil
}

func (a *app) virtualDriver(ctx context.Context) (cuda.Driver, error) {
	driver := virtual.New(virtual.Config{})
	context.AfterFunc(ctx, driver.Interrupt)
	return driver, nil
}
