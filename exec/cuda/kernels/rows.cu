// Kernels that move rows.
#include "abi.cuh"

// y[r] = x[rows[r]], or x[r] where there is no list; one block a row.
extern "C" __global__ void select_rows(const Select p) {
    const unsigned from = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
    const float* x = p.x + (unsigned long long)from * p.n;
    float* y = p.y + (unsigned long long)blockIdx.x * p.n;
    for (unsigned i = threadIdx.x; i < p.n; i += blockDim.x) {
        y[i] = x[i];
    }
}
