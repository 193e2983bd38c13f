// Rows of the table of embeddings: out[t] = table[tokens[t]].
//
// Grid (ceil(dim / 1024), tokens), block 128: a thread has eight elements.
#include "weights.cuh"

template <class Format>
static __device__ void embed(float *out, const uint8_t *table, const uint32_t *tokens, uint32_t dim) {
    const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 8, t = blockIdx.y;
    if (at >= dim) return;
    float w[8];
    Format::weights(w, Format::row(table, tokens[t], dim), at, dim);
    float *row = out + (size_t)t * dim + at;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        if (at + i < dim) row[i] = w[i];
}

#define EMBED(name, Format)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                       \
        name(float *__restrict__ out, const uint8_t *__restrict__ table,                                    \
             const uint32_t *__restrict__ tokens, uint32_t dim, uint64_t *__restrict__ began) {             \
        note_begin(began);                                                                                  \
        embed<Format>(out, table, tokens, dim);                                                             \
    }

EMBED(embed_f32, F32)
EMBED(embed_f16, F16)
EMBED(embed_q8_0, Q8_0)
EMBED(embed_q4_k, Q4_K)
