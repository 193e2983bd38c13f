// What the kernels share. Compiled by NVRTC for devices, and by a C++ compiler through shim/shim.hpp.
#ifndef BRICKSCOPE_COMMON_CUH
#define BRICKSCOPE_COMMON_CUH

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

// Inline assembly, since cuda_fp16.h is no part of NVRTC.
static __device__ __forceinline__ float half_to_float(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

static __device__ __forceinline__ uint64_t global_timer() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

#define INFINITY __int_as_float(0x7f800000)

// Shared memory of as many bytes as the launch asks for.
#define SHARED_OF_LAUNCH(name) extern __shared__ float4 name[]
#endif

#define WARP 32u
#define ALL_LANES 0xffffffffu

// What a pass is about. In memory and no argument, so that a graph of launches can be replayed.
struct Params {
    uint32_t position; // of the first token
    uint32_t n;        // tokens
};

// Notes when the kernel begins, if somebody wants to know: the last argument of each kernel, null if nobody does. The
// kernel before it in the stream has ended by then.
static __device__ __forceinline__ void note_begin(uint64_t *began) {
    if (began && (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0) *began = global_timer();
}

static __device__ __forceinline__ float warp_sum(float v) {
    for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) v += __shfl_xor_sync(ALL_LANES, v, lanes);
    return v;
}

// Four sums at once: lanes 8r to 8r + 7 get that of `v[r]`. Half of the lanes go on with two of them and half
// with the others, then a quarter with each: six exchanges instead of twenty.
static __device__ __forceinline__ float warp_sum_of_four(const float v[4]) {
    const bool later_half = threadIdx.x & 16, odd = threadIdx.x & 8;
    const float even_gift = later_half ? v[0] : v[2], odd_gift = later_half ? v[1] : v[3];
    const float even_sum = (later_half ? v[2] : v[0]) + __shfl_xor_sync(ALL_LANES, even_gift, 16);
    const float odd_sum = (later_half ? v[3] : v[1]) + __shfl_xor_sync(ALL_LANES, odd_gift, 16);
    float sum = (odd ? odd_sum : even_sum) + __shfl_xor_sync(ALL_LANES, odd ? even_sum : odd_sum, 8);
#pragma unroll
    for (uint32_t lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lanes);
    return sum;
}

static __device__ __forceinline__ float warp_max(float v) {
    for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, lanes));
    return v;
}

// The sum over a block of whole warps, in every thread. `partial` has room for a float a warp.
static __device__ __forceinline__ float block_sum(float v, float *partial) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_sum(v);
    __syncthreads(); // an earlier sum may still be read
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? partial[lane] : 0.0f);
}

// The same for the maximum.
static __device__ __forceinline__ float block_max(float v, float *partial) {
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_max(v);
    __syncthreads();
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    return warp_max(partial[lane < blockDim.x / WARP ? lane : 0]);
}

static __device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

static __device__ __forceinline__ float relu_squared(float x) {
    const float relu = fmaxf(x, 0.0f);
    return relu * relu;
}

#endif
