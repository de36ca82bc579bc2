// The top-k elements of rows. A block finds those of a part of a row. If a row has several parts, the block that
// finishes last merges them.
#include "abi.cuh"
#include "math.cuh"

constexpr unsigned THREADS = 256;
constexpr unsigned EACH = 16;              // elements of a thread
constexpr unsigned PART = THREADS * EACH;  // of a block, as in Call

// A Candidate is an element's index and the key by which it ranks. None has index −1 and ranks last.
struct Candidate {
    float rank;
    int index;
};

// NaN and infinity rank before all other numbers, so that rows that contain them are noticed.
__device__ __forceinline__ Candidate candidate(const float* x, int index) {
    const float infinity = __int_as_float(0x7f800000), v = index < 0 ? 0.0f : x[index];
    return {v < infinity ? v : infinity, index};
}

__device__ __forceinline__ bool before(Candidate a, Candidate b) {
    return a.index >= 0 && (b.index < 0 || a.rank > b.rank || (a.rank == b.rank && a.index < b.index));
}

// The first of a warp's candidates, returned in each lane.
__device__ __forceinline__ Candidate first_of_warp(Candidate c) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const Candidate other = {__shfl_xor_sync(ALL, c.rank, i), __shfl_xor_sync(ALL, c.index, i)};
        if (before(other, c)) {
            c = other;
        }
    }
    return c;
}

__device__ __forceinline__ Candidate first_of_thread(const Candidate (&mine)[EACH]) {
    Candidate c = mine[0];
#pragma unroll
    for (int i = 1; i < EACH; i++) {
        if (before(mine[i], c)) {
            c = mine[i];
        }
    }
    return c;
}

// Stores the indices of the first k of n candidates, in order. Each thread holds some candidates and offers the first
// of them until it is taken.
template <class At, class Put>
__device__ __forceinline__ void first(unsigned n, unsigned k, At at, Put put) {
    __shared__ Candidate offers[THREADS / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Candidate mine[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned place = i * THREADS + threadIdx.x;
        mine[i] = place < n ? at(place) : Candidate{0.0f, -1};
    }
    Candidate offer = first_of_thread(mine);
    for (unsigned c = 0; c < k; c++) {
        const Candidate best = first_of_warp(offer);
        if (lane == 0) {
            offers[warp] = best;
        }
        __syncthreads();
        const Candidate taken = first_of_warp(offers[lane % (THREADS / 32)]);
        __syncthreads();
        if (threadIdx.x == 0) {
            put(c, taken.index);
        }
        if (offer.index == taken.index) {
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (mine[i].index == taken.index) {
                    mine[i].index = -1;
                }
            }
            offer = first_of_thread(mine);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) top(const Top p) {
    __shared__ unsigned done;  // parts before this one
    const unsigned row = blockIdx.y, parts = gridDim.x, from = blockIdx.x * PART;
    const float* x = p.x + (size_t)row * p.n;
    int* work = p.work + (size_t)row * parts * p.k;
    const auto of_row = [&](unsigned i) { return candidate(x, from + i); };
    const auto of_parts = [&](unsigned i) { return candidate(x, __ldcg(work + i)); };
    const auto result = [&](unsigned c, int index) {
        const size_t at = (size_t)row * p.k + c;
        const float v = x[index];
        p.ids[at] = fabsf(v) < __int_as_float(0x7f800000) ? index : ~index;
        if (p.values) {
            p.values[at] = v;
        }
    };
    if (parts == 1) {
        first(p.n, p.k, of_row, result);
        return;
    }
    first(min(PART, p.n - from), p.k, of_row, [&](unsigned c, int index) { work[blockIdx.x * p.k + c] = index; });
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        done = atomicAdd(p.arrived + row, 1);
    }
    __syncthreads();
    if (done + 1 < parts) {
        return;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        p.arrived[row] = 0;  // for the next launch
    }
    first(parts * p.k, p.k, of_parts, result);
}
