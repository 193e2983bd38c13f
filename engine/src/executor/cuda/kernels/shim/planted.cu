// Kernels that break the rules of CUDA, to see the shim find out.

// The sum of what the warp's lanes have, without waiting for them.
extern "C" __global__ void planted_missing_barrier(float *out) {
    __shared__ float values[32];
    values[threadIdx.x] = (float)threadIdx.x;
    float sum = 0.0f;
    for (uint32_t i = 0; i < 32; i++) sum += values[i];
    out[threadIdx.x] = sum;
}

// Half of the threads leave before the others wait for them.
extern "C" __global__ void planted_lonely_barrier(float *out) {
    if (threadIdx.x >= 16) return;
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}

// Half of a warp exchanges values with all of it.
extern "C" __global__ void planted_lonely_shuffle(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = warp_sum(1.0f);
    __syncthreads();
}

// Four floats at once from where four begin only by chance.
extern "C" __global__ void planted_misaligned(float *out, const float *x) {
    *(float4 *)out = *(const float4 *)(x + 1);
}

// A float behind the shared memory that it was given.
extern "C" __global__ void planted_overflow(float *out) {
    SHARED_OF_LAUNCH(shared);
    ((float *)shared)[32] = out[0];
}

// The element after the last of 8, read and not used.
extern "C" __global__ void planted_read_behind(float *out, const float *x) {
    const volatile float *element = x + 8;
    if (*element != *element) out[0] = 0.0f;
}

// One warp begins a second sum while another may still read the first: `block_sum` without its first barrier.
extern "C" __global__ void planted_hasty_warp(float *out) {
    __shared__ float partial[2];
    for (uint32_t round = 1; round <= 2; round++) {
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = (float)round;
        __syncthreads();
        out[(round - 1) * 64 + threadIdx.x] = partial[0] + partial[1];
    }
}
