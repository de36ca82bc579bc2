package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
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

// A device is the value of a flag that says where a plan runs: on the processor, or on numbered
// devices of a CUDA driver. The zero value says nothing.
type device struct {
	word    string // onProcessor or that of a driver
	numbers []int  // in the order of the plan's devices, see exec.DeviceNumbers
}

const onProcessor = "cpu"

// A driverSource opens the CUDA driver whose devices have names that begin with a word.
type driverSource struct {
	word string
	open func(a *app, ctx context.Context, devices int) (cuda.Driver, error)
}

var drivers = []driverSource{
	{"virtual", (*app).virtualDriver},
	{"cuda", (*app).cudaDriver},
}

func (d *device) String() string {
	if len(d.numbers) < 2 && d.first() == 0 && d.word != "cuda" {
		return d.word
	}
	var names []string
	for _, n := range d.numbers {
		names = append(names, fmt.Sprintf("%s:%d", d.word, n))
	}
	return cmp.Or(strings.Join(names, ","), d.word+":0")
}

// first is the number of the first device.
func (d *device) first() int {
	if len(d.numbers) == 0 {
		return 0
	}
	return d.numbers[0]
}

func (d *device) Type() string { return "cpu|virtual|cuda:N" }

// Set takes a word, and behind that of a driver the number of a device, which is 0 where it is left out; or
// several of those with commas between them.
func (d *device) Set(s string) error {
	wrong := fmt.Errorf("expected %s", strings.ReplaceAll(d.Type(), "|", ", "))
	var set device
	for name := range strings.SplitSeq(strings.ToLower(s), ",") {
		word, digits, numbered := strings.Cut(name, ":")
		if set.word != "" && (word != set.word || word == onProcessor) {
			return wrong
		}
		set.word = word
		if word == onProcessor && !numbered {
			continue
		}
		if !slices.ContainsFunc(drivers, func(o driverSource) bool { return o.word == word }) {
			return wrong
		}
		number, err := 0, error(nil)
		if numbered {
			number, err = strconv.Atoi(digits)
		}
		if err != nil || number < 0 || slices.Contains(set.numbers, number) {
			return wrong
		}
		set.numbers = append(set.numbers, number)
	}
	*d = set
	return nil
}

// openDriver returns the driver of a device, and nil for the processor, which needs none. Where the
// driver is in another program, that takes this one's place, and openDriver does not return. The end
// of ctx interrupts kernels of the virtual device, which may run for minutes, and of which there are as
// many as devices says.
func (a *app) openDriver(ctx context.Context, d device, devices int) (cuda.Driver, error) {
	for _, driver := range drivers {
		if driver.word == d.word {
			return driver.open(a, ctx, devices)
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
	_, err := a.openDriver(cmd.Context(), on, 1)
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

// setFor returns the instruction set to compile for where devices with numbers are to run it: the best of those
// with kernels that the least of them and the driver have.
func (d device) setFor(driver cuda.Driver, numbers []int) (string, error) {
	found, err := driver.Devices()
	if err != nil {
		return "", fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	var on []cuda.Properties
	for _, n := range numbers {
		if n >= len(found) {
			return "", fmt.Errorf("--%s %s: there is no device %d, expected a number below %d", deviceFlag, d.String(), n, len(found))
		}
		on = append(on, found[n])
	}
	least := slices.MinFunc(on, func(a, b cuda.Properties) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	set, err := kernels.For(driver.Version(), least.Major, least.Minor)
	if err != nil {
		return "", fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	return set.ISA, nil
}

// virtualMost is how many virtual devices there may be.
const virtualMost = 64

func (a *app) virtualDriver(ctx context.Context, devices int) (cuda.Driver, error) {
	if devices > virtualMost {
		return nil, usagef("--%s: there is no virtual:%d, expected a number below %d", deviceFlag, devices-1, virtualMost)
	}
	driver := virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, devices)})
	context.AfterFunc(ctx, driver.Interrupt)
	return driver, nil
}
