// Products of few columns in precision fast: x is rounded to q8x2, weights stay integers, and the product of 32
// elements is exact. A column's bits depend neither on the number of columns nor on the grid.
#include "abi.cuh"
#include "weights.cuh"
#include "q8x2.cuh"
#include "product.cuh"

// Columns are rows of x in shared memory. Eight lanes read eight consecutive blocks. A block has four parts, of 16 bytes
// of a plane; equal parts of all blocks are adjacent, which avoids bank conflicts.
template <int COLS>
struct Columns {
    uint4* parts;  // [COLS][hi 0–15, hi 16–31, lo 0–15, lo 16–31][kb]
    float* scale;  // [COLS][kb], for q = 128 · hi + lo
    int* sum;      // [COLS][half][kb]
    unsigned kb;

    __device__ Columns(uint4* shared, unsigned kb)
        : parts(shared), scale((float*)(parts + COLS * 4 * kb)), sum((int*)(scale + COLS * kb)), kb(kb) {}

    // Normalizes and rounds the columns from `first` on, with a block of 256 threads.
    __device__ void fill(const Product& p, unsigned first) {
#pragma unroll 1
        for (int c = 0; c < COLS; c++) {
            const float* x = static_cast<const float*>(p.x) + (size_t)min(first + c, p.m - 1) * p.k;
            const float inverse = p.norm ? inverse_rms<8>(x, p.k, p.eps) : 1.0f;
            const unsigned lane = threadIdx.x % 8;
            for (unsigned from = 0; from < kb; from += 32) {
                const unsigned b = from + threadIdx.x / 8;
                const Rounded r = rounded(normed(x, p.norm, inverse, min(b, kb - 1) * 8 + lane));
                if (b < kb) {
                    unsigned* part = reinterpret_cast<unsigned*>(parts + (c * 4 + lane / 4) * kb + b) + lane % 4;
                    part[0] = r.hi;
                    part[8 * kb] = r.lo;
                    if (lane == 0) {
                        scale[c * kb + b] = __fmul_rn(r.scale, 0.0078125f);
                    }
                    if (lane % 4 == 0) {
                        sum[(c * 2 + lane / 4) * kb + b] = r.sum;
                    }
                }
            }
        }
        __syncthreads();
    }

    // The sum of q · w over half a block.
    __device__ int half(int c, unsigned b, int half, const unsigned* w) const {
        const uint4 hi = parts[(c * 4 + half) * kb + b], lo = parts[(c * 4 + 2 + half) * kb + b];
        const int h = dp4a(hi.w, w[3], dp4a(hi.z, w[2], dp4a(hi.y, w[1], dp4a(hi.x, w[0], 0))));
        const int l = dp4a(lo.w, w[3], dp4a(lo.z, w[2], dp4a(lo.y, w[1], dp4a(lo.x, w[0], 0))));
        return 128 * h + l;
    }
};

template <int COLS>
__device__ __forceinline__ void gemv(const Product& p) {
    extern __shared__ uint4 shared[];
    const unsigned kb = p.k / 32, first = blockIdx.y * COLS;
    Columns<COLS> x(shared, kb);
    x.fill(p, first);
    rows_of<COLS>(p, first, [&](const Weight& weight, unsigned row, float(&y)[COLS]) {
        with_integers(weight, kb, [&](const auto& w) {
            using T = typename Object<decltype(w)>::Type;
#pragma unroll 1
            for (unsigned b = threadIdx.x % 8; b < kb; b += 8) {
                Block block;
                w.load(row * kb + b, block);
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    const float scale = x.scale[c * kb + b];
                    const int sums[2] = {x.sum[c * 2 * kb + b], x.sum[(c * 2 + 1) * kb + b]};
                    const int dots[2] = {x.half(c, b, 0, block.q), x.half(c, b, 1, block.q + 4)};
                    if (T::halves) {
                        y[c] = __fmaf_rn((float)(dots[0] - T::zero * sums[0]), __fmul_rn(block.d[0], scale), y[c]);
                        y[c] = __fmaf_rn((float)(dots[1] - T::zero * sums[1]), __fmul_rn(block.d[1], scale), y[c]);
                    } else {
                        y[c] = __fmaf_rn((float)(dots[0] + dots[1] - T::zero * (sums[0] + sums[1])), __fmul_rn(block.d[0], scale), y[c]);
                    }
                    if (T::minimum) {
                        y[c] = __fmaf_rn(block.m, __fmul_rn((float)(sums[0] + sums[1]), scale), y[c]);
                    }
                }
            }
        });
    });
}

extern "C" __global__ void __launch_bounds__(256) gemv_1(const Product p) { gemv<1>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) gemv_2(const Product p) { gemv<2>(p); }
extern "C" __global__ void __launch_bounds__(256, 2) gemv_4(const Product p) { gemv<4>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) gemv_8(const Product p) { gemv<8>(p); }
