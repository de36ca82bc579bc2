// Weights in layout soa (exec/cuda/layout.go). There is a struct for each type; all have the same members.
#pragma once
#include "math.cuh"

// A Block is 32 elements of a row. For integer types an element is d · (q − zero) + m, with q as signed bytes in
// order, and a d for each half.
struct Block {
    unsigned q[8];
    float d[2];
    float m;
};

// Expands 32 elements of four bits to bytes.
__device__ __forceinline__ void nibbles(const uint4 w, unsigned (&q)[8]) {
    const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        q[i] = words[i] & 0x0f0f0f0f;
        q[4 + i] = words[i] >> 4 & 0x0f0f0f0f;
    }
}

// Adds the fifth bits.
__device__ __forceinline__ void fifth(unsigned bits, unsigned (&q)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        q[i] |= (i < 4 ? bits << (4 - i) : bits >> (i - 4)) & 0x10101010;
    }
}

struct Q4_0 {
    static constexpr int zero = 8;
    static constexpr bool minimum = false, halves = false;
    const uint4* quants;
    const unsigned short* d;
    __device__ Q4_0(const unsigned char* data, size_t blocks) : quants((const uint4*)data), d((const unsigned short*)(quants + blocks)) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        b.d[0] = b.d[1] = from_half(d[i]);
    }
};

struct Q4_1 {
    static constexpr int zero = 0;
    static constexpr bool minimum = true, halves = false;
    const uint4* quants;
    const unsigned* dm;
    __device__ Q4_1(const unsigned char* data, size_t blocks) : quants((const uint4*)data), dm((const unsigned*)(quants + blocks)) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        const float2 f = from_halves(dm[i]);
        b.d[0] = b.d[1] = f.x;
        b.m = f.y;
    }
};

struct Q5_0 {
    static constexpr int zero = 16;
    static constexpr bool minimum = false, halves = false;
    const uint4* quants;
    const unsigned* high;
    const unsigned short* d;
    __device__ Q5_0(const unsigned char* data, size_t blocks)
        : quants((const uint4*)data), high((const unsigned*)(quants + blocks)), d((const unsigned short*)(high + blocks)) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        fifth(high[i], b.q);
        b.d[0] = b.d[1] = from_half(d[i]);
    }
};

struct Q5_1 {
    static constexpr int zero = 0;
    static constexpr bool minimum = true, halves = false;
    const uint4* quants;
    const unsigned *high, *dm;
    __device__ Q5_1(const unsigned char* data, size_t blocks) : quants((const uint4*)data), high((const unsigned*)(quants + blocks)), dm(high + blocks) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        fifth(high[i], b.q);
        const float2 f = from_halves(dm[i]);
        b.d[0] = b.d[1] = f.x;
        b.m = f.y;
    }
};

struct Q8_0 {
    static constexpr int zero = 0;
    static constexpr bool minimum = false, halves = false;
    const uint4 *first, *second;  // halves of blocks
    const unsigned short* d;
    __device__ Q8_0(const unsigned char* data, size_t blocks) : first((const uint4*)data), second(first + blocks), d((const unsigned short*)(second + blocks)) {}
    __device__ void load(unsigned i, Block& b) const {
        const uint4 v = first[i], w = second[i];
        b.q[0] = v.x, b.q[1] = v.y, b.q[2] = v.z, b.q[3] = v.w;
        b.q[4] = w.x, b.q[5] = w.y, b.q[6] = w.z, b.q[7] = w.w;
        b.d[0] = b.d[1] = from_half(d[i]);
    }
};

// The scale and the minimum of a sub-block of 32 elements of q4_k and q5_k: d and dmin of the 256 elements, each times a byte.
__device__ __forceinline__ void scales_k(unsigned dd, unsigned short bytes, Block& b) {
    const float2 f = from_halves(dd);
    b.d[0] = b.d[1] = __fmul_rn(f.x, (float)(bytes & 255));
    b.m = -__fmul_rn(f.y, (float)(bytes >> 8));
}

struct Q4_K {
    static constexpr int zero = 0;
    static constexpr bool minimum = true, halves = false;
    const uint4* quants;
    const unsigned* d;
    const unsigned short* scales;
    __device__ Q4_K(const unsigned char* data, size_t blocks)
        : quants((const uint4*)data), d((const unsigned*)(quants + blocks)), scales((const unsigned short*)(d + blocks / 8)) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        scales_k(d[i / 8], scales[i], b);
    }
};

struct Q5_K {
    static constexpr int zero = 0;
    static constexpr bool minimum = true, halves = false;
    const uint4* quants;
    const unsigned *high, *d;
    const unsigned short* scales;
    __device__ Q5_K(const unsigned char* data, size_t blocks)
        : quants((const uint4*)data), high((const unsigned*)(quants + blocks)), d(high + blocks), scales((const unsigned short*)(d + blocks / 8)) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        fifth(high[i], b.q);
        scales_k(d[i / 8], scales[i], b);
    }
};

struct Q6_K {
    static constexpr int zero = 32;
    static constexpr bool minimum = false, halves = true;
    const uint4* quants;
    const uint2* high;
    const unsigned short *scales, *d;
    __device__ Q6_K(const unsigned char* data, size_t blocks)
        : quants((const uint4*)data), high((const uint2*)(quants + blocks)), scales((const unsigned short*)(high + blocks)), d(scales + blocks) {}
    __device__ void load(unsigned i, Block& b) const {
        nibbles(quants[i], b.q);
        const uint2 h = high[i];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const unsigned w = j < 4 ? h.x : h.y;
            b.q[j] |= (j % 4 < 2 ? w << (4 - 2 * (j % 4)) : w >> (2 * (j % 4) - 4)) & 0x30303030;
        }
        const float f = from_half(d[i / 8]);
        const unsigned short s = scales[i];
        b.d[0] = __fmul_rn(f, (float)(signed char)s);
        b.d[1] = __fmul_rn(f, (float)((short)s >> 8));
    }
};

// Byte i of q, as a signed number.
__device__ __forceinline__ int byte_of(const unsigned (&q)[8], int i) { return (int)(q[i / 4] << (24 - 8 * (i % 4))) >> 24; }

// The values of block i, with the bits of gguf/quant.
template <class T>
__device__ __forceinline__ void values(const T& w, unsigned i, float (&v)[32]) {
    Block b;
    w.load(i, b);
#pragma unroll
    for (int j = 0; j < 32; j++) {
        v[j] = __fmul_rn(b.d[j / 16], (float)(byte_of(b.q, j) - T::zero));
        if (T::minimum) {
            v[j] = __fadd_rn(v[j], b.m);
        }
    }
}

// Types whose elements have a byte or more, in sections of 16 bytes of each block. E converts a word.
template <class E>
struct Sections {
    const uint4* data;
    size_t blocks;
    __device__ Sections(const unsigned char* data, size_t blocks) : data((const uint4*)data), blocks(blocks) {}
};

struct OneF32 {
    static constexpr int count = 1;
    __device__ static void from(unsigned w, float* v) { v[0] = __uint_as_float(w); }
};

struct TwoF16 {
    static constexpr int count = 2;
    __device__ static void from(unsigned w, float* v) {
        const float2 f = from_halves(w);
        v[0] = f.x, v[1] = f.y;
    }
};

struct TwoBF16 {
    static constexpr int count = 2;
    __device__ static void from(unsigned w, float* v) { v[0] = __uint_as_float(w << 16), v[1] = __uint_as_float(w & 0xffff0000); }
};

struct FourE4M3 {
    static constexpr int count = 4;
    __device__ static void from(unsigned w, float* v) {
        const float4 f = from_e4m3(w);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    }
};

using F32 = Sections<OneF32>;
using F16 = Sections<TwoF16>;
using BF16 = Sections<TwoBF16>;
using F8_E4M3 = Sections<FourE4M3>;

template <class E>
__device__ __forceinline__ void values(const Sections<E>& w, unsigned i, float (&v)[32]) {
    constexpr int n = E::count;
#pragma unroll
    for (int j = 0; j < 8 / n; j++) {
        const uint4 part = w.data[j * w.blocks + i];
        float* to = v + j * 4 * n;
        E::from(part.x, to), E::from(part.y, to + n), E::from(part.z, to + 2 * n), E::from(part.w, to + 3 * n);
    }
}

// The type that a reference refers to.
template <class T>
struct Object;
template <class T>
struct Object<const T&> {
    using Type = T;
};

// Calls f with a matrix of the integer type that the weight has. Rows have kb blocks of 32.
template <class F>
__device__ __forceinline__ void with_integers(const Weight& w, unsigned kb, F f) {
    const size_t blocks = (size_t)w.rows * kb;
    switch (w.type) {
    case TYPE_Q4_0: f(Q4_0(w.data, blocks)); break;
    case TYPE_Q4_1: f(Q4_1(w.data, blocks)); break;
    case TYPE_Q5_0: f(Q5_0(w.data, blocks)); break;
    case TYPE_Q5_1: f(Q5_1(w.data, blocks)); break;
    case TYPE_Q8_0: f(Q8_0(w.data, blocks)); break;
    case TYPE_Q4_K: f(Q4_K(w.data, blocks)); break;
    case TYPE_Q5_K: f(Q5_K(w.data, blocks)); break;
    case TYPE_Q6_K: f(Q6_K(w.data, blocks)); break;
    }
}

// Calls f with a matrix of the type that the weight has.
template <class F>
__device__ __forceinline__ void with_values(const Weight& w, unsigned kb, F f) {
    const size_t blocks = (size_t)w.rows * kb;
    switch (w.type) {
    case TYPE_F32: f(F32(w.data, blocks)); break;
    case TYPE_F16: f(F16(w.data, blocks)); break;
    case TYPE_BF16: f(BF16(w.data, blocks)); break;
    case TYPE_F8_E4M3: f(F8_E4M3(w.data, blocks)); break;
    default: with_integers(w, kb, f);
    }
}
