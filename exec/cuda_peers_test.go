package exec_test

import (
	"testing"

	"pesti/exec/cuda"
	"pesti/lower"
)

// A hostCounter counts the blocks of host memory that its devices allocate.
type hostCounter struct {
	cuda.Driver
	blocks int
}

func (h *hostCounter) Open(number int) (cuda.Device, error) {
	device, err := h.Driver.Open(number)
	return countedHost{device, h}, err
}

type countedHost struct {
	cuda.Device
	of *hostCounter
}

func (c countedHost) AllocHost(bytes int) ([]byte, error) {
	c.of.blocks++
	return c.Device.AllocHost(bytes)
}

func (c countedHost) EnablePeer(other cuda.Device) error {
	return c.Device.EnablePeer(other.(countedHost).Device)
}

// TestDetourMemory checks that a link through the host allocates one block of host memory, whatever the
// sizes of the programs.
func TestDetourMemory(t *testing.T) {
	o := lower.Options{Ctx: 128, Devices: 2}
	linked := &hostCounter{Driver: several(2)}
	openOn(t, linked, o)
	apart := &hostCounter{Driver: several(2)}
	e := openOn(t, islands{apart}, o)
	if links := len(e.HostStagedPairs()); links == 0 || apart.blocks != linked.blocks+links {
		t.Errorf("%d blocks for %d links, and %d without", apart.blocks, links, linked.blocks)
	}
}
