// Times by the device's own clock, `%globaltimer`: nanoseconds since some moment, in steps that differ
// between devices (32 ns on an H200, 1024 ns on some).
#include "common.cuh"

// Notes when the stream came here, in slot `slot` of `row`, and hands the slots up to it to the host: `host` is its
// memory, where the last one arrives after all others.
//
// Grid (1), block 128.
extern "C" __global__ void __launch_bounds__(128)
    stamp(volatile uint64_t *row, volatile uint64_t *host, uint32_t slot) {
    __shared__ uint64_t now;
    if (threadIdx.x == 0) row[slot] = now = global_timer();
    for (uint32_t i = threadIdx.x; i < slot; i += blockDim.x) host[i] = row[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        host[slot] = now;
    }
}

// `n` times that follow one another, each another than the last: their least difference is the clock's
// step. A clock that stands still leaves zeros.
//
// Grid (1), block 1.
extern "C" __global__ void __launch_bounds__(1) tick(uint64_t *__restrict__ out, uint32_t n) {
    uint64_t last = global_timer();
    for (uint32_t i = 0; i < n; i++) out[i] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t now = last;
        for (uint32_t polls = 0; now == last; polls++) {
            if (polls == 1u << 20) return;
            now = global_timer();
        }
        out[i] = last = now;
    }
}
