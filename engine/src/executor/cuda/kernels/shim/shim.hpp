// CUDA as far as our kernels need it, on a CPU, so that the sources that NVRTC compiles run without a GPU.
//
// A block's threads are fibers of one thread of the system: each runs until it waits for the others, at
// `__syncthreads` or in a shuffle. Blocks run one after the other, and a warp runs as far as it gets before
// the next begins. Which one is next can be chosen (`shim_set_order`): a kernel that forgot a barrier gives
// other numbers in another order. Shared memory is all NaN when a block begins, so that what nobody wrote
// is seen.
//
// A kernel that breaks the rules of CUDA ends with a sentence instead of a result: a thread that waits for
// one that is gone, a warp of which some lanes meet at a shuffle, a misaligned pointer, a read or a write
// outside of the buffers, or behind the shared memory of a launch.
#ifndef BRICKSCOPE_SHIM_HPP
#define BRICKSCOPE_SHIM_HPP

#include <cmath>
#include <cstdint>
#include <cstring>

struct uint3 {
    uint32_t x, y, z;
};
struct uint2 {
    uint32_t x, y;
} __attribute__((aligned(8)));
struct uint4 {
    uint32_t x, y, z, w;
} __attribute__((aligned(16)));
struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));

static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }

static inline float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Four of the eight bytes of two words, chosen by the nibbles of `selector`.
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = (uint64_t)high << 32 | low;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; i++) result |= (uint32_t)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}

// Variables of shared memory lie together, so that they can be found and filled with NaN. (Not those in
// templates: GCC puts these elsewhere.)
#define __shared__ static __attribute__((section("shared_memory")))
#define SHARED_OF_LAUNCH(name) float4 *const name = shim::shared_of_launch
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

namespace shim {

extern uint3 thread_index, block_index, block_size, grid_size;
extern float4 shared_of_launch[];

void sync_block();
// `value` of the lane whose number is this one's with the bits of `lane_xor` flipped.
float exchange(uint32_t mask, float value, uint32_t lane_xor);
uint64_t global_timer();

} // namespace shim

#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

static inline void __syncthreads() { shim::sync_block(); }
static inline float __shfl_xor_sync(uint32_t mask, float v, uint32_t lane) { return shim::exchange(mask, v, lane); }
// Threads run one at a time.
static inline void __threadfence() {}
static inline void __threadfence_system() {}
static inline uint32_t atomicAdd(uint32_t *at, uint32_t more) {
    const uint32_t before = *at;
    *at = before + more;
    return before;
}
static inline uint64_t global_timer() { return shim::global_timer(); }

// IEEE 754's half, to the bit.
static inline float half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp((float)mantissa, -24);
    return __uint_as_float(sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | mantissa << 13);
}

#endif
