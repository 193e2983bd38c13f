// What a device does at best: loops that only read, or only multiply and add.
#include "common.cuh"

#define PEAK_THREADS 256u

#ifdef __CUDACC_RTC__
// Past L1, which is a multiprocessor's own: what is read again comes from L2.
static __device__ __forceinline__ uint4 read_past_l1(const uint4 *from) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
#else
static inline uint4 read_past_l1(const uint4 *from) { return *from; }
#endif

static __device__ __forceinline__ uint32_t scrambled(uint32_t x) {
    x *= 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return x ^ x >> 13;
}

static __device__ __forceinline__ uint32_t mixed(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

// Fills `len` times 16 bytes with numbers whose bits look random, since buses take less power for zeros.
//
// Grid (any), block 256.
extern "C" __global__ void __launch_bounds__(PEAK_THREADS)
    peak_fill(uint4 *__restrict__ out, uint32_t len, uint64_t *began) {
    note_begin(began);
    for (uint64_t i = blockIdx.x * PEAK_THREADS + threadIdx.x; i < len; i += gridDim.x * PEAK_THREADS) {
        uint4 v;
        v.x = scrambled(4 * (uint32_t)i), v.y = scrambled(4 * (uint32_t)i + 1);
        v.z = scrambled(4 * (uint32_t)i + 2), v.w = scrambled(4 * (uint32_t)i + 3);
        out[i] = v;
    }
}

// Each thread reads 16 bytes 8 · `rounds` times, as many as every other one: all of the `len` that there are, one after
// the other, again and again. It writes what it made of them to `out`, so that no read can be left out.
//
// Grid (any), block 256.
extern "C" __global__ void __launch_bounds__(PEAK_THREADS)
    peak_read(uint32_t *__restrict__ out, const uint4 *__restrict__ data, uint32_t len, uint32_t rounds, uint64_t *began) {
    note_begin(began);
    const uint32_t thread = blockIdx.x * PEAK_THREADS + threadIdx.x;
    const uint32_t step = gridDim.x * PEAK_THREADS % len;
    uint32_t at = thread % len, sum = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        uint4 v[8];
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            v[k] = read_past_l1(&data[at]);
            at = at < len - step ? at + step : at - (len - step);
        }
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) sum += mixed(v[k]);
    }
    out[thread] = sum;
}

// 256 multiplications and additions of floats in each round, in 16 chains that wait for nothing but themselves:
// v² − 1.9, whose values go on changing and stay between −1.9 and 1.9. Each thread writes their sum to `out`.
//
// Grid (any), block 256.
extern "C" __global__ void __launch_bounds__(PEAK_THREADS)
    peak_multiply_add(float *__restrict__ out, uint32_t rounds, uint64_t *began) {
    note_begin(began);
    const uint32_t thread = blockIdx.x * PEAK_THREADS + threadIdx.x;
    float v[16];
#pragma unroll
    for (uint32_t k = 0; k < 16; k++) v[k] = (float)(thread % 97 + k) * 0.01f;
    for (uint32_t round = 0; round < rounds; round++) {
#pragma unroll
        for (uint32_t step = 0; step < 16; step++) {
#pragma unroll
            for (uint32_t k = 0; k < 16; k++) v[k] = fmaf(v[k], v[k], -1.9f);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (uint32_t k = 0; k < 16; k++) sum += v[k];
    out[thread] = sum;
}
