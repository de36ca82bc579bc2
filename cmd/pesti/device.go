package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pesti/exec/backends"
	"pesti/exec/plan"
)

// deviceFlag is the name of the flag whose value is a device.
const deviceFlag = "device"

// A device is the value of a flag that selects where a plan runs: on the processor, or on numbered
// devices of a CUDA driver. The zero value means that the flag is not given.
type device struct {
	word    string // onProcessor, or the name of a driver
	numbers []int  // in the order of the plan's devices, see exec.DeviceOrdinals
}

const onProcessor = "cpu"

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

// first returns the number of the first device.
func (d *device) first() int {
	if len(d.numbers) == 0 {
		return 0
	}
	return d.numbers[0]
}

func (d *device) Type() string { return "cpu|virtual|cuda:N" }

// Set parses "cpu", or a driver's name followed by an optional device number (default 0), or
// several of the latter with commas between them.
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
		if !slices.Contains(backends.Names(), word) {
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

// openDriver returns the driver of a device, or nil for the processor. If this build lacks the
// driver, the process is replaced by a program that has it, and openDriver does not return. The
// virtual driver gets the given number of devices.
func (a *app) openDriver(d device, devices int) (backends.Driver, error) {
	if !d.onDevice() {
		return nil, nil
	}
	if d.word == backends.Virtual && devices > backends.MaxVirtual {
		return nil, usagef("--%s: there is no device virtual:%d, expected a number below %d", deviceFlag, devices-1, backends.MaxVirtual)
	}
	driver, err := backends.Open(d.word, devices)
	if errors.Is(err, backends.ErrNotBuilt) {
		return nil, a.reexec()
	}
	return driver, err
}

// reachDriver opens the driver that a verb will use before the verb reads input or prints, because
// a program that replaces this process has to start from the same state.
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
	_, err := a.openDriver(on, 1)
	return err
}

// firstGPU is the default device for plans for CUDA.
var firstGPU = device{word: "cuda"}

// onDevice reports whether d is a device, not the CPU.
func (d device) onDevice() bool { return d.word != "" && d.word != onProcessor }

// isCUDAPlan reports, from its first lines, whether the file at path is a plan for CUDA devices.
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
	return plan.HeadBackend(head[:n]) == plan.CUDA
}

// setFor returns the best instruction set to compile for that all devices with these numbers have.
func (d device) setFor(driver backends.Driver, numbers []int) (string, error) {
	isa, err := backends.ISA(driver, numbers)
	if err != nil {
		return "", fmt.Errorf("--%s %s: %w", deviceFlag, d.String(), err)
	}
	return isa, nil
}
