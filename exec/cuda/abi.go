package cuda

import (
	"encoding/binary"
	"fmt"

	"pesti/exec/plan"
)

// The parameters of the kernels. Each kernel takes one struct by value. The structs here are the only
// definition: a test (TestHeader -update) generates abi.cuh, which the kernels include, from them.
// Fields have fixed widths and padding is explicit, so that encoding/binary writes the memory layout
// of the C struct. A tag gives the C type of a pointer.

// A Weight is a matrix in layout soa, see layout.go.
type Weight struct {
	Data   Ptr    `cuda:"const unsigned char*"`
	Scales Ptr    `cuda:"const float*"` // [Rows], a factor for each row, or 0
	Type   uint32 // Code of the type's row in Layouts
	Rows   uint32
}

// An Operand is one weight of a product with its bias, or 0, and its output, float32 [M, Rows].
type Operand struct {
	Weight Weight
	Bias   Ptr `cuda:"const float*"`
	Out    Ptr `cuda:"float*"`
}

// Embed is y[m] = scale · table[tokens[m] − First]: float32 [M, N]. If Taken is not 0, a negative token t
// stands for Taken[−1−t]. A token outside the table gives zeros.
type Embed struct {
	Tokens Ptr `cuda:"const int*"`
	Taken  Ptr `cuda:"const int*"`
	Y      Ptr `cuda:"float*"`
	Table  Weight
	Scale  float32
	N, M   uint32
	First  uint32
}

// A Product is out_i[m] = w_i · x[m] + bias_i for up to three weights; a weight without rows is absent.
// The residual, if any, is added to out_0. With an activation the product is
// out_0[m] = act(w_0 · x[m]) ⊙ (w_1 · x[m]) instead. If Norm is not 0, RMSNorm is applied to x first.
type Product struct {
	X        Ptr `cuda:"const void*"`  // float32 [M, K]; for Tiles in precision fast q8x2, see Norm
	Norm     Ptr `cuda:"const float*"` // float32 [K]
	Residual Ptr `cuda:"const float*"` // float32 [M, Rows of 0]
	Ops      [3]Operand
	K, M     uint32
	Part     uint32 // rows of a weight that one block computes, set by Call
	Act      uint32 // an Activation
	Eps      float32
	_        uint32
}

// An Activation is the number of the activation function of a gated product.
type Activation = uint32

// The activations.
const (
	NoActivation Activation = iota
	SiLU
	GELUTanh
	GELUErf
)

// activations has the activations by their names in plans.
var activations = map[string]Activation{"silu": SiLU, "gelu_tanh": GELUTanh, "gelu_erf": GELUErf}

// ActivationOf returns the number of an activation that a plan names.
func ActivationOf(name string) (Activation, bool) {
	a, ok := activations[name]
	return a, ok
}

// Norm is y[m] = w ⊙ x[m] / rms(x[m]). Without W it is y[m] = x[m], and with Add it is
// y[m] = add[m] + w ⊙ x[m] / rms(x[m]). If Quantized is 1, y is quantized to q8x2. On the device a matrix
// [M, N] in q8x2 consists of four arrays: hi int8[M, N], lo int8[M, N], scale float32[M, N/32] and
// sum int32[M, N/16]. Their elements are those of the row format of the CPU.
type Norm struct {
	X         Ptr `cuda:"const float*"`
	W         Ptr `cuda:"const float*"`
	Add       Ptr `cuda:"const float*"`
	Y         Ptr `cuda:"void*"`
	N, M      uint32
	Quantized uint32
	Eps       float32
}

// Attention has the parameters of attention. Tokens of a sequence are a run of rows at consecutive
// positions. A page of a cache is [kv_head][16][head_dim]. Position p of sequence s is in page
// Pages[s·SeqPages + p/16], or, in a ring, in page s·Positions/16 + (p mod Positions) / 16.
//
// The kernel also writes the step's keys and values to the caches, unless Stored is 1: then StoreKV has
// done so.
type Attention struct {
	Q         Ptr `cuda:"const float*"`  // [M, Heads·HeadDim]
	K         Ptr `cuda:"const float*"`  // [M, KVHeads·HeadDim]
	V         Ptr `cuda:"const float*"`  // [M, KVHeads·HeadDim]
	Pos       Ptr `cuda:"const int*"`    // [M]
	Seq       Ptr `cuda:"const int*"`    // [M]
	Pages     Ptr `cuda:"const int*"`    // [S·SeqPages]
	KCache    Ptr `cuda:"void*"`         // in the format given to Call
	VCache    Ptr `cuda:"void*"`         //
	QNorm     Ptr `cuda:"const float*"`  // [HeadDim] or 0
	KNorm     Ptr `cuda:"const float*"`  // [HeadDim] or 0
	Rope      Ptr `cuda:"const float2*"` // [positions, Rot/2]: cosine and sine of the angle of each pair, times the magnitude; 0 if Rot is 0
	Out       Ptr `cuda:"float*"`        // [M, Heads·HeadDim]
	Work      Ptr `cuda:"float*"`        // AttentionWork bytes
	Arrived   Ptr `cuda:"unsigned*"`     // [M, KVHeads], zero before and after the launch
	Heads     uint32
	KVHeads   uint32
	HeadDim   uint32 // a multiple of 8, at most 256
	Rot       uint32
	Positions uint32 // of a sequence in the cache, a multiple of 16
	Window    uint32 // 0: none
	Ring      uint32 // 1: Pages is not used
	SeqPages  uint32
	Halves    uint32 // 1: RoPE rotates the pairs (i, i + Rot/2), 0: (2i, 2i+1)
	Stored    uint32
	M         uint32
	Splits    uint32 // splits of a row that fit in Work, set by Call
	Scale     float32
	Eps       float32
}

// Select is y[r] = x[rows[r]], or y[r] = x[r] if Rows is 0: float32 [M, N].
type Select struct {
	X    Ptr `cuda:"const float*"`
	Rows Ptr `cuda:"const int*"`
	Y    Ptr `cuda:"float*"`
	N, M uint32
}

// Sum is y = x0 + x1 + x2 + res, added in this order: float32 [N]. All pointers but X0 and Y may be 0.
type Sum struct {
	X0  Ptr `cuda:"const float*"`
	X1  Ptr `cuda:"const float*"`
	X2  Ptr `cuda:"const float*"`
	Res Ptr `cuda:"const float*"`
	Y   Ptr `cuda:"float*"`
	N   uint32
	_   uint32
}

// Concat concatenates rows: y[m] is x0[m], x1[m], x2[m], which are float32 [M, N0], [M, N1] and [M, N2].
// X1 and X2 may be 0.
type Concat struct {
	X0         Ptr `cuda:"const float*"`
	X1         Ptr `cuda:"const float*"`
	X2         Ptr `cuda:"const float*"`
	Y          Ptr `cuda:"float*"`
	N0, N1, N2 uint32
	M          uint32
}

// Top finds the K greatest elements of each row of float32 [M, N], in descending order; equal elements
// are in order of their index. NaN and +Inf come before all others. The id of element i is i, or −1−i if
// the element is not finite.
type Top struct {
	X       Ptr    `cuda:"const float*"`
	Ids     Ptr    `cuda:"int*"`      // [M, K]
	Values  Ptr    `cuda:"float*"`    // [M, K] or 0
	Work    Ptr    `cuda:"int*"`      // [M, parts, K]
	Arrived Ptr    `cuda:"unsigned*"` // [M], zero before and after the launch
	N, M, K uint32 // K is at most N
	_       uint32
}

// A Call is a kernel launch without the kernel's handle.
type Call struct {
	Kernel      string // name in package kernels
	Grid, Block Dim
	Shared      int
	Params      []byte
}

// encode returns the bytes of one of the structs above.
func encode(params any) ([]byte, error) { return binary.Append(nil, binary.LittleEndian, params) }

// call returns a Call with one-dimensional blocks.
func call(kernel string, grid Dim, threads, shared int, params any) (Call, error) {
	bytes, err := encode(params)
	return Call{kernel, grid, Dim{threads, 1, 1}, shared, bytes}, err
}

// Threads of a block. Kernels depend on these numbers.
const (
	productThreads   = 256
	normThreads      = 256
	attentionThreads = 256
	topThreads       = 256
	sumThreads       = 256
)

// Call embeds M tokens.
func (e Embed) Call() (Call, error) {
	return call("embed", Dim{int(e.M), 1, 1}, 128, 0, e)
}

// rowsAtOnce is the number of rows that a block of a product computes at a time. Eight lanes share a row.
const rowsAtOnce = productThreads / 8

// columns has the numbers of columns that product kernels compute at a time, by precision (true: exact).
var columns = map[bool][]int{false: {8, 4, 2, 1}, true: {4, 2, 1}}

// staticShared is an upper bound of the static shared memory of products and attention in bytes. Static
// and dynamic shared memory together must not exceed the limit of a block.
const staticShared = 32

// room returns the largest dynamic shared memory in bytes that a kernel may be launched with.
func (p Properties) room() int { return p.Shared - staticShared }

// Call multiplies few columns (gemv). If exact is true, all arithmetic is float32. Otherwise x is
// quantized to q8x2, and weights must have an integer type.
func (p Product) Call(on Properties, exact bool) (Call, error) {
	kernel, bytes := "gemv", 32+32+4+8 // per block of 32: two planes, a scale, two sums
	if exact {
		kernel, bytes = "gemv_f32", 128
	}
	for _, n := range columns[exact] {
		shared := n * int(p.K) / 32 * bytes
		if n > 1 && (n/2 >= int(p.M) || shared > on.room()) {
			continue
		}
		if shared > on.room() {
			return Call{}, fmt.Errorf("a row of %d elements needs %d bytes of shared memory, expected at most %d, the limit of a block on %s", p.K, shared, on.room(), on.Name)
		}
		blocks, passes := 0, p.passes(on)
		p.Part = uint32(passes * rowsAtOnce)
		for _, o := range p.computed() {
			blocks += (int(o.Weight.Rows) + int(p.Part) - 1) / int(p.Part)
		}
		return call(fmt.Sprintf("%s_%d", kernel, n), Dim{blocks, (int(p.M) + n - 1) / n, 1}, productThreads, shared, p)
	}
	return Call{}, fmt.Errorf("no kernel for %d columns", p.M)
}

// computed returns the operands whose rows are distributed over blocks: all, or only the first one of a
// gated product, whose two weights are computed by the same blocks.
func (p *Product) computed() []Operand {
	if p.Act != NoActivation {
		return p.Ops[:1]
	}
	return p.Ops[:]
}

// passes returns how many times a block computes rowsAtOnce rows. It is chosen to give about two blocks
// per multiprocessor, since every block quantizes x again.
func (p *Product) passes(on Properties) int {
	rows := 0
	for _, o := range p.computed() {
		rows += int(o.Weight.Rows)
	}
	return max(1, rows/(rowsAtOnce*2*max(1, on.SMs)))
}

// Tiles multiplies 64 columns at a time (gemm). If exact is false, X is in q8x2.
func (p Product) Tiles(exact bool) (Call, error) {
	kernel := "gemm"
	if exact {
		kernel = "gemm_f32"
	}
	const rows, cols = 64, 64
	p.Part = rows
	blocks := 0
	for _, o := range p.computed() {
		blocks += (int(o.Weight.Rows) + rows - 1) / rows
	}
	return call(kernel, Dim{blocks, (int(p.M) + cols - 1) / cols, 1}, productThreads, 0, p)
}

// Call normalizes or quantizes M rows.
func (n Norm) Call() (Call, error) {
	return call("norm", Dim{int(n.M), 1, 1}, normThreads, 0, n)
}

// split is the number of positions in a split of a row's attention. Splits begin at multiples of it, so
// that a row's bits do not depend on the number of blocks.
const split = plan.CUDASplit

// splits returns the largest number of splits of a row.
func (a *Attention) splits() int {
	return int(plan.CUDASplits(int64(a.Positions), int64(a.Window)))
}

// AttentionWork returns the size of Work in bytes for m rows. It depends on HeadDim, Heads, Positions and
// Window.
func (a *Attention) AttentionWork(m int) int64 {
	return int64(m) * int64(a.Heads) * int64(a.splits()) * int64(a.HeadDim+2) * 4
}

// dims are the head sizes of the compiled kernels. A kernel serves heads of at most that many elements.
var dims = []uint32{64, 128, 256}

// Call computes attention for M rows, with caches of format f32, f16 or f8_e4m3.
func (a Attention) Call(on Properties, format string) (Call, error) {
	a.Splits = uint32(a.splits())
	group, d := int(a.Heads/max(1, a.KVHeads)), int(a.HeadDim)
	items := group * d / 4 // a thread weighs four elements of a value for one query
	slices := 1
	for slices*2*items <= attentionThreads && slices < 16 {
		slices *= 2
	}
	shared := 4 * (group*d + group*split + 2*group + max(slices*group*d, attentionThreads/32*d))
	// With more than a few blocks per multiprocessor, it is faster if a block computes several splits.
	blocks := min(a.splits(), max(1, 4*on.SMs/max(1, int(a.KVHeads*a.M))))
	return a.call(on, "attention_"+format, Dim{int(a.KVHeads), blocks, int(a.M)}, shared)
}

// Prefill computes attention for many rows at a time. Stored must be 1. Its order of summation differs
// from that of Call.
func (a Attention) Prefill(on Properties, format string) (Call, error) {
	const rows, keys = 16, 32
	shared := 4 * ((rows+keys)*(int(a.HeadDim)+4) + rows*keys)
	return a.call(on, "prefill_"+format, Dim{int(a.Heads), (int(a.M) + rows - 1) / rows, 1}, shared)
}

// call returns a Call of the kernel's variant for the head size.
func (a *Attention) call(on Properties, kernel string, grid Dim, shared int) (Call, error) {
	if shared > on.room() {
		return Call{}, fmt.Errorf("%d query heads and %d key/value heads of %d elements need %d bytes of shared memory, expected at most %d, the limit of a block on %s", a.Heads, a.KVHeads, a.HeadDim, shared, on.room(), on.Name)
	}
	for _, most := range dims {
		if a.HeadDim <= most {
			return call(fmt.Sprintf("%s_%d", kernel, most), grid, attentionThreads, shared, *a)
		}
	}
	return Call{}, fmt.Errorf("heads of %d elements, expected at most %d", a.HeadDim, dims[len(dims)-1])
}

// StoreKV writes the keys and values of M rows to the caches. It is used before attention of many rows,
// where several blocks would otherwise have to store them.
func (a Attention) StoreKV(format string) (Call, error) {
	const threads = 128 // a warp for each head
	heads := int(a.M * a.KVHeads)
	return call("store_kv_"+format, Dim{(heads + threads/32 - 1) / (threads / 32), 1, 1}, threads, threads/32*4*int(a.HeadDim), a)
}

// Call selects or copies M rows.
func (s Select) Call() (Call, error) { return call("select_rows", Dim{int(s.M), 1, 1}, 256, 0, s) }

// Call adds N elements.
func (s Sum) Call() (Call, error) {
	return call("sum", Dim{(int(s.N) + sumThreads - 1) / sumThreads, 1, 1}, sumThreads, 0, s)
}

// Call concatenates M rows.
func (c Concat) Call() (Call, error) { return call("concat", Dim{int(c.M), 1, 1}, 256, 0, c) }

// Call finds the K greatest elements of M rows. K = 1 is argmax. The largest K is that of
// plan.CUDATopParts.
func (t Top) Call() (Call, error) {
	parts, most := plan.CUDATopParts(int64(t.N))
	if int64(t.K) > most {
		return Call{}, fmt.Errorf("top %d of %d elements, expected at most the top %d", t.K, t.N, most)
	}
	return call("top", Dim{int(parts), int(t.M), 1}, topThreads, 0, t)
}
