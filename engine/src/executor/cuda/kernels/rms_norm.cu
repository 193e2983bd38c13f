// Root mean square normalisation (Zhang and Sennrich, 2019): out = x * weight / sqrt(mean(x²) + eps).
//
// Grid (rows), block a multiple of 32 up to 1024: a block has a row.
#include "common.cuh"

// `out` may be `x`, so neither is restrict.
extern "C" __global__ void __launch_bounds__(1024)
    rms_norm(float *out, const float *x, const float *__restrict__ weight, const Params *__restrict__ p,
             uint32_t width, float eps, uint32_t out_pos_stride, uint32_t x_pos_stride,
             uint64_t *__restrict__ began) {
    note_begin(began);
    __shared__ float partial[WARP];
    const size_t row = (size_t)blockIdx.x * width;
    out += (size_t)p->position * out_pos_stride + row;
    x += (size_t)p->position * x_pos_stride + row;

    float squares = 0.0f;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) squares += x[i] * x[i];
    const float scale = 1.0f / sqrtf(block_sum(squares, partial) / (float)width + eps);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = x[i] * scale * weight[i];
}
