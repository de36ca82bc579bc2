// Functions that the product kernels share: the rows of a block, and how results are stored.
#pragma once
#include "abi.cuh"
#include "math.cuh"

// A Share is the rows of one weight that a block computes.
struct Share {
    Operand op;
    const float* residual;
    unsigned from, to;
};

// The share of a block. Each block of a weight has p.part rows, and the blocks of the weights follow each other.
__device__ __forceinline__ Share share_of(const Product& p, unsigned block) {
    Share s = {p.ops[0], p.residual, 0, 0};
    if (p.act == NO_ACTIVATION) {
        const unsigned first = (p.ops[0].weight.rows + p.part - 1) / p.part, second = (p.ops[1].weight.rows + p.part - 1) / p.part;
        if (block >= first + second) {
            s.op = p.ops[2];
            block -= first + second;
            s.residual = nullptr;
        } else if (block >= first) {
            s.op = p.ops[1];
            block -= first;
            s.residual = nullptr;
        }
    }
    s.from = block * p.part;
    s.to = min(s.from + p.part, s.op.weight.rows);
    return s;
}

// Stores y for row `row` and column m, after the additions.
__device__ __forceinline__ void put(const Share& s, unsigned m, unsigned row, float y) {
    const size_t at = (size_t)m * s.op.weight.rows + row;
    if (s.op.bias) {
        y = __fadd_rn(y, s.op.bias[row]);
    }
    if (s.residual) {
        y = __fadd_rn(y, s.residual[at]);
    }
    s.op.out[at] = y;
}

// The same weight, hidden from the compiler. Otherwise it computes the addresses for every type before the rows, and
// runs out of registers.
__device__ __forceinline__ Weight hidden(Weight w) {
    auto data = reinterpret_cast<unsigned long long>(w.data);
    asm volatile("" : "+l"(data), "+r"(w.type), "+r"(w.rows));
    w.data = reinterpret_cast<const unsigned char*>(data);
    return w;
}

// Computes the rows of a block's share for COLS columns from `first` on, 32 rows at a time, with eight lanes for each.
// dot(weight, row, y) sets y to the lane's part of the sums. Missing columns repeat the last one.
template <int COLS, class Dot>
__device__ __forceinline__ void rows_of(const Product& p, unsigned first, Dot dot) {
    const Share s = share_of(p, blockIdx.x);
    const unsigned group = threadIdx.x / 8;
    for (unsigned at = s.from; at < s.to; at += 32) {  // all lanes take part
        const unsigned row = min(at + group, s.to - 1);
        float gate[COLS], y[COLS];
        Weight w = s.op.weight;
#pragma unroll 1
        for (int left = p.act == NO_ACTIVATION ? 1 : 2; left > 0; left--) {
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                gate[c] = y[c];
                y[c] = 0.0f;
            }
            dot(hidden(w), row, y);
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                y[c] = lanes_sum<8>(y[c]);
            }
            if (w.scales) {
                const float scale = w.scales[row];
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    y[c] = __fmul_rn(y[c], scale);
                }
            }
            w = p.ops[1].weight;
        }
        if (threadIdx.x % 8 == 0 && at + group < s.to) {
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                if (first + c < p.m) {
                    put(s, first + c, row, p.act == NO_ACTIVATION ? y[c] : gated(p.act, gate[c], y[c]));
                }
            }
        }
    }
}
