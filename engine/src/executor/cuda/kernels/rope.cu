// Rotary position embedding (Su et al., "RoFormer", 2021): pairs of elements of a head are rotated by an
// angle that grows with the position.
//
// Grid (ceil(heads * n_pairs / 128), tokens), block 128: a thread has a pair.
#include "common.cuh"

// `cos` and `sin` are (positions, n_pairs). With `neox` a pair is (i, i + n_pairs), else (2i, 2i + 1).
extern "C" __global__ void __launch_bounds__(128)
    rope(float *__restrict__ x, const float *__restrict__ cos, const float *__restrict__ sin,
         const Params *__restrict__ p, uint32_t heads, uint32_t head_dim, uint32_t n_pairs, uint32_t neox,
         uint32_t pos_stride, uint64_t *__restrict__ began) {
    note_begin(began);
    const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    if (index >= heads * n_pairs) return;
    const uint32_t head = index / n_pairs, i = index % n_pairs;
    x += (size_t)p->position * pos_stride + ((size_t)t * heads + head) * head_dim;
    const uint32_t a = neox ? i : 2 * i, b = neox ? i + n_pairs : 2 * i + 1;
    const size_t angle = (size_t)(p->position + t) * n_pairs + i;
    const float c = cos[angle], s = sin[angle], xa = x[a], xb = x[b];
    x[a] = xa * c - xb * s;
    x[b] = xa * s + xb * c;
}
