package cuda

import "encoding/json"

// A Counting is a device that counts what its kernels do, as the virtual one does, which has no time
// to tell.
type Counting interface {
	// Counters returns what was counted since the device was opened, by the kernels' names. It waits for
	// the streams.
	Counters() []Counts
}

// Counts are what launches of a kernel did.
type Counts struct {
	Kernel       string       `json:"kernel"`
	Launches     int64        `json:"launches"`
	Instructions Instructions `json:"instructions"` // of warps
	Threads      int64        `json:"threads"`      // instructions of threads
	Flops        int64        `json:"flops"`        // operations on floats outside of tensor cores: an FMA is two
	DotOps       int64        `json:"dot_ops"`      // of dp4a: eight each
	TensorInts   int64        `json:"tensor_ints"`  // of mma on integers: two for each product
	TensorFloats int64        `json:"tensor_floats"`
	Global       Traffic      `json:"global"`
	Shared       Traffic      `json:"shared"`
	Local        Traffic      `json:"local"`
	Constant     Traffic      `json:"constant"` // parameters of kernels, which GPUs keep in constant memory
	Fetched      int64        `json:"fetched"`  // bytes of the sectors that a launch reads, each once: what a cache cannot spare memory
	Stored       int64        `json:"stored"`   // bytes of the sectors that it writes, each once
}

// Instructions are how many of each class.
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
	Move     // from register to register, of which a compiler leaves few
	classes
)

// Classes are the names of the classes.
var Classes = [classes]string{"float", "integer", "dp4a", "tensor", "memory", "convert", "control", "exchange", "move"}

// All returns how many there are.
func (i *Instructions) All() (n int64) {
	for _, c := range i {
		n += c
	}
	return n
}

// Add adds n times what o has.
func (i *Instructions) Add(o *Instructions, n int64) {
	for c := range i {
		i[c] += n * o[c]
	}
}

// MarshalJSON writes them by name.
func (i Instructions) MarshalJSON() ([]byte, error) {
	named := map[string]int64{}
	for c, name := range Classes {
		named[name] = i[c]
	}
	return json.Marshal(named)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (i *Instructions) UnmarshalJSON(text []byte) error {
	var named map[string]int64
	err := json.Unmarshal(text, &named)
	for c, name := range Classes {
		i[c] = named[name]
	}
	return err
}

// Traffic is what instructions accessed in a space of memory.
type Traffic struct {
	Requests int64 `json:"requests"` // instructions of warps
	Read     int64 `json:"read"`     // bytes, of all threads
	Written  int64 `json:"written"`
	// Parts are what requests are cut into: of global memory the sectors of 32 bytes that a request touches,
	// of shared memory its passes over 32 banks, of which each gives 4 bytes in a pass. Least is how few they
	// would be, did the bytes lie side by side.
	Parts int64 `json:"parts"`
	Least int64 `json:"least"`
}

// Add adds n times what o has.
func (t *Traffic) Add(o *Traffic, n int64) {
	t.Requests += n * o.Requests
	t.Read += n * o.Read
	t.Written += n * o.Written
	t.Parts += n * o.Parts
	t.Least += n * o.Least
}

// Cut counts what a request is cut into.
func (t *Traffic) Cut(parts, least int64) {
	t.Parts += parts
	t.Least += least
}

// PerRequest returns how many parts a request is cut into, and how few it could be; 0 where there was none.
func (t *Traffic) PerRequest() (parts, least float64) {
	if t.Requests == 0 {
		return 0, 0
	}
	return float64(t.Parts) / float64(t.Requests), float64(t.Least) / float64(t.Requests)
}

// Add adds n times what o has: −1 takes away what was counted before.
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
