package cuda

import (
	"encoding/binary"
	"fmt"

	"pesti/exec/plan"
)

// The parameters of the kernels, which take one struct each, by value. The structs here are the
// only source: abi.cuh, which the kernels include, is written from them by the tests (-update).
// Fields have fixed widths, and padding is a field, so that the bytes in memory are those of
// encoding/binary. A tag tells what a pointer points to.

// A Weight is a matrix in layout soa, see layout.go.
type Weight struct {
	Data   Ptr    `cuda:"const unsigned char*"`
	Scales Ptr    `cuda:"const float*"` // [Rows], which the values of a row are multiplied by, or 0
	Type   uint32 // Code of its row in Layouts
	Rows   uint32
}

// An Operand is one weight of a product, with a bias that is added, or 0, and where the result goes:
// float32 [M, Rows].
type Operand struct {
	Weight Weight
	Bias   Ptr `cuda:"const float*"`
	Out    Ptr `cuda:"float*"`
}

// Embed is y[m] = scale · table[tokens[m] − First]: float32 [M, N]. A token t below 0 stands for Taken[−1−t],
// where that is not 0. A token outside the table gives zeros.
type Embed struct {
	Tokens Ptr `cuda:"const int*"`
	Taken  Ptr `cuda:"const int*"`
	Y      Ptr `cuda:"float*"`
	Table  Weight
	Scale  float32
	N, M   uint32
	First  uint32
}

// A Product is out_i[m] = w_i · x[m] + bias_i for up to three weights, those without rows being
// absent; out_0 has the residual added, where there is one. With an activation it is
// out_0[m] = act(w_0 · x[m]) ⊙ (w_1 · x[m]) instead. Where Norm is not 0, x is normed by it first.
type Product struct {
	X        Ptr `cuda:"const void*"`  // float32 [M, K]; for Tiles in precision fast q8x2, see Norm
	Norm     Ptr `cuda:"const float*"` // float32 [K]
	Residual Ptr `cuda:"const float*"` // float32 [M, Rows of 0]
	Ops      [3]Operand
	K, M     uint32
	Part     uint32 // rows of a weight that one block computes; Call sets it
	Act      uint32 // an Activation
	Eps      float32
	_        uint32
}

// An Activation is what a gated product applies to its gate.
type Activation = uint32

// The activations by number.
const (
	NoActivation Activation = iota
	SiLU
	GELUTanh
	GELUErf
)

// Activations are the numbers by the names that plans have.
var activations = map[string]Activation{"silu": SiLU, "gelu_tanh": GELUTanh, "gelu_erf": GELUErf}

// ActivationOf returns the number of an activation that a plan names.
func ActivationOf(name string) (Activation, bool) {
	a, ok := activations[name]
	return a, ok
}

// Norm is y[m] = w ⊙ x[m] / rms(x[m]), without w y[m] = x[m], with Add y[m] = add[m] + w ⊙ x[m] / rms(x[m]).
// Where Quantised is set, y is rounded to q8x2. On the device q8x2 of [M, N] is, one behind the
// other, hi int8[M, N], lo int8[M, N], scale float32[M, N/32] and sum int32[M, N/16], each as in the format
// of the CPU's rows.
type Norm struct {
	X         Ptr `cuda:"const float*"`
	W         Ptr `cuda:"const float*"`
	Add       Ptr `cuda:"const float*"`
	Y         Ptr `cuda:"void*"`
	N, M      uint32
	Quantised uint32
	Eps       float32
}

// Attention is what the plan's attention kernel computes. Tokens of a sequence are a run of rows at
// consecutive positions. A page of a cache is [kv_head][16][head_dim]. Position p of sequence s lies in page
// Pages[s·SeqPages + p/16], or, in a ring, in page s·Positions/16 + p mod Positions / 16.
//
// Keys and values of the step are written to the caches too, unless Stored says that StoreKV did.
type Attention struct {
	Q         Ptr `cuda:"const float*"`  // [M, Heads·HeadDim]
	K         Ptr `cuda:"const float*"`  // [M, KVHeads·HeadDim]
	V         Ptr `cuda:"const float*"`  // [M, KVHeads·HeadDim]
	Pos       Ptr `cuda:"const int*"`    // [M]
	Seq       Ptr `cuda:"const int*"`    // [M]
	Pages     Ptr `cuda:"const int*"`    // [S·SeqPages]
	KCache    Ptr `cuda:"void*"`         // in the format that Call is given
	VCache    Ptr `cuda:"void*"`         //
	QNorm     Ptr `cuda:"const float*"`  // [HeadDim] or 0
	KNorm     Ptr `cuda:"const float*"`  // [HeadDim] or 0
	Rope      Ptr `cuda:"const float2*"` // [positions, Rot/2]: cosine and sine of a position's angle for each pair, times the magnitude; 0 where Rot is
	Out       Ptr `cuda:"float*"`        // [M, Heads·HeadDim]
	Work      Ptr `cuda:"float*"`        // AttentionWork bytes
	Arrived   Ptr `cuda:"unsigned*"`     // [M, KVHeads], zero, and zero again afterwards
	Heads     uint32
	KVHeads   uint32
	HeadDim   uint32 // a multiple of 8, at most 256
	Rot       uint32
	Positions uint32 // of a sequence in the cache, a multiple of 16
	Window    uint32 // 0: none
	Ring      uint32 // 1: Pages is ignored
	SeqPages  uint32
	Halves    uint32 // RoPE turns (i, i + Rot/2) and not (2i, 2i+1)
	Stored    uint32
	M         uint32
	Splits    uint32 // room in Work for so many parts of a row; Call sets it
	Scale     float32
	Eps       float32
}

// Select is y[r] = x[rows[r]], or x[r] where Rows is 0: float32 [M, N].
type Select struct {
	X    Ptr `cuda:"const float*"`
	Rows Ptr `cuda:"const int*"`
	Y    Ptr `cuda:"float*"`
	N, M uint32
}

// Sum is y = x0 + x1 + x2 + res, added in this order, where any but x0 may be 0: float32 [N].
type Sum struct {
	X0  Ptr `cuda:"const float*"`
	X1  Ptr `cuda:"const float*"`
	X2  Ptr `cuda:"const float*"`
	Res Ptr `cuda:"const float*"`
	Y   Ptr `cuda:"float*"`
	N   uint32
	_   uint32
}

// Concat is y[m] = x0[m], x1[m], x2[m] side by side, float32 [M, N0], [M, N1] and [M, N2], of which the latter
// two may be absent.
type Concat struct {
	X0         Ptr `cuda:"const float*"`
	X1         Ptr `cuda:"const float*"`
	X2         Ptr `cuda:"const float*"`
	Y          Ptr `cuda:"float*"`
	N0, N1, N2 uint32
	M          uint32
}

// Top finds the K greatest of each row of float32 [M, N], the greatest first, of equal ones the first first.
// NaN and +Inf rank before all others. The id of an element at i that is not finite is −1−i.
type Top struct {
	X       Ptr    `cuda:"const float*"`
	Ids     Ptr    `cuda:"int*"`      // [M, K]
	Values  Ptr    `cuda:"float*"`    // [M, K] or 0
	Work    Ptr    `cuda:"int*"`      // [M, parts, K]
	Arrived Ptr    `cuda:"unsigned*"` // [M], zero, and zero again afterwards
	N, M, K uint32 // K is at most N
	_       uint32
}

// A Call is what a kernel is launched with.
type Call struct {
	Kernel      string // as package kernels names it
	Grid, Block Dim
	Shared      int
	Params      []byte
}

// encode returns the bytes of one of the structs above.
func encode(params any) ([]byte, error) { return binary.Append(nil, binary.LittleEndian, params) }

// call is a Call whose blocks are rows of threads.
func call(kernel string, grid Dim, threads, shared int, params any) (Call, error) {
	bytes, err := encode(params)
	return Call{kernel, grid, Dim{threads, 1, 1}, shared, bytes}, err
}

// Threads of a block, which kernels rely on.
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

// rowsAtOnce is the number of rows that a block of a product computes at a time: eight lanes take a row.
const rowsAtOnce = productThreads / 8

// columns are the numbers of columns that product kernels compute at a time, by precision.
var columns = map[bool][]int{false: {8, 4, 2, 1}, true: {4, 2, 1}}

// staticShared is the most bytes of shared memory that a product or attention has beside those that it is
// launched with: both count towards what a block may have.
const staticShared = 32

// room is the bytes of shared memory that a kernel may be launched with.
func (p Properties) room() int { return p.Shared - staticShared }

// Call multiplies few columns: gemv. In precision exact everything is float32; else x is rounded to
// q8x2, and weights must be integers.
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
			return Call{}, fmt.Errorf("a row of %d elements takes %d bytes of shared memory, and a block of %s has %d for it", p.K, shared, on.Name, on.room())
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

// computed are the operands that have rows of blocks: of a gated product, whose rows are computed together,
// the first.
func (p *Product) computed() []Operand {
	if p.Act != NoActivation {
		return p.Ops[:1]
	}
	return p.Ops[:]
}

// passes is how often a block computes rowsAtOnce rows, so that there are about two blocks for each
// multiprocessor: what a block does first, to round x, is then done no more often than that pays.
func (p *Product) passes(on Properties) int {
	rows := 0
	for _, o := range p.computed() {
		rows += int(o.Weight.Rows)
	}
	return max(1, rows/(rowsAtOnce*2*max(1, on.SMs)))
}

// Tiles multiplies 64 columns at a time: gemm. In precision fast X is q8x2.
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

// Call norms or quantises M rows.
func (n Norm) Call() (Call, error) {
	return call("norm", Dim{int(n.M), 1, 1}, normThreads, 0, n)
}

// split is how many positions a block of attention takes: parts of a row lie at its multiples, so
// that a row's bits do not depend on how many blocks there are.
const split = plan.CUDASplit

// splits is the most parts that a row can have.
func (a *Attention) splits() int {
	return int(plan.CUDASplits(int64(a.Positions), int64(a.Window)))
}

// AttentionWork is the bytes that Work must have for m rows. Only HeadDim, Heads, Positions and Window
// matter.
func (a *Attention) AttentionWork(m int) int64 {
	return int64(m) * int64(a.Heads) * int64(a.splits()) * int64(a.HeadDim+2) * 4
}

// dims are the sizes of heads for which there are kernels, each up to that many elements.
var dims = []uint32{64, 128, 256}

// Call attends for M rows, over caches of format f32, f16 or f8_e4m3.
func (a Attention) Call(on Properties, format string) (Call, error) {
	a.Splits = uint32(a.splits())
	group, d := int(a.Heads/max(1, a.KVHeads)), int(a.HeadDim)
	items := group * d / 4 // a thread weighs four elements of a value for one query
	slices := 1
	for slices*2*items <= attentionThreads && slices < 16 {
		slices *= 2
	}
	shared := 4 * (group*d + group*split + 2*group + max(slices*group*d, attentionThreads/32*d))
	// Beyond some blocks for each multiprocessor, a block does well to take several parts.
	blocks := min(a.splits(), max(1, 4*on.SMs/max(1, int(a.KVHeads*a.M))))
	return a.call(on, "attention_"+format, Dim{int(a.KVHeads), blocks, int(a.M)}, shared)
}

// Prefill attends for many rows at a time; Stored must be set. It adds in another order than Call.
func (a Attention) Prefill(on Properties, format string) (Call, error) {
	const rows, keys = 16, 32
	shared := 4 * ((rows+keys)*(int(a.HeadDim)+4) + rows*keys)
	return a.call(on, "prefill_"+format, Dim{int(a.Heads), (int(a.M) + rows - 1) / rows, 1}, shared)
}

// call is a Call of the variant of a kernel for heads of so many elements.
func (a *Attention) call(on Properties, kernel string, grid Dim, shared int) (Call, error) {
	if shared > on.room() {
		return Call{}, fmt.Errorf("%d query heads on %d of %d elements take %d bytes of shared memory, and a block of %s has %d for them", a.Heads, a.KVHeads, a.HeadDim, shared, on.Name, on.room())
	}
	for _, most := range dims {
		if a.HeadDim <= most {
			return call(fmt.Sprintf("%s_%d", kernel, most), grid, attentionThreads, shared, *a)
		}
	}
	return Call{}, fmt.Errorf("heads of %d elements, expected at most %d", a.HeadDim, dims[len(dims)-1])
}

// StoreKV writes the keys and values of M rows to the caches, for steps in which many blocks would do so.
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

// Call puts M rows together.
func (c Concat) Call() (Call, error) { return call("concat", Dim{int(c.M), 1, 1}, 256, 0, c) }

// Call finds the greatest of M rows; with K = 1 it is argmax. plan.CUDATopParts says how many it finds
// at most.
func (t Top) Call() (Call, error) {
	parts, most := plan.CUDATopParts(int64(t.N))
	if int64(t.K) > most {
		return Call{}, fmt.Errorf("the %d greatest of %d, expected at most %d", t.K, t.N, most)
	}
	return call("top", Dim{int(parts), int(t.M), 1}, topThreads, 0, t)
}
