// Conversions of numbers, functions whose bits do not depend on the GPU, and sums over threads.
//
// Everything rounds as IEEE 754 specifies. Instructions whose error the manual leaves open (ex2.approx, div.approx, …)
// are not used, and only fmaf fuses products with sums.
#pragma once

constexpr unsigned ALL = 0xffffffff;  // lanes of a warp

__device__ __forceinline__ float from_half(unsigned short h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ unsigned short to_half(float f) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// The halves of a word, the lower one first.
__device__ __forceinline__ float2 from_halves(unsigned w) { return make_float2(from_half(w), from_half(w >> 16)); }

// Converts four E4M3 numbers, the bytes of a word. E4M3 is an FP8 format with a sign, four bits of exponent, three of
// mantissa, and no infinities. On GPUs without instructions for it, a number is shifted into a float16, which then is
// 2^-8 times the value, because the exponents are biased by 7 and 15.
__device__ __forceinline__ float4 from_e4m3(unsigned w) {
#if __CUDA_ARCH__ >= 890
    unsigned low, high;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"((unsigned short)w));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"((unsigned short)(w >> 16)));
    const float2 x = from_halves(low), y = from_halves(high);
    return make_float4(x.x, x.y, y.x, y.y);
#else
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned b = w >> (8 * i), magnitude = b & 0x7f;
        const float value = from_half((b & 0x80) << 8 | magnitude << 7) * 256.0f;
        v[i] = magnitude == 0x7f ? __int_as_float(0x7fc00000) : value;
    }
    return make_float4(v[0], v[1], v[2], v[3]);
#endif
}

// Rounds to nearest even. Numbers beyond 448 become 448, and NaN stays NaN.
__device__ __forceinline__ unsigned char to_e4m3(float f) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(f));
    return pair;
#else
    const unsigned bits = __float_as_uint(f), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    unsigned rounded = (magnitude - 0x3c000000 + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
    if (magnitude < 0x3c800000) {  // below 2^-6: adding 2^14 leaves multiples of 2^-9 in the low bits
        rounded = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 16384.0f)) - 0x46800000;
    } else if (magnitude > 0x7f800000) {
        rounded = 0x7f;
    } else if (magnitude >= 0x43e00000) {
        rounded = 0x7e;
    }
    return sign | rounded;
#endif
}

// sum + Σ a · b over four signed bytes.
__device__ __forceinline__ int dp4a(unsigned a, unsigned b, int sum) {
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}

// e^x with an error of about 0.6 of the last place: 2^n · e^r with |r| ≤ ln 2 / 2, where r has two parts.
__device__ __forceinline__ float exp_of(float x) {
    const float n = rintf(__fmul_rn(x, 1.44269504f));
    const float head = __fmaf_rn(n, -0.693359375f, x), tail = __fmul_rn(n, 2.12194440e-4f);  // ln 2 in two parts, the first of few bits
    const float r = __fadd_rn(head, tail);
    const float lost = __fadd_rn(__fadd_rn(head, -r), tail);
    float q = 1.9875691500e-4f;  // of the Cephes library's expf: (e^r − 1 − r) / r²
    q = __fmaf_rn(q, r, 1.3981999507e-3f);
    q = __fmaf_rn(q, r, 8.3334519073e-3f);
    q = __fmaf_rn(q, r, 4.1665795894e-2f);
    q = __fmaf_rn(q, r, 1.6666665459e-1f);
    q = __fmaf_rn(q, r, 5.0000001201e-1f);
    const float e = __fadd_rn(1.0f, __fadd_rn(r, __fmaf_rn(q, __fmul_rn(r, r), lost)));
    // 2^n is two factors, so that no factor overflows if the result does not.
    const int i = (int)fminf(fmaxf(n, -200.0f), 200.0f), low = i >> 1;
    const float y = __fmul_rn(__fmul_rn(e, __int_as_float((low + 127) << 23)), __int_as_float((i - low + 127) << 23));
    return x != x ? x : x < -104.0f ? 0.0f : x > 89.0f ? __int_as_float(0x7f800000) : y;
}

// x / (1 + e^−x).
__device__ __forceinline__ float silu(float x) { return __fdiv_rn(x, __fadd_rn(1.0f, exp_of(-x))); }

// x/2 · (1 + tanh u) is x / (1 + e^−2u), which has no cancellation if tanh u is near −1.
__device__ __forceinline__ float gelu_tanh(float x) {
    const float u = __fmul_rn(0.797884561f, __fmaf_rn(__fmul_rn(0.044715f, __fmul_rn(x, x)), x, x));
    return __fdiv_rn(x, __fadd_rn(1.0f, exp_of(-2.0f * u)));
}

// x/2 · erfc(−x/√2), with a Chebyshev fit of erfc whose relative error is 1.2e-7 (Press et al., Numerical Recipes, 6.2).
__device__ __forceinline__ float gelu_erf(float x) {
    const float u = __fmul_rn(-0.707106781f, x), z = fabsf(u), t = __fdiv_rn(1.0f, __fmaf_rn(0.5f, z, 1.0f));
    float s = 0.17087277f;
    s = __fmaf_rn(s, t, -0.82215223f);
    s = __fmaf_rn(s, t, 1.48851587f);
    s = __fmaf_rn(s, t, -1.13520398f);
    s = __fmaf_rn(s, t, 0.27886807f);
    s = __fmaf_rn(s, t, -0.18628806f);
    s = __fmaf_rn(s, t, 0.09678418f);
    s = __fmaf_rn(s, t, 0.37409196f);
    s = __fmaf_rn(s, t, 1.00002368f);
    s = __fmaf_rn(s, t, -1.26551223f);
    const float c = __fmul_rn(t, exp_of(__fmaf_rn(-z, z, s)));
    return __fmul_rn(__fmul_rn(0.5f, x), u >= 0.0f ? c : __fadd_rn(2.0f, -c));
}

// act(gate) · up.
__device__ __forceinline__ float gated(unsigned act, float gate, float up) {
    const float g = act == SILU ? silu(gate) : act == GELU_TANH ? gelu_tanh(gate) : gelu_erf(gate);
    return __fmul_rn(g, up);
}

// The sum over groups of n lanes, returned in each lane of the group; n is a power of two.
template <int n>
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
    for (int i = n / 2; i > 0; i /= 2) {
        x = __fadd_rn(x, __shfl_xor_sync(ALL, x, i));
    }
    return x;
}

// The sum over the threads of a block of `warps` warps, returned in each thread. All threads call it.
template <int warps>
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float parts[warps];
    x = lanes_sum<32>(x);
    __syncthreads();  // an earlier sum has been read
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = x;
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < warps; i++) {
        sum = __fadd_rn(sum, parts[i]);
    }
    return sum;
}

// 1 / √(mean x² + eps) of a row of k elements, a multiple of 4. A block of `warps` warps calls it. Squares are summed
// in float32, so the result is 0 for a row with elements beyond 1e18.
template <int warps>
__device__ __forceinline__ float inverse_rms(const float* x, unsigned k, float eps) {
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < k / 4; i += 32 * warps) {
        const float4 v = reinterpret_cast<const float4*>(x)[i];
        sum = __fmaf_rn(v.x, v.x, __fmaf_rn(v.y, v.y, __fmaf_rn(v.z, v.z, __fmaf_rn(v.w, v.w, sum))));
    }
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(block_sum<warps>(sum), (float)k), eps)));
}

// Four elements of a row, normalized if there is a norm.
__device__ __forceinline__ float4 normed(const float* x, const float* norm, float inverse, unsigned i) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    if (norm) {
        const float4 w = reinterpret_cast<const float4*>(norm)[i];
        v.x = __fmul_rn(__fmul_rn(v.x, inverse), w.x);
        v.y = __fmul_rn(__fmul_rn(v.y, inverse), w.y);
        v.z = __fmul_rn(__fmul_rn(v.z, inverse), w.z);
        v.w = __fmul_rn(__fmul_rn(v.w, inverse), w.w);
    }
    return v;
}
