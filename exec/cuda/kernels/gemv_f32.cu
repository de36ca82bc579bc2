// Products of few columns in float32 with dequantized weights, for precision exact and for weights of float types.
// A column's bits depend neither on the number of columns nor on the grid.
#include "abi.cuh"
#include "weights.cuh"
#include "product.cuh"

template <int COLS>
__device__ __forceinline__ void gemv(const Product& p) {
    // [COLS][8][kb]: four elements of a block are adjacent to four of the next block, which another lane reads.
    extern __shared__ float4 x[];
    const unsigned kb = p.k / 32, first = blockIdx.y * COLS;
#pragma unroll 1
    for (int c = 0; c < COLS; c++) {
        const float* from = static_cast<const float*>(p.x) + (size_t)min(first + c, p.m - 1) * p.k;
        const float inverse = p.norm ? inverse_rms<8>(from, p.k, p.eps) : 1.0f;
        for (unsigned i = threadIdx.x; i < 8 * kb; i += 256) {
            x[(c * 8 + i % 8) * kb + i / 8] = normed(from, p.norm, inverse, i);
        }
    }
    __syncthreads();
    rows_of<COLS>(p, first, [&](const Weight& weight, unsigned row, float(&y)[COLS]) {
        float4 sums[COLS];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            sums[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        with_values(weight, kb, [&](const auto& w) {
#pragma unroll 1
            for (unsigned b = threadIdx.x % 8; b < kb; b += 8) {
                float v[32];
                values(w, row * kb + b, v);
#pragma unroll
                for (int c = 0; c < COLS; c++) {
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        const float4 f = x[(c * 8 + i) * kb + b];
                        sums[c].x = __fmaf_rn(v[4 * i], f.x, sums[c].x);
                        sums[c].y = __fmaf_rn(v[4 * i + 1], f.y, sums[c].y);
                        sums[c].z = __fmaf_rn(v[4 * i + 2], f.z, sums[c].z);
                        sums[c].w = __fmaf_rn(v[4 * i + 3], f.w, sums[c].w);
                    }
                }
            }
        });
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            y[c] = __fadd_rn(__fadd_rn(sums[c].x, sums[c].y), __fadd_rn(sums[c].z, sums[c].w));
        }
    });
}

extern "C" __global__ void __launch_bounds__(256) gemv_f32_1(const Product p) { gemv<1>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) gemv_f32_2(const Product p) { gemv<2>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) gemv_f32_4(const Product p) { gemv<4>(p); }
