// Products of many columns in precision fast: tensor cores multiply the planes of q8x2 rows by integer weights. The
// products of the elements that share a scale (32, or 16 in some types) are exact. A block computes 64 rows of a weight
// for 64 columns, in steps of two blocks of 32 elements. Each of its eight warps has 16 rows and 32 columns.
#include "abi.cuh"
#include "weights.cuh"
#include "q8x2.cuh"
#include "product.cuh"

constexpr unsigned TILE = 64;
constexpr unsigned STEP = 2;                 // blocks of 32
constexpr unsigned STRIDE = STEP * 32 + 16;  // bytes of a row: eight rows of four words have a bank each

// sums += a · b over 16 elements, for 16 rows and eight columns. This lane has four elements of rows lane/4 and
// lane/4 + 8, and four of column lane/4. Of the sums of its rows it has columns lane%4 · 2 and the next one.
__device__ __forceinline__ void mma_half(int (&sums)[4], unsigned a0, unsigned a1, unsigned b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) : "r"(a0), "r"(a1), "r"(b));
#else
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(sums[0]), "+r"(sums[1]) : "r"(a0), "r"(b));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(sums[2]), "+r"(sums[3]) : "r"(a1), "r"(b));
#endif
}

// The same over 32 elements. Their second half is in a[2], a[3] and b[1].
__device__ __forceinline__ void mma(int (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    mma_half(sums, a[0], a[1], b[0]);
    mma_half(sums, a[2], a[3], b[1]);
#endif
}

// Copies 16 bytes to shared memory, asynchronously if the GPU can.
__device__ __forceinline__ void copy16(unsigned char* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void copies_end() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last `left` groups of this thread's copies are pending.
template <int left>
__device__ __forceinline__ void copies_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}

struct Tiles {
    unsigned char x[2][2][TILE * STRIDE];  // of two steps, hi and lo of each column
    unsigned char w[TILE * STRIDE];        // q − zero
    float d[STEP][2][TILE];                // of each row, for the halves of a block
    float m[STEP][TILE];
    float scale[STEP][TILE];  // of each column, for q = 128 · hi + lo
    float total[STEP][TILE];  // scale · Σ q
};

// Adds the warp's tile to y. The tile is [8 columns][row lane/4, columns 0 and 1; row lane/4 + 8].
template <class T>
__device__ __forceinline__ void tile(const Product& p, const T& w, Tiles& s, unsigned rows, unsigned from, unsigned first, float (&y)[4][4]) {
    const unsigned kb = p.k / 32, steps = (kb + STEP - 1) / STEP;
    const Planes x(const_cast<void*>(p.x), p.m, kb);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, word = lane % 4 * 4;
    const unsigned row = warp / 2 * 16 + g, column = warp % 2 * 32;

    auto copy = [&](unsigned step) {
        // A column has STEP · 2 parts of 16 bytes in each plane. Blocks beyond the last one repeat it.
        for (unsigned i = threadIdx.x; i < TILE * STEP * 2; i += 256) {
            const unsigned c = i / (STEP * 2), part = i % (STEP * 2);
            const size_t at = ((size_t)min(first + c, p.m - 1) * kb + min(step * STEP + part / 2, kb - 1)) * 32 + part % 2 * 16;
            copy16(s.x[step % 2][0] + c * STRIDE + part * 16, reinterpret_cast<const unsigned char*>(x.hi) + at);
            copy16(s.x[step % 2][1] + c * STRIDE + part * 16, reinterpret_cast<const unsigned char*>(x.lo) + at);
        }
        copies_end();
    };

    copy(0);
#pragma unroll 1
    for (unsigned step = 0; step < steps; step++) {
        // A warp loads both blocks of 16 rows, which are adjacent. Eight lanes that store together have the same block.
        const unsigned at = threadIdx.x / 16 % 8 * 8 + threadIdx.x % 8, part = threadIdx.x / 8 % STEP, b = min(step * STEP + part, kb - 1);
        if (threadIdx.x < 128) {
            Block block;
            w.load(min(from + at, rows - 1) * kb + b, block);
            unsigned* to = reinterpret_cast<unsigned*>(s.w + at * STRIDE + part * 32);
#pragma unroll
            for (int j = 0; j < 8; j++) {  // no byte borrows from its neighbor
                to[j] = T::zero ? ((block.q[j] | 0x80808080) - T::zero * 0x01010101u) ^ 0x80808080 : block.q[j];
            }
            s.d[part][0][at] = block.d[0];
            s.d[part][1][at] = block.d[1];
            if (T::minimum) {
                s.m[part][at] = block.m;
            }
        } else {
            const size_t place = (size_t)min(first + at, p.m - 1) * kb + b;
            const float scale = __fmul_rn(x.scale[place], 0.0078125f);
            s.scale[part][at] = scale;
            if (T::minimum) {
                s.total[part][at] = __fmul_rn((float)(x.sum[2 * place] + x.sum[2 * place + 1]), scale);
            }
        }
        if (step + 1 < steps) {
            copy(step + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();

#pragma unroll
        for (unsigned k = 0; k < STEP; k++) {
            if (step * STEP + k >= kb) {
                break;
            }
            auto four = [&](const unsigned char* rows, unsigned r, unsigned half) {
                return *reinterpret_cast<const unsigned*>(rows + r * STRIDE + k * 32 + half * 16 + word);
            };
            const unsigned a[4] = {four(s.w, row, 0), four(s.w, row + 8, 0), four(s.w, row, 1), four(s.w, row + 8, 1)};
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const unsigned at = column + c * 8;
                const unsigned char *hi = s.x[step % 2][0], *lo = s.x[step % 2][1];
                const unsigned h[2] = {four(hi, at + g, 0), four(hi, at + g, 1)}, l[2] = {four(lo, at + g, 0), four(lo, at + g, 1)};
                int dots[2][4] = {}, low[2][4] = {};
                if (T::halves) {
                    mma_half(dots[0], a[0], a[1], h[0]);
                    mma_half(dots[1], a[2], a[3], h[1]);
                    mma_half(low[0], a[0], a[1], l[0]);
                    mma_half(low[1], a[2], a[3], l[1]);
                } else {
                    mma(dots[0], a, h);
                    mma(low[0], a, l);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const unsigned r = row + i / 2 * 8, m = at + lane % 4 * 2 + i % 2;
                    const float scale = s.scale[k][m];
                    y[c][i] = __fmaf_rn((float)(128 * dots[0][i] + low[0][i]), __fmul_rn(s.d[k][0][r], scale), y[c][i]);
                    if (T::halves) {
                        y[c][i] = __fmaf_rn((float)(128 * dots[1][i] + low[1][i]), __fmul_rn(s.d[k][1][r], scale), y[c][i]);
                    }
                    if (T::minimum) {
                        y[c][i] = __fmaf_rn(s.m[k][r], s.total[k][m], y[c][i]);
                    }
                }
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) gemm(const Product p) {
    __shared__ __align__(16) unsigned char memory[sizeof(Tiles)];
    Tiles& s = *reinterpret_cast<Tiles*>(memory);
    const Share share = share_of(p, blockIdx.x);
    const unsigned first = blockIdx.y * TILE, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float gate[4][4], y[4][4];
    Weight weight = share.op.weight;
#pragma unroll 1
    for (int left = p.act == NO_ACTIVATION ? 1 : 2; left > 0; left--) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            gate[i / 4][i % 4] = y[i / 4][i % 4];
            y[i / 4][i % 4] = 0.0f;
        }
        with_integers(hidden(weight), p.k / 32, [&](const auto& w) { tile(p, w, s, weight.rows, share.from, first, y); });
        weight = p.ops[1].weight;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const unsigned row = share.from + warp / 2 * 16 + lane / 4 + i % 4 / 2 * 8;
        const unsigned m = first + warp % 2 * 32 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < share.to && m < p.m) {
            const float sum = y[i / 4][i % 4];
            put(share, m, row, p.act == NO_ACTIVATION ? sum : gated(p.act, gate[i / 4][i % 4], sum));
        }
    }
}
