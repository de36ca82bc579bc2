// Attention for many tokens, whose keys and values are in the cache already. A block computes one query head for ROWS
// tokens, with half a warp for each, over KEYS positions at a time, with a running maximum (online softmax, Milakov &
// Gimelshein 2018). A tile of keys begins at a multiple of KEYS in every step, and masked keys do not change a row's
// numbers. So a row's bits do not depend on the other tokens.
#include "attention.cuh"

constexpr unsigned ROWS = 16;
constexpr unsigned KEYS = 32;

// The maximum and the sum over half a warp, returned in each of its lanes.
__device__ __forceinline__ float half_most(float x) {
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL, x, i));
    }
    return x;
}

// Fills a tile [KEYS][d + 4] with the positions from `base` on. Positions outside [from, to) are zero.
template <class Cache>
__device__ __forceinline__ void load(const Attention& p, float* tile, const void* cache, unsigned seq, unsigned head, unsigned base, unsigned from, unsigned to) {
    const unsigned fours = p.head_dim / 4;
    for (unsigned i = threadIdx.x; i < KEYS * fours; i += 256) {
        const unsigned j = base + i / fours, e = i % fours * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (j >= from && j < to) {
            v = Cache::four(static_cast<const typename Cache::Element*>(cache) + place(p, seq, j, head) + e);
        }
        *reinterpret_cast<float4*>(tile + i / fours * (p.head_dim + 4) + e) = v;
    }
}

// A lane has four elements of the output, CHUNKS times.
template <class Cache, int CHUNKS>
__device__ __forceinline__ void prefill(const Attention& p) {
    extern __shared__ float4 shared[];
    const unsigned d = p.head_dim, stride = d + 4, head = blockIdx.x, kv_head = head / (p.heads / p.kv_heads);
    float* queries = reinterpret_cast<float*>(shared);  // [ROWS][stride]
    float* tile = queries + ROWS * stride;              // [KEYS][stride]
    float* weights = tile + KEYS * stride;              // [ROWS][KEYS]
    const unsigned lane = threadIdx.x % 16, row = threadIdx.x / 16;
    const unsigned first = blockIdx.y * ROWS, rows = min(ROWS, p.m - first);
    const float nothing = -__int_as_float(0x7f800000);

    for (unsigned r = threadIdx.x / 32; r < rows; r += 8) {
        prepare(p, queries + r * stride, p.q + ((size_t)(first + r) * p.heads + head) * d, p.q_norm, p.pos[first + r]);
    }
    const unsigned pos = p.pos[first + min(row, rows - 1)];
    const unsigned least = p.window && pos >= p.window ? pos - p.window + 1 : 0;
    float top = nothing, total = 0.0f, sums[CHUNKS][4] = {};

    // The rows are processed one sequence at a time.
    for (unsigned begin = 0, end; begin < rows; begin = end) {
        const unsigned seq = p.seq[first + begin];
        for (end = begin + 1; end < rows && p.seq[first + end] == seq; end++) {
        }
        const bool mine = row >= begin && row < end;
        const unsigned earliest = p.pos[first + begin], from = p.window && earliest >= p.window ? earliest - p.window + 1 : 0;
        const unsigned to = p.pos[first + end - 1] + 1;
        for (unsigned base = from / KEYS * KEYS; base < to; base += KEYS) {
            __syncthreads();  // the tile is free
            load<Cache>(p, tile, p.k_cache, seq, kv_head, base, from, to);
            __syncthreads();

            float s[2] = {0.0f, 0.0f};
            const float *q = queries + row * stride, *k = tile + lane * stride;
            if (mine) {
                for (unsigned e = 0; e < d; e += 4) {
                    const float4 a = *reinterpret_cast<const float4*>(q + e);
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const float4 b = *reinterpret_cast<const float4*>(k + i * 16 * stride + e);
                        s[i] = __fmaf_rn(a.x, b.x, __fmaf_rn(a.y, b.y, __fmaf_rn(a.z, b.z, __fmaf_rn(a.w, b.w, s[i]))));
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const unsigned j = base + lane + i * 16;
                s[i] = mine && j >= least && j <= pos ? __fmul_rn(s[i], p.scale) : nothing;
            }
            const float most = fmaxf(top, half_most(fmaxf(s[0], s[1])));
            const bool some = base <= pos && base + KEYS > least && mine;
            const float shrink = some ? exp_of(__fadd_rn(top, -most)) : 1.0f;
            float w[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                w[i] = s[i] == nothing ? 0.0f : exp_of(__fadd_rn(s[i], -most));
                weights[row * KEYS + lane + i * 16] = w[i];
            }
            total = __fmaf_rn(total, shrink, lanes_sum<16>(__fadd_rn(w[0], w[1])));
            top = most;
            __syncthreads();

            load<Cache>(p, tile, p.v_cache, seq, kv_head, base, from, to);
            __syncthreads();
            if (some) {
#pragma unroll
                for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        sums[c][i] = __fmul_rn(sums[c][i], shrink);
                    }
                }
                // Values that a row does not see may be NaN.
                const unsigned last = min(pos - base, KEYS - 1);
                for (unsigned j = least > base ? least - base : 0; j <= last; j++) {
                    const float w = weights[row * KEYS + j];
#pragma unroll
                    for (int c = 0; c < CHUNKS; c++) {
                        const unsigned e = (c * 16 + lane) * 4;
                        if (e < d) {
                            const float4 v = *reinterpret_cast<const float4*>(tile + j * stride + e);
                            sums[c][0] = __fmaf_rn(w, v.x, sums[c][0]);
                            sums[c][1] = __fmaf_rn(w, v.y, sums[c][1]);
                            sums[c][2] = __fmaf_rn(w, v.z, sums[c][2]);
                            sums[c][3] = __fmaf_rn(w, v.w, sums[c][3]);
                        }
                    }
                }
            }
        }
    }
    if (row < rows) {
        float4* out = reinterpret_cast<float4*>(p.out + ((size_t)(first + row) * p.heads + head) * d);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if ((c * 16 + lane) * 4 < d) {
                out[c * 16 + lane] = make_float4(__fdiv_rn(sums[c][0], total), __fdiv_rn(sums[c][1], total),
                                                 __fdiv_rn(sums[c][2], total), __fdiv_rn(sums[c][3], total));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) prefill_f32_64(const Attention p) { prefill<F32Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f32_128(const Attention p) { prefill<F32Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f32_256(const Attention p) { prefill<F32Cache, 4>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f16_64(const Attention p) { prefill<F16Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f16_128(const Attention p) { prefill<F16Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f16_256(const Attention p) { prefill<F16Cache, 4>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f8_e4m3_64(const Attention p) { prefill<E4M3Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f8_e4m3_128(const Attention p) { prefill<E4M3Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256, 1) prefill_f8_e4m3_256(const Attention p) { prefill<E4M3Cache, 4>(p); }
