// Matrix times matrix, out[t] = W·x[t]: what the prompt's tokens go through together.
//
// Grid (ceil(rows / 32), ceil(n / 64)), block 128: a block has 32 rows by 64 tokens, a thread 4 by 4 of
// them. Pieces of 32 columns pass through shared memory as floats:
//
//           32 columns
//  32 rows ┌────────┐     weights, decoded once for 64 tokens
//          └────────┘
// 64 tokens┌────────┐     activations
//          └────────┘     8 loads of four floats for 64 multiply-adds
//
// The next piece is on its way into registers meanwhile. Rows are 36 floats apart there, so that eight
// neighbours lie in 32 different banks.
#include "weights.cuh"

#define ROWS 32u
#define TOKENS 64u
#define DEPTH 32u
#define STRIDE (DEPTH + 4u)
#define THREADS 128u
#define TX 8u  // threads along rows, each with every 8th
#define TY 16u // threads along tokens, each with every 16th

// Four floats of shared memory at a 16-byte border.
static __device__ __forceinline__ void store8(float *at, const float v[8]) {
    *(float4 *)at = make_float4(v[0], v[1], v[2], v[3]);
    *(float4 *)(at + 4) = make_float4(v[4], v[5], v[6], v[7]);
}

// `PER_THREAD` tokens each: 4, or 1 where the tile has no more than 16.
template <class Format, uint32_t PER_THREAD>
static __device__ __forceinline__ void tile(float *out, const uint8_t *w, const float *x, uint32_t rows,
                                            uint32_t cols, uint32_t n, float (*weights)[STRIDE],
                                            float (*activations)[STRIDE]) {
    const uint32_t row0 = blockIdx.x * ROWS, token0 = blockIdx.y * TOKENS;
    const uint32_t tx = threadIdx.x % TX, ty = threadIdx.x / TX;
    // Four threads load the 32 columns of a row, or of a token.
    const uint32_t line = threadIdx.x / 4, at = threadIdx.x % 4 * 8;
    // That is 32 tokens: half of 64, twice 16.
    constexpr uint32_t n_loads = PER_THREAD == 4 ? 2 : 1;
    const bool loads_tokens = PER_THREAD == 4 || line < TY;
    const uint8_t *row = Format::row(w, min(row0 + line, rows - 1), cols);

    float next_w[8], next_x[n_loads][8];
    float sums[4][PER_THREAD] = {};
    const auto load = [&](uint32_t k) {
        if (k + at < cols) {
            Format::weights(next_w, row, k + at, cols);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) next_w[i] = 0.0f;
        }
#pragma unroll
        for (uint32_t j = 0; j < n_loads; j++) {
            const uint32_t token = token0 + line + 32 * j;
            if (loads_tokens && token < n && k + at < cols) {
                load8_for<Format>(next_x[j], x + (size_t)token * cols, k + at, cols);
            } else {
#pragma unroll
                for (uint32_t i = 0; i < 8; i++) next_x[j][i] = 0.0f;
            }
        }
    };

    load(0);
    for (uint32_t k = 0; k < cols; k += DEPTH) {
        store8(&weights[line][at], next_w);
#pragma unroll
        for (uint32_t j = 0; j < n_loads; j++)
            if (loads_tokens) store8(&activations[line + 32 * j][at], next_x[j]);
        __syncthreads();
        if (k + DEPTH < cols) load(k + DEPTH);
#pragma unroll 1
        for (uint32_t c = 0; c < DEPTH; c += 4) {
            float4 a[4], b[PER_THREAD];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) a[i] = *(const float4 *)&weights[tx + TX * i][c];
#pragma unroll
            for (uint32_t j = 0; j < PER_THREAD; j++) b[j] = *(const float4 *)&activations[ty + TY * j][c];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
#pragma unroll
                for (uint32_t j = 0; j < PER_THREAD; j++) {
                    sums[i][j] += a[i].x * b[j].x;
                    sums[i][j] += a[i].y * b[j].y;
                    sums[i][j] += a[i].z * b[j].z;
                    sums[i][j] += a[i].w * b[j].w;
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        const uint32_t token = token0 + ty + TY * j;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t r = row0 + tx + TX * i;
            if (token < n && r < rows) out[(size_t)token * rows + r] = sums[i][j];
        }
    }
}

#define GEMM(name, Format)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                   \
        name(float *__restrict__ out, const uint8_t *__restrict__ w, const float *__restrict__ x,           \
             const Params *__restrict__ p, uint32_t rows, uint32_t cols, uint32_t out_pos_stride,           \
             uint32_t n, uint64_t *__restrict__ began) {                                                    \
        note_begin(began);                                                                                  \
        __shared__ __align__(16) float weights[ROWS][STRIDE];                                               \
        __shared__ __align__(16) float activations[TOKENS][STRIDE];                                         \
        out += (size_t)p->position * out_pos_stride;                                                        \
        if (n - blockIdx.y * TOKENS <= TY) {                                                                \
            tile<Format, 1>(out, w, x, rows, cols, n, weights, activations);                                \
        } else {                                                                                            \
            tile<Format, 4>(out, w, x, rows, cols, n, weights, activations);                                \
        }                                                                                                   \
    }

GEMM(gemm_f32, F32)
GEMM(gemm_f16, F16)
GEMM(gemm_q8_0, Q8_0)
GEMM(gemm_q4_k, Q4_K)

#undef ROWS
#undef TOKENS
#undef DEPTH
#undef STRIDE
#undef THREADS
#undef TX
#undef TY
