// Times by the device's own clock, `%globaltimer`: nanoseconds since some moment, in steps that differ
// between devices (1024 ns on some).
//
// Grid (1), block 1.
#include "common.cuh"

// Notes when the stream came here, in the row of this iteration: rings have room for `ring_len` of them,
// with `slots` each.
extern "C" __global__ void __launch_bounds__(1)
    stamp(uint64_t *__restrict__ ring, const uint32_t *__restrict__ iteration, uint32_t slots, uint32_t ring_len,
          uint32_t slot) {
    ring[(size_t)(*iteration % ring_len) * slots + slot] = global_timer();
}

// The next iteration begins.
extern "C" __global__ void __launch_bounds__(1) advance(uint32_t *iteration) { *iteration += 1; }

// `n` times that follow one another, each another than the last: their least difference is the clock's
// step. A clock that stands still leaves zeros.
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
