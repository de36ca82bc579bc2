// Kernels that work on single rows: embedding, norms, rounding, selection.
#include "abi.cuh"
#include "weights.cuh"
#include "q8x2.cuh"

// One block computes one token.
extern "C" __global__ void embed(const Embed p) {
    const int token = p.tokens[blockIdx.x];
    const unsigned kb = p.n / 32, row = (token < 0 && p.taken ? p.taken[~token] : token) - p.first;
    float4* y = reinterpret_cast<float4*>(p.y + (size_t)blockIdx.x * p.n);
    if (row >= p.table.rows) {
        for (unsigned i = threadIdx.x; i < p.n / 4; i += blockDim.x) {
            y[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        return;
    }
    const float of_row = p.table.scales ? p.table.scales[row] : 1.0f;
    with_values(p.table, kb, [&](const auto& w) {
        for (unsigned b = threadIdx.x; b < kb; b += blockDim.x) {
            float v[32];
            values(w, row * kb + b, v);
#pragma unroll
            for (int i = 0; i < 32; i++) {
                v[i] = __fmul_rn(__fmul_rn(v[i], of_row), p.scale);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                y[b * 8 + i] = make_float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
            }
        }
    });
}

// One block of 256 threads computes one row.
extern "C" __global__ void norm(const Norm p) {
    const float* x = p.x + (size_t)blockIdx.x * p.n;
    const float inverse = p.w ? inverse_rms<8>(x, p.n, p.eps) : 1.0f;
    if (p.quantized) {
        const unsigned kb = p.n / 32;
        const Planes to(p.y, p.m, kb);
        for (unsigned first = 0; first < kb; first += 32) {  // all lanes take part
            const unsigned b = first + threadIdx.x / 8, at = min(b, kb - 1) * 8 + threadIdx.x % 8;
            const Rounded r = rounded(normed(x, p.w, inverse, at));
            if (b < kb) {
                to.store(blockIdx.x, b, r);
            }
        }
        return;
    }
    float4* y = reinterpret_cast<float4*>(static_cast<float*>(p.y) + (size_t)blockIdx.x * p.n);
    const float4* add = reinterpret_cast<const float4*>(p.add + (size_t)blockIdx.x * p.n);
    for (unsigned i = threadIdx.x; i < p.n / 4; i += blockDim.x) {
        float4 v = normed(x, p.w, inverse, i);
        if (p.add) {
            const float4 a = add[i];
            v = make_float4(__fadd_rn(a.x, v.x), __fadd_rn(a.y, v.y), __fadd_rn(a.z, v.z), __fadd_rn(a.w, v.w));
        }
        y[i] = v;
    }
}

// One block computes one row.
extern "C" __global__ void select_rows(const Select p) {
    const size_t from = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
    const float* x = p.x + from * p.n;
    float* y = p.y + (size_t)blockIdx.x * p.n;
    for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) {
        y[i] = x[i];
    }
}
