// What compiled.ptx was made of, by NVRTC 12.9 for compute_75: kernels as a compiler writes them.
struct P { const float* x; const float* w; float* y; int n; float eps; };
extern "C" __global__ void rmsnorm(const P p) {
  __shared__ float part[32];
  const float* x = p.x + (size_t)blockIdx.x * p.n;
  float s = 0;
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) s = __fmaf_rn(x[i], x[i], s);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
  __syncthreads();
  if (threadIdx.x < 32) { s = threadIdx.x < (blockDim.x >> 5) ? part[threadIdx.x] : 0; for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o); if (threadIdx.x==0) part[0]=s; }
  __syncthreads();
  float r = 1 / sqrtf(part[0] / p.n + p.eps);
  for (int i = threadIdx.x; i < p.n; i += blockDim.x) p.y[(size_t)blockIdx.x*p.n+i] = x[i] * r * p.w[i];
}
struct C { unsigned* n; float* part; float* out; };
extern "C" __global__ void last(const C p) {
  __shared__ bool lastb;
  p.part[blockIdx.x*blockDim.x+threadIdx.x] = threadIdx.x * 1.5f + blockIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) lastb = atomicAdd(p.n, 1) == gridDim.x - 1;
  __syncthreads();
  if (!lastb) return;
  float s = 0;
  for (int i = 0; i < gridDim.x; i++) s += __ldcg(&p.part[i*blockDim.x+threadIdx.x]);
  p.out[threadIdx.x] = s;
  if (threadIdx.x == 0) *p.n = 0;
}
