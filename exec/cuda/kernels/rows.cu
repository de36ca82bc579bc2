// Kernels that work on rows by themselves: embedding, norms, rounding, selection, the greatest elements.
#include "abi.cuh"
#include "weights.cuh"
#include "q8x2.cuh"

// One block a token.
extern "C" __global__ void embed(const Embed p) {
    const unsigned kb = p.n / 32, row = p.tokens[blockIdx.x] - p.first;
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

// One block of 256 threads a row.
extern "C" __global__ void norm(const Norm p) {
    const float* x = p.x + (size_t)blockIdx.x * p.n;
    const float inverse = p.w ? inverse_rms<8>(x, p.n, p.eps) : 1.0f;
    if (p.quantised) {
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

// One block a row.
extern "C" __global__ void select_rows(const Select p) {
    const size_t from = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
    const float* x = p.x + from * p.n;
    float* y = p.y + (size_t)blockIdx.x * p.n;
    for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) {
        y[i] = x[i];
    }
}

// A Candidate is an element and where it stands. Any comes before none, which has index −1.
struct Candidate {
    float value;
    int index;
};

// Whether a comes before b: greater, or as great and earlier.
__device__ __forceinline__ bool before(Candidate a, Candidate b) {
    return a.index >= 0 && (b.index < 0 || a.value > b.value || (a.value == b.value && a.index < b.index));
}

// The first of the candidates of a warp, in each lane.
__device__ __forceinline__ Candidate first_of_warp(Candidate c) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const Candidate other = {__shfl_xor_sync(ALL, c.value, i), __shfl_xor_sync(ALL, c.index, i)};
        if (before(other, c)) {
            c = other;
        }
    }
    return c;
}

// One block of 1024 threads a row. Each pass finds the first candidate that comes after the one before it.
extern "C" __global__ void top(const Top p) {
    __shared__ Candidate parts[32];
    const float* x = p.x + (size_t)blockIdx.x * p.n;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Candidate last = {0.0f, -1};
    for (unsigned k = 0; k < p.k; k++) {
        Candidate best = {0.0f, -1};
        for (unsigned i = threadIdx.x; i < p.n; i += 1024) {
            const Candidate c = {x[i], (int)i};
            if (c.value == c.value && (k == 0 || before(last, c)) && before(c, best)) {
                best = c;
            }
        }
        best = first_of_warp(best);
        if (lane == 0) {
            parts[warp] = best;
        }
        __syncthreads();
        best = first_of_warp(parts[lane]);
        __syncthreads();
        if (threadIdx.x == 0) {
            p.ids[blockIdx.x * p.k + k] = best.index;
            if (p.values) {
                p.values[blockIdx.x * p.k + k] = best.value;
            }
        }
        if (best.index >= 0) {
            last = best;
        } else {
            last = {-__int_as_float(0x7f800000), 0x7fffffff};  // nothing comes after
        }
    }
}
