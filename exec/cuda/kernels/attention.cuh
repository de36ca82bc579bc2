// Functions that the attention kernels share: formats of caches, addresses of positions, and RoPE.
#pragma once
#include "abi.cuh"
#include "math.cuh"

constexpr unsigned PAGE = 16;    // positions
constexpr unsigned SPLIT = 256;  // positions that are weighed together, between multiples of it

// The formats of caches. Each loads eight or four elements, whose index is a multiple of that number, and rounds.
struct F32Cache {
    using Element = float;
    __device__ static float rounded(float x) { return x; }
    __device__ static void eight(const float* at, float (&v)[8]) {
        const float4 a = reinterpret_cast<const float4*>(at)[0], b = reinterpret_cast<const float4*>(at)[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    }
    __device__ static float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }
};

struct F16Cache {
    using Element = unsigned short;
    __device__ static unsigned short rounded(float x) { return to_half(x); }
    __device__ static void eight(const unsigned short* at, float (&v)[8]) {
        const uint4 a = *reinterpret_cast<const uint4*>(at);
        const unsigned words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = from_halves(words[i]);
            v[2 * i] = f.x, v[2 * i + 1] = f.y;
        }
    }
    __device__ static float4 four(const unsigned short* at) {
        const uint2 a = *reinterpret_cast<const uint2*>(at);
        const float2 x = from_halves(a.x), y = from_halves(a.y);
        return make_float4(x.x, x.y, y.x, y.y);
    }
};

struct E4M3Cache {
    using Element = unsigned char;
    __device__ static unsigned char rounded(float x) { return to_e4m3(x); }
    __device__ static void eight(const unsigned char* at, float (&v)[8]) {
        const uint2 a = *reinterpret_cast<const uint2*>(at);
        const float4 x = from_e4m3(a.x), y = from_e4m3(a.y);
        v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w, v[4] = y.x, v[5] = y.y, v[6] = y.z, v[7] = y.w;
    }
    __device__ static float4 four(const unsigned char* at) { return from_e4m3(*reinterpret_cast<const unsigned*>(at)); }
};

// The index in a cache of the first element of a head, for a position of a sequence.
__device__ __forceinline__ size_t place(const Attention& p, unsigned seq, unsigned pos, unsigned head) {
    unsigned page, at = pos % PAGE;
    if (p.ring) {
        const unsigned slot = pos % p.positions;
        page = seq * (p.positions / PAGE) + slot / PAGE;
        at = slot % PAGE;
    } else {
        page = p.pages[seq * p.seq_pages + pos / PAGE];
    }
    return (((size_t)page * p.kv_heads + head) * PAGE + at) * p.head_dim;
}

// Sets x, a head in shared memory, to src after its norm (if there is one) and RoPE for a position. All lanes of a
// warp call it.
__device__ __forceinline__ void prepare(const Attention& p, float* x, const float* src, const float* norm, unsigned pos) {
    const unsigned lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (unsigned i = lane; i < p.head_dim; i += 32) {
        const float v = src[i];
        x[i] = v;
        sum = __fmaf_rn(v, v, sum);
    }
    if (norm) {
        const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(lanes_sum<32>(sum), (float)p.head_dim), p.eps)));
        for (unsigned i = lane; i < p.head_dim; i += 32) {
            x[i] = __fmul_rn(__fmul_rn(x[i], inverse), norm[i]);
        }
    }
    __syncwarp();
    const unsigned half = p.rot / 2;
    for (unsigned i = lane; i < half; i += 32) {
        const float2 turn = p.rope[(size_t)pos * half + i];
        const unsigned a = p.halves ? i : 2 * i, b = p.halves ? i + half : 2 * i + 1;
        const float u = x[a], v = x[b];
        x[a] = __fmaf_rn(u, turn.x, -__fmul_rn(v, turn.y));
        x[b] = __fmaf_rn(u, turn.y, __fmul_rn(v, turn.x));
    }
    __syncwarp();
}

// Writes the key and the value of a row to the caches. A warp calls it; x is a head in shared memory.
template <class Cache>
__device__ __forceinline__ void store(const Attention& p, float* x, unsigned row, unsigned seq, unsigned pos, unsigned head) {
    const size_t from = ((size_t)row * p.kv_heads + head) * p.head_dim, to = place(p, seq, pos, head);
    typename Cache::Element* k = static_cast<typename Cache::Element*>(p.k_cache) + to;
    typename Cache::Element* v = static_cast<typename Cache::Element*>(p.v_cache) + to;
    prepare(p, x, p.k + from, p.k_norm, pos);
    for (unsigned i = threadIdx.x % 32; i < p.head_dim; i += 32) {
        k[i] = Cache::rounded(x[i]);
        v[i] = Cache::rounded(p.v[from + i]);
    }
    __syncwarp();
}
