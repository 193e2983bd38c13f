// Element by element: residuals, biases, and the gate of a feed-forward layer.
//
// Grid (ceil(len / 1024)), block 256: a thread has four neighbours.
#include "common.cuh"

// x += y.
extern "C" __global__ void __launch_bounds__(256)
    add(float *__restrict__ x, const float *__restrict__ y, uint32_t len, uint64_t *__restrict__ began) {
    note_begin(began);
    const uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= len) {
        const float4 a = *(const float4 *)(x + i), b = *(const float4 *)(y + i);
        *(float4 *)(x + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else {
        for (uint32_t j = i; j < len; j++) x[j] += y[j];
    }
}

// x[i] += bias[i % width].
extern "C" __global__ void __launch_bounds__(256)
    add_bias(float *__restrict__ x, const float *__restrict__ bias, const Params *__restrict__ p, uint32_t width,
             uint32_t len, uint32_t pos_stride, uint64_t *__restrict__ began) {
    note_begin(began);
    x += (size_t)p->position * pos_stride;
    const uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    for (uint32_t i = first; i < min(first + 4, len); i++) x[i] += bias[i % width];
}

// gate = silu(gate) * up (Shazeer, "GLU Variants Improve Transformer", 2020).
extern "C" __global__ void __launch_bounds__(256)
    silu_mul(float *__restrict__ gate, const float *__restrict__ up, uint32_t len, uint64_t *__restrict__ began) {
    note_begin(began);
    const uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= len) {
        const float4 g = *(const float4 *)(gate + i), u = *(const float4 *)(up + i);
        *(float4 *)(gate + i) = make_float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w);
    } else {
        for (uint32_t j = i; j < len; j++) gate[j] = silu(gate[j]) * up[j];
    }
}

// gate = max(gate, 0)² * up, the gate of BitNet b1.58 2B4T.
extern "C" __global__ void __launch_bounds__(256)
    relu_squared_mul(float *__restrict__ gate, const float *__restrict__ up, uint32_t len, uint64_t *__restrict__ began) {
    note_begin(began);
    const uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= len) {
        const float4 g = *(const float4 *)(gate + i), u = *(const float4 *)(up + i);
        *(float4 *)(gate + i) = make_float4(relu_squared(g.x) * u.x, relu_squared(g.y) * u.y,
                                            relu_squared(g.z) * u.z, relu_squared(g.w) * u.w);
    } else {
        for (uint32_t j = i; j < len; j++) gate[j] = relu_squared(gate[j]) * up[j];
    }
}
