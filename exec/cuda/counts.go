package cuda

import "encoding/json"

// Counting is implemented by devices that count the work of kernels instead of measuring time, such as
// the virtual device.
type Counting interface {
	// Counters returns the counts since the device was opened, one entry per kernel, sorted by name. It
	// waits for the streams.
	Counters() []Counts
}

// Counts is the work done by the launches of a kernel.
type Counts struct {
	Kernel       string       `json:"kernel"`
	Launches     int64        `json:"launches"`
	Instructions Instructions `json:"instructions"` // warp instructions
	Threads      int64        `json:"threads"`      // thread instructions
	Flops        int64        `json:"flops"`        // float operations outside of tensor cores; an FMA counts as two
	DotOps       int64        `json:"dot_ops"`      // operations of dp4a, eight for each
	TensorInts   int64        `json:"tensor_ints"`  // operations of integer mma, two for each product
	TensorFloats int64        `json:"tensor_floats"`
	Global       Traffic      `json:"global"`
	Shared       Traffic      `json:"shared"`
	Local        Traffic      `json:"local"`
	Constant     Traffic      `json:"constant"` // kernel parameters, which GPUs keep in constant memory
	Fetched      int64        `json:"fetched"`  // bytes of the distinct sectors that a launch reads: DRAM traffic with a perfect cache
	Stored       int64        `json:"stored"`   // bytes of the distinct sectors that a launch writes
}

// Instructions has the number of instructions of each class.
type Instructions [classes]int64

// A Class of instructions.
type Class int

const (
	Float   Class = iota // arithmetic of floats
	Integer              // arithmetic of integers, logic, comparisons, selections
	Dot                  // dp4a
	Tensor               // mma
	Memory               // loads, stores, copies and atomics
	Convert
	Control  // branches, barriers, exits
	Exchange // between lanes
	Move     // between registers; ptxas removes most of these
	classes
)

// Classes are the names of the classes.
var Classes = [classes]string{"float", "integer", "dp4a", "tensor", "memory", "convert", "control", "exchange", "move"}

// All returns the number of instructions of all classes.
func (i *Instructions) All() (n int64) {
	for _, c := range i {
		n += c
	}
	return n
}

// Add adds n times o.
func (i *Instructions) Add(o *Instructions, n int64) {
	for c := range i {
		i[c] += n * o[c]
	}
}

// MarshalJSON writes an object with the names of the classes as keys.
func (i Instructions) MarshalJSON() ([]byte, error) {
	named := map[string]int64{}
	for c, name := range Classes {
		named[name] = i[c]
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads the object that MarshalJSON writes.
func (i *Instructions) UnmarshalJSON(text []byte) error {
	var named map[string]int64
	err := json.Unmarshal(text, &named)
	for c, name := range Classes {
		i[c] = named[name]
	}
	return err
}

// Traffic is the accesses of instructions to one memory space.
type Traffic struct {
	Requests int64 `json:"requests"` // warp instructions
	Read     int64 `json:"read"`     // bytes, summed over threads
	Written  int64 `json:"written"`
	// Parts is the number of transactions: for global memory, the sectors of 32 bytes that a request
	// touches; for shared memory, the passes over 32 banks of 4 bytes (one if there are no bank
	// conflicts). Least is the number of transactions if the same bytes were contiguous.
	Parts int64 `json:"parts"`
	Least int64 `json:"least"`
}

// Add adds n times o.
func (t *Traffic) Add(o *Traffic, n int64) {
	t.Requests += n * o.Requests
	t.Read += n * o.Read
	t.Written += n * o.Written
	t.Parts += n * o.Parts
	t.Least += n * o.Least
}

// Cut counts the transactions of a request.
func (t *Traffic) Cut(parts, least int64) {
	t.Parts += parts
	t.Least += least
}

// PerRequest returns the average number of transactions per request and the least possible one, or zeros
// if there were no requests.
func (t *Traffic) PerRequest() (parts, least float64) {
	if t.Requests == 0 {
		return 0, 0
	}
	return float64(t.Parts) / float64(t.Requests), float64(t.Least) / float64(t.Requests)
}

// Add adds n times o. n = −1 subtracts.
func (c *Counts) Add(o *Counts, n int64) {
	c.Launches += n * o.Launches
	c.Instructions.Add(&o.Instructions, n)
	c.Threads += n * o.Threads
	c.Flops += n * o.Flops
	c.DotOps += n * o.DotOps
	c.TensorInts += n * o.TensorInts
	c.TensorFloats += n * o.TensorFloats
	c.Global.Add(&o.Global, n)
	c.Shared.Add(&o.Shared, n)
	c.Local.Add(&o.Local, n)
	c.Constant.Add(&o.Constant, n)
	c.Fetched += n * o.Fetched
	c.Stored += n * o.Stored
}
