// Products of many columns in float32 with dequantized weights. A block of 256 threads computes 64 rows of a weight
// for 64 columns, in steps of two blocks of 32 elements. A thread has four rows and four columns.
#include "abi.cuh"
#include "weights.cuh"
#include "product.cuh"

constexpr unsigned TILE = 64;
constexpr unsigned STEP = 2;

struct Tiles {
    float w[STEP * 32][TILE];  // an element of each row
    float x[STEP * 32][TILE];  // an element of each column
};

template <class T>
__device__ __forceinline__ void tile(const Product& p, const T& w, Tiles& s, unsigned rows, unsigned from, unsigned first, float (&y)[4][4]) {
    const unsigned kb = p.k / 32, row = threadIdx.x % 16 * 4, column = threadIdx.x / 16 * 4;
    const unsigned i = threadIdx.x % 128, at = i % TILE, part = i / TILE;
#pragma unroll 1
    for (unsigned step = 0; step < kb; step += STEP) {
        const unsigned b = min(step + part, kb - 1);
        if (threadIdx.x < 128) {
            float v[32];
            values(w, min(from + at, rows - 1) * kb + b, v);
#pragma unroll
            for (int j = 0; j < 32; j++) {
                s.w[part * 32 + j][at] = v[j];
            }
        } else {
            const float4* x = reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + (size_t)min(first + at, p.m - 1) * p.k + b * 32);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 v = x[j];
                float(*to)[TILE] = s.x + part * 32 + 4 * j;
                to[0][at] = v.x, to[1][at] = v.y, to[2][at] = v.z, to[3][at] = v.w;
            }
        }
        __syncthreads();
        const unsigned n = min(STEP, kb - step) * 32;
        float sums[4][4] = {};  // of this step: what is small is added to what is small
#pragma unroll 8
        for (unsigned k = 0; k < n; k++) {
            const float4 a = *reinterpret_cast<const float4*>(&s.w[k][row]), c = *reinterpret_cast<const float4*>(&s.x[k][column]);
            const float r[4] = {a.x, a.y, a.z, a.w}, v[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (int j = 0; j < 16; j++) {
                sums[j / 4][j % 4] = __fmaf_rn(r[j / 4], v[j % 4], sums[j / 4][j % 4]);
            }
        }
#pragma unroll
        for (int j = 0; j < 16; j++) {
            y[j / 4][j % 4] = __fadd_rn(y[j / 4][j % 4], sums[j / 4][j % 4]);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) gemm_f32(const Product p) {
    __shared__ __align__(16) unsigned char memory[sizeof(Tiles)];
    Tiles& s = *reinterpret_cast<Tiles*>(memory);
    const Share share = share_of(p, blockIdx.x);
    const unsigned first = blockIdx.y * TILE;
    float gate[4][4], y[4][4];
    Weight weight = share.op.weight;
#pragma unroll 1
    for (int left = p.act == NO_ACTIVATION ? 1 : 2; left > 0; left--) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            gate[i / 4][i % 4] = y[i / 4][i % 4];
            y[i / 4][i % 4] = 0.0f;
        }
        with_values(hidden(weight), p.k / 32, [&](const auto& w) { tile(p, w, s, weight.rows, share.from, first, y); });
        if (weight.scales) {
#pragma unroll
            for (int i = 0; i < 16; i++) {
                y[i / 4][i % 4] = __fmul_rn(y[i / 4][i % 4], weight.scales[min(share.from + threadIdx.x % 16 * 4 + i / 4, weight.rows - 1)]);
            }
        }
        weight = p.ops[1].weight;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const unsigned row = share.from + threadIdx.x % 16 * 4 + i / 4, m = first + threadIdx.x / 16 * 4 + i % 4;
        if (row < share.to && m < p.m) {
            const float sum = y[i / 4][i % 4];
            put(share, m, row, p.act == NO_ACTIVATION ? sum : gated(p.act, gate[i / 4][i % 4], sum));
        }
    }
}
