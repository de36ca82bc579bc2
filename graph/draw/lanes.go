package draw

import (
	"fmt"

	"pesti/exec/plan"
)

// lanes puts a frame around the boxes of each device, if there are several devices.
func (p *picture) lanes(name func(device int) string) {
	most := 0
	for i := range p.boxes {
		most = max(most, p.boxes[i].device)
	}
	if most == 0 {
		return
	}
	var lanes []cluster
	for d := range most + 1 {
		if inner := p.on(d, p.groups); len(inner) > 0 {
			lanes = append(lanes, cluster{label: name(d), inner: inner})
		}
	}
	p.groups = lanes
}

// on returns the clusters with only the boxes of one device.
func (p *picture) on(device int, list []cluster) []cluster {
	var some []cluster
	for _, c := range list {
		part := cluster{label: c.label, inner: p.on(device, c.inner)}
		for _, b := range c.boxes {
			if p.boxes[b].device == device {
				part.boxes = append(part.boxes, b)
			}
		}
		if len(part.boxes)+len(part.inner) > 0 {
			some = append(some, part)
		}
	}
	return some
}

func laneOf(device int) string { return fmt.Sprintf("device %d", device) }

// laneIn returns the labels of a plan's devices, which include what each device is.
func laneIn(p *plan.Plan) func(int) string {
	return func(device int) string {
		d := p.Device(device)
		return fmt.Sprintf("%s: %s %s · weights %s · %s %s · arena %s", laneOf(device), d.Backend, d.ISA,
			plan.HumanBytes(d.Memory.Weight), cacheName, plan.HumanBytes(d.Memory.State), plan.HumanBytes(d.Memory.Arena))
	}
}
