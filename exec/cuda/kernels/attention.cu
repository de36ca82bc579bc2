// Attention for few tokens. The positions that a token sees are divided into parts of SPLIT positions. A block
// computes all query heads of one key and value head for one token, over some of the parts. The block that finishes
// last merges the results of all parts, in their order. So a token's bits depend neither on the grid nor on other tokens.
#include "attention.cuh"

// The partial result of a part and a query head in Work: head_dim sums, the greatest score, and the sum of weights.
__device__ __forceinline__ float* partial(const Attention& p, unsigned token, unsigned head, unsigned part) {
    return p.work + (((size_t)token * p.heads + head) * p.splits + part) * (p.head_dim + 2);
}

// Eight lanes read a row of keys: eight elements each at a time, CHUNKS times.
template <class Cache, int CHUNKS>
__device__ __forceinline__ void attention(const Attention& p) {
    using Element = typename Cache::Element;
    extern __shared__ float4 shared[];
    __shared__ unsigned before;  // blocks that were done before this one
    const unsigned head = blockIdx.x, token = blockIdx.z, d = p.head_dim, group = p.heads / p.kv_heads;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned seq = p.seq[token], pos = p.pos[token];
    const unsigned least = p.window && pos >= p.window ? pos - p.window + 1 : 0;
    const unsigned first = least / SPLIT, parts = pos / SPLIT - first + 1;
    const unsigned blocks = min(gridDim.y, parts);
    if (blockIdx.y >= blocks) {
        return;
    }
    float* queries = reinterpret_cast<float*>(shared);  // [group][d]
    float* scores = queries + group * d;                // [group][SPLIT], then weights
    float* tops = scores + group * SPLIT;               // [group], the greatest score
    float* totals = tops + group;                       // [group], the sum of weights
    float* sums = totals + group;                       // [slices][group][d], and before that a head for each warp

    // In this step, the rows of this token's sequence begin at row `own`, and at position `since`.
    unsigned own = token;
    while (!p.stored && own > 0 && p.seq[own - 1] == seq) {
        own--;
    }
    const unsigned since = p.stored ? pos + 1 : pos - (token - own);

    for (unsigned h = warp; h < group; h += 8) {
        prepare(p, queries + h * d, p.q + ((size_t)token * p.heads + head * group + h) * d, p.q_norm, pos);
    }
    for (unsigned part = blockIdx.y; part < parts; part += blocks) {
        const unsigned base = (first + part) * SPLIT;
        const unsigned from = max(least, base), to = min(pos + 1, base + SPLIT);

        // Keys and values of this step are written to the cache and read from there. Other blocks may write the
        // same elements, with the same bits.
        for (unsigned j = max(from, since) + warp; j < to; j += 8) {
            store<Cache>(p, sums + warp * d, own + (j - since), seq, j, head);
        }
        __syncthreads();

        const unsigned column = lane % 8;
        for (unsigned at = from; at < to; at += 32) {  // all lanes take part
            const unsigned mine = at + warp * 4 + lane / 8, j = min(mine, to - 1);
            const Element* key = static_cast<const Element*>(p.k_cache) + place(p, seq, j, head);
            float k[CHUNKS][8];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                const unsigned e = (c * 8 + column) * 8;
                if (e < d) {
                    Cache::eight(key + e, k[c]);
                }
            }
            for (unsigned h = 0; h < group; h++) {
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < CHUNKS; c++) {
                    const unsigned e = (c * 8 + column) * 8;
                    if (e < d) {
                        const float4 a = *reinterpret_cast<const float4*>(queries + h * d + e), b = *reinterpret_cast<const float4*>(queries + h * d + e + 4);
                        sum = __fmaf_rn(a.x, k[c][0], __fmaf_rn(a.y, k[c][1], __fmaf_rn(a.z, k[c][2], __fmaf_rn(a.w, k[c][3], sum))));
                        sum = __fmaf_rn(b.x, k[c][4], __fmaf_rn(b.y, k[c][5], __fmaf_rn(b.z, k[c][6], __fmaf_rn(b.w, k[c][7], sum))));
                    }
                }
                sum = lanes_sum<8>(sum);
                if (column == 0 && mine < to) {
                    scores[h * SPLIT + mine - base] = __fmul_rn(sum, p.scale);
                }
            }
        }
        __syncthreads();

        for (unsigned h = warp; h < group; h += 8) {
            float* s = scores + h * SPLIT;
            float most = -__int_as_float(0x7f800000);
            for (unsigned j = from - base + lane; j < to - base; j += 32) {
                most = fmaxf(most, s[j]);
            }
#pragma unroll
            for (int i = 16; i > 0; i /= 2) {
                most = fmaxf(most, __shfl_xor_sync(ALL, most, i));
            }
            float sum = 0.0f;
            for (unsigned j = from - base + lane; j < to - base; j += 32) {
                const float w = exp_of(__fadd_rn(s[j], -most));
                s[j] = w;
                sum = __fadd_rn(sum, w);
            }
            sum = lanes_sum<32>(sum);
            if (lane == 0) {
                tops[h] = most;
                totals[h] = sum;
            }
        }
        __syncthreads();

        // A thread sums four elements of the weighted values for one query head, over every `slices`-th position.
        const unsigned items = group * d / 4;
        unsigned slices = 1;
        while (slices * 2 * items <= blockDim.x && slices < 16) {
            slices *= 2;
        }
        for (unsigned i = threadIdx.x; i < items * slices; i += blockDim.x) {
            const unsigned item = i % items, slice = i / items, h = item / (d / 4), e = item % (d / 4) * 4;
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (unsigned j = from + slice; j < to; j += slices) {
                const float w = scores[h * SPLIT + j - base];
                const float4 v = Cache::four(static_cast<const Element*>(p.v_cache) + place(p, seq, j, head) + e);
                sum.x = __fmaf_rn(w, v.x, sum.x);
                sum.y = __fmaf_rn(w, v.y, sum.y);
                sum.z = __fmaf_rn(w, v.z, sum.z);
                sum.w = __fmaf_rn(w, v.w, sum.w);
            }
            float* out = sums + (slice * group + h) * d + e;
            out[0] = sum.x, out[1] = sum.y, out[2] = sum.z, out[3] = sum.w;
        }
        __syncthreads();

        for (unsigned i = threadIdx.x; i < group * d; i += blockDim.x) {
            const unsigned h = i / d, e = i % d;
            float sum = sums[i];
            for (unsigned s = 1; s < slices; s++) {
                sum = __fadd_rn(sum, sums[s * group * d + i]);
            }
            if (parts == 1) {
                p.out[((size_t)token * p.heads + head * group) * d + i] = __fdiv_rn(sum, totals[h]);
                continue;
            }
            float* result = partial(p, token, head * group + h, part);
            result[e] = sum;
            if (e == 0) {
                result[d] = tops[h];
                result[d + 1] = totals[h];
            }
        }
        __syncthreads();  // shared memory is free again
    }
    if (parts == 1) {
        return;
    }

    __threadfence();
    __syncthreads();
    unsigned* arrived = p.arrived + (size_t)token * p.kv_heads + head;
    if (threadIdx.x == 0) {
        before = atomicAdd(arrived, 1);
    }
    __syncthreads();
    if (before + 1 < blocks) {
        return;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        *arrived = 0;  // for the next launch
    }
    for (unsigned i = threadIdx.x; i < group * d; i += blockDim.x) {
        const unsigned h = i / d, e = i % d;
        const float* parted = partial(p, token, head * group + h, 0);
        float most = -__int_as_float(0x7f800000);
        for (unsigned part = 0; part < parts; part++) {
            most = fmaxf(most, __ldcg(parted + part * (d + 2) + d));
        }
        float sum = 0.0f, total = 0.0f;
        for (unsigned part = 0; part < parts; part++) {
            const float* from = parted + part * (d + 2);
            const float w = exp_of(__fadd_rn(__ldcg(from + d), -most));
            sum = __fmaf_rn(__ldcg(from + e), w, sum);
            total = __fmaf_rn(__ldcg(from + d + 1), w, total);
        }
        p.out[((size_t)token * p.heads + head * group) * d + i] = __fdiv_rn(sum, total);
    }
}

extern "C" __global__ void __launch_bounds__(256) attention_f32_64(const Attention p) { attention<F32Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f32_128(const Attention p) { attention<F32Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f32_256(const Attention p) { attention<F32Cache, 4>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f16_64(const Attention p) { attention<F16Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f16_128(const Attention p) { attention<F16Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f16_256(const Attention p) { attention<F16Cache, 4>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f8_e4m3_64(const Attention p) { attention<E4M3Cache, 1>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f8_e4m3_128(const Attention p) { attention<E4M3Cache, 2>(p); }
extern "C" __global__ void __launch_bounds__(256) attention_f8_e4m3_256(const Attention p) { attention<E4M3Cache, 4>(p); }

// Writes the keys and values of a step. One warp writes a head of a row.
template <class Cache>
__device__ __forceinline__ void store_kv(const Attention& p) {
    extern __shared__ float heads[];
    const unsigned warp = threadIdx.x / 32, i = blockIdx.x * (blockDim.x / 32) + warp;
    if (i < p.m * p.kv_heads) {
        const unsigned row = i / p.kv_heads;
        store<Cache>(p, heads + warp * p.head_dim, row, p.seq[row], p.pos[row], i % p.kv_heads);
    }
}

extern "C" __global__ void store_kv_f32(const Attention p) { store_kv<F32Cache>(p); }
extern "C" __global__ void store_kv_f16(const Attention p) { store_kv<F16Cache>(p); }
extern "C" __global__ void store_kv_f8_e4m3(const Attention p) { store_kv<E4M3Cache>(p); }
