// Activations in format q8x2, with the integers and scales of ops/ref/q8x2.go.
#pragma once
#include "math.cuh"

// A Rounded is a lane's part of a block of 32 elements. Eight lanes have four elements each.
struct Rounded {
    unsigned hi, lo;  // four bytes of either plane
    int sum;          // over the lanes of a half of the block
    float scale;
};

// Rounds a block. All lanes of a warp call it.
__device__ __forceinline__ Rounded rounded(float4 v) {
    const unsigned magnitude = 0x7fffffff;  // magnitudes order as their bits do, NaN highest
    unsigned top = max(max(__float_as_uint(v.x) & magnitude, __float_as_uint(v.y) & magnitude),
                       max(__float_as_uint(v.z) & magnitude, __float_as_uint(v.w) & magnitude));
#pragma unroll
    for (int i = 4; i > 0; i /= 2) {
        top = max(top, __shfl_xor_sync(ALL, top, i));
    }
    const float most = __uint_as_float(top);
    float inverse = __fdiv_rn(16256.0f, most), scale = __fdiv_rn(most, 127.0f);
    if (top >= 0x7f800000) {
        inverse = 0.0f;
        scale = __int_as_float(0x7fc00000);
    } else if (__float_as_uint(inverse) == 0x7f800000) {
        inverse = scale = 0.0f;
    }
    const float x[4] = {v.x, v.y, v.z, v.w};
    Rounded r = {0, 0, 0, scale};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int q = inverse == 0.0f ? 0 : __float2int_rn(__fmul_rn(x[i], inverse));
        const int hi = (q + 64) >> 7;
        r.hi |= (hi & 255u) << (8 * i);
        r.lo |= ((q - 128 * hi) & 255u) << (8 * i);
        r.sum += q;
    }
    r.sum += __shfl_xor_sync(ALL, r.sum, 1);
    r.sum += __shfl_xor_sync(ALL, r.sum, 2);
    return r;
}

// Planes are rows of q8x2 in device memory: four consecutive arrays, for m rows of kb blocks.
struct Planes {
    unsigned *hi, *lo;
    float* scale;
    int* sum;
    unsigned kb;
    __device__ Planes(void* data, unsigned m, unsigned kb)
        : hi((unsigned*)data), lo(hi + (size_t)m * kb * 8), scale((float*)(lo + (size_t)m * kb * 8)), sum((int*)(scale + (size_t)m * kb)), kb(kb) {}

    // Stores this lane's part of block b of a row.
    __device__ void store(unsigned row, unsigned b, const Rounded& r) const {
        const size_t at = (size_t)row * kb + b;
        const unsigned lane = threadIdx.x % 8;
        hi[at * 8 + lane] = r.hi;
        lo[at * 8 + lane] = r.lo;
        if (lane == 0) {
            scale[at] = r.scale;
        }
        if (lane % 4 == 0) {
            sum[at * 2 + lane / 4] = r.sum;
        }
    }
};
