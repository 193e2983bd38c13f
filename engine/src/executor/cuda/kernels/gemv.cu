// Matrix times vector, out = W·x: what a single token goes through. It is as fast as weights arrive.
//
// Grid (ceil(rows / 4)), block 128: a block has four rows, whose weights are on their way together, and
// reads x once for them.
#include "weights.cuh"

#define ROWS 4u // as many as `warp_sum_of_four` has
#define THREADS 128u

// Adds up what the threads of the block have of each row, and writes it.
static __device__ __forceinline__ void write_rows(float *out, const float sums[ROWS], uint32_t first, uint32_t rows) {
    __shared__ float partial[ROWS][THREADS / WARP];
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float of_warp = warp_sum_of_four(sums);
    if (lane % 8 == 0) partial[lane / 8][warp] = of_warp;
    __syncthreads();
    if (threadIdx.x < ROWS && first + threadIdx.x < rows) {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t w = 0; w < THREADS / WARP; w++) sum += partial[threadIdx.x][w];
        out[first + threadIdx.x] = sum;
    }
}

// Where the block's rows begin. Past the last row it is the last one again, which nobody writes.
template <class Format>
static __device__ __forceinline__ void find_rows(const uint8_t *at[ROWS], const uint8_t *w, uint32_t first,
                                                 uint32_t rows, uint32_t cols) {
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) at[r] = Format::row(w, min(first + r, rows - 1), cols);
}

// The product of eight weights with as many of x.
template <class Format>
struct Dot {
    static __device__ __forceinline__ float of(const uint8_t *row, const float x[8], uint32_t at, uint32_t cols) {
        float weights[8], dot = 0.0f;
        Format::weights(weights, row, at, cols);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) dot += weights[i] * x[i];
        return dot;
    }
};

// With the scale applied to the sum.
template <>
struct Dot<Q8_0> {
    static __device__ __forceinline__ float of(const uint8_t *row, const float x[8], uint32_t at, uint32_t) {
        float quants[8], dot = 0.0f;
        const float d = Q8_0::quants(quants, row, at);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) dot += quants[i] * x[i];
        return d * dot;
    }
};

template <class Format>
static __device__ __forceinline__ void gemv(float *out, const uint8_t *w, const float *x, const Params *p,
                                            uint32_t rows, uint32_t cols, uint32_t out_pos_stride) {
    const uint32_t first = blockIdx.x * ROWS;
    const uint8_t *row[ROWS];
    find_rows<Format>(row, w, first, rows, cols);
    float sums[ROWS] = {};
    for (uint32_t at = threadIdx.x * 8; at < cols; at += THREADS * 8) {
        float v[8];
        load8_for<Format>(v, x, at, cols);
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) sums[r] += Dot<Format>::of(row[r], v, at, cols);
    }
    write_rows(out + (size_t)p->position * out_pos_stride, sums, first, rows);
}

// Both halves of eight bytes at once, so that no byte is read twice: 16 threads have a block of 256. The
// scale is applied to the sum of eight products, the minimum to the sum of x.
static __device__ __forceinline__ void gemv_both_halves(float *out, const uint8_t *w, const float *x,
                                                        const Params *p, uint32_t rows, uint32_t cols,
                                                        uint32_t out_pos_stride) {
    const uint32_t first = blockIdx.x * ROWS;
    const uint8_t *row[ROWS];
    find_rows<Q4_K>(row, w, first, rows, cols);
    const uint32_t c = threadIdx.x % 16 / 4, l = threadIdx.x % 4 * 8;
    float sums[ROWS] = {};
    for (uint32_t block = threadIdx.x / 16; block < cols / 256; block += THREADS / 16) {
        float low[8], high[8];
        load8(low, x + block * 256 + c * 64 + l);
        load8(high, x + block * 256 + c * 64 + 32 + l);
        float low_sum = 0.0f, high_sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) low_sum += low[i], high_sum += high[i];
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint8_t *bytes = row[r] + (size_t)block * 144;
            const uint2 q = *(const uint2 *)(bytes + 16 + 32 * c + l);
            const float4 s = Q4_K::scales(bytes, c);
            const uint32_t low4[2] = {q.x & 0x0f0f0f0f, q.y & 0x0f0f0f0f};
            const uint32_t high4[2] = {q.x >> 4 & 0x0f0f0f0f, q.y >> 4 & 0x0f0f0f0f};
            float low_dot = 0.0f, high_dot = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) {
                low_dot += byte_to_float(low4[i / 4], i % 4) * low[i];
                high_dot += byte_to_float(high4[i / 4], i % 4) * high[i];
            }
            sums[r] += s.x * low_dot - s.y * low_sum + (s.z * high_dot - s.w * high_sum);
        }
    }
    write_rows(out + (size_t)p->position * out_pos_stride, sums, first, rows);
}

#define GEMV(name, run)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                   \
        name(float *__restrict__ out, const uint8_t *__restrict__ w, const float *__restrict__ x,           \
             const Params *__restrict__ p, uint32_t rows, uint32_t cols, uint32_t out_pos_stride) {         \
        run(out, w, x, p, rows, cols, out_pos_stride);                                                      \
    }

GEMV(gemv_f32, gemv<F32>)
GEMV(gemv_f16, gemv<F16>)
GEMV(gemv_q8_0, gemv<Q8_0>)
GEMV(gemv_q4_k, gemv_both_halves)

#undef ROWS
#undef THREADS
