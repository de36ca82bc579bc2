// Package numfmt converts between float32 and the number formats of weights, activations and caches:
//
//   - F16 (IEEE 754 binary16), BF16 and E4M3 (FP8), one number at a time;
//   - Q8_0, blocks of 32 int8 with a float16 scale: a cache format, the layout of GGUF's Q8_0;
//   - q8 and q8x2, rows of activations as one or two planes of int8 for integer products.
//
// Every function defines its result to the bit. Vector kernels and the CUDA kernels compute the same
// bits, and their tests compare them with this package. The block formats of GGUF files are in
// gguf/quant, which uses this package for its scales. It imports nothing of this module.
package numfmt
