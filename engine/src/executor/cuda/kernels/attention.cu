// Attention of each query head to the keys and values of the cache: softmax(scale * q·Kᵀ)·V in three.
//
// Token t of the pass sees the keys 0 to position + t. Keys and values are (capacity, n_kv_heads,
// head_dim); scores are (n, n_heads, capacity), and what a token doesn't see is neither written nor read.
// Several query heads in turn share a head of keys and values, where there are fewer of these.
#include "common.cuh"

// s[t, h, j] = scale * q[t, h]·k[j, kv_head(h)].
//
// Grid (n_heads, n, splits), block 128: eight threads have a key, and the blocks of a row take turns at
// 16 keys. Shared memory: head_dim floats.
extern "C" __global__ void __launch_bounds__(128)
    scores(float *__restrict__ s, const float *__restrict__ q, const float *__restrict__ k,
           const Params *__restrict__ p, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, float scale,
           uint32_t capacity, uint64_t *__restrict__ began) {
    note_begin(began);
    SHARED_OF_LAUNCH(shared);
    float *query = (float *)shared;
    const uint32_t h = blockIdx.x, t = blockIdx.y, lane = threadIdx.x % 8;
    const uint32_t visible = p->position + t + 1;
    const uint32_t stride = n_kv_heads * head_dim;
    const size_t row = (size_t)t * n_heads + h;
    q += row * head_dim;
    s += row * capacity;
    k += h / (n_heads / n_kv_heads) * head_dim;

    for (uint32_t i = threadIdx.x; i < head_dim; i += blockDim.x) query[i] = q[i];
    __syncthreads();
    // All eight of a key, and all keys of a warp, stay together: what they add up they exchange.
    for (uint32_t first = blockIdx.z * 16; first < visible; first += gridDim.z * 16) {
        const uint32_t j = first + threadIdx.x / 8;
        const float *key = k + (size_t)min(j, visible - 1) * stride;
        float dot = 0.0f;
        if (head_dim % 4 == 0) {
#pragma unroll 4
            for (uint32_t i = 4 * lane; i < head_dim; i += 32) {
                const float4 a = *(const float4 *)(query + i), b = *(const float4 *)(key + i);
                dot += a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
            }
        } else {
            for (uint32_t i = lane; i < head_dim; i += 8) dot += query[i] * key[i];
        }
        dot += __shfl_xor_sync(ALL_LANES, dot, 4);
        dot += __shfl_xor_sync(ALL_LANES, dot, 2);
        dot += __shfl_xor_sync(ALL_LANES, dot, 1);
        if (lane == 0 && j < visible) s[j] = scale * dot;
    }
}

// Each row of scores to probabilities, in place.
//
// Grid (n_heads, n), block a multiple of 32 up to 1024: a block has a row.
extern "C" __global__ void __launch_bounds__(1024)
    softmax(float *__restrict__ s, const Params *__restrict__ p, uint32_t n_heads, uint32_t capacity,
            uint64_t *__restrict__ began) {
    note_begin(began);
    __shared__ float partial[WARP];
    const uint32_t t = blockIdx.y, visible = p->position + t + 1;
    s += ((size_t)t * n_heads + blockIdx.x) * capacity;

    float max = s[0];
    for (uint32_t j = threadIdx.x; j < visible; j += blockDim.x) max = fmaxf(max, s[j]);
    max = block_max(max, partial);
    float sum = 0.0f;
    for (uint32_t j = threadIdx.x; j < visible; j += blockDim.x) {
        const float e = expf(s[j] - max);
        s[j] = e;
        sum += e;
    }
    const float scale = 1.0f / block_sum(sum, partial);
    for (uint32_t j = threadIdx.x; j < visible; j += blockDim.x) s[j] *= scale;
}

// a[t, h] = Σ_j s[t, h, j] * v[j, kv_head(h)].
//
// Grid (n_heads, n, ceil(head_dim / 32)), block 256: a block has 32 elements of a head; eight threads
// with four each have every 32nd value, and add up in shared memory.
extern "C" __global__ void __launch_bounds__(256)
    weighted_sum(float *__restrict__ a, const float *__restrict__ s, const float *__restrict__ v,
                 const Params *__restrict__ p, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                 uint32_t capacity, uint64_t *__restrict__ began) {
    note_begin(began);
    __shared__ float partial[32][33];
    const uint32_t h = blockIdx.x, t = blockIdx.y;
    const uint32_t group = threadIdx.x / 8, at = threadIdx.x % 8 * 4;
    const uint32_t d = blockIdx.z * 32 + at, visible = p->position + t + 1;
    const uint32_t stride = n_kv_heads * head_dim;
    const size_t row = (size_t)t * n_heads + h;
    s += row * capacity;
    v += h / (n_heads / n_kv_heads) * head_dim;

    float sums[4] = {};
    if (head_dim % 4 == 0) {
        if (d < head_dim) {
#pragma unroll 4
            for (uint32_t j = group; j < visible; j += 32) {
                const float4 value = *(const float4 *)(v + (size_t)j * stride + d);
                const float weight = s[j];
                sums[0] += weight * value.x, sums[1] += weight * value.y;
                sums[2] += weight * value.z, sums[3] += weight * value.w;
            }
        }
    } else {
        for (uint32_t j = group; j < visible; j += 32) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (d + i < head_dim) sums[i] += s[j] * v[(size_t)j * stride + d + i];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) partial[group][at + i] = sums[i];
    __syncthreads();
    // A warp has four columns, a lane a group of each.
    const uint32_t lane = threadIdx.x % WARP, column = threadIdx.x / WARP * 4;
    float columns[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) columns[i] = partial[lane][column + i];
    const float sum = warp_sum_of_four(columns);
    const uint32_t element = blockIdx.z * 32 + column + lane / 8;
    if (lane % 8 == 0 && element < head_dim) a[row * head_dim + element] = sum;
}

// The three above at once, for a single token, so that scores never leave the block.
//
// Grid (n_heads, splits), block of whole warps up to 1024: a block has a part of a head's keys; the last of a head's
// blocks to end puts their parts together. `partial` is (n_heads, splits, head_dim + 2), `arrived` a zero for each
// head, which it is again afterwards; both are unused without splits. Shared memory: head_dim floats, and one for each
// key of a part. head_dim is a multiple of 4 up to 256.
extern "C" __global__ void __launch_bounds__(1024)
    attention(float *__restrict__ a, float *partial, uint32_t *arrived, const float *__restrict__ q,
              const float *__restrict__ k, const float *__restrict__ v, const Params *__restrict__ p,
              uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, float scale, uint64_t *__restrict__ began) {
    note_begin(began);
    SHARED_OF_LAUNCH(shared);
    __shared__ float of_warps[WARP];
    __shared__ float4 sums[1024];
    __shared__ uint32_t before;
    const uint32_t h = blockIdx.x, part = blockIdx.y, parts = gridDim.y;
    const uint32_t visible = p->position + 1, most = (visible + parts - 1) / parts;
    const uint32_t first = min(part * most, visible), n = min(most, visible - first);
    const uint32_t stride = n_kv_heads * head_dim, at = h / (n_heads / n_kv_heads) * head_dim;
    float *query = (float *)shared, *s = query + head_dim;
    k += (size_t)first * stride + at, v += (size_t)first * stride + at;
    for (uint32_t i = threadIdx.x; i < head_dim; i += blockDim.x) query[i] = q[h * head_dim + i];
    __syncthreads();

    // Eight threads have a key, and stay together.
    const uint32_t lane = threadIdx.x % 8;
    float max = -INFINITY;
    for (uint32_t base = 0; base < n; base += blockDim.x / 8) {
        const uint32_t j = base + threadIdx.x / 8;
        const float *key = k + (size_t)min(j, n - 1) * stride;
        float dot = 0.0f;
#pragma unroll 4
        for (uint32_t i = 4 * lane; i < head_dim; i += 32) {
            const float4 a = *(const float4 *)(query + i), b = *(const float4 *)(key + i);
            dot += a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
        }
        dot += __shfl_xor_sync(ALL_LANES, dot, 4);
        dot += __shfl_xor_sync(ALL_LANES, dot, 2);
        dot += __shfl_xor_sync(ALL_LANES, dot, 1);
        max = fmaxf(max, scale * dot);
        if (lane == 0 && j < n) s[j] = scale * dot;
    }
    max = block_max(max, of_warps);
    float sum = 0.0f;
    for (uint32_t j = threadIdx.x; j < n; j += blockDim.x) {
        const float e = expf(s[j] - max);
        s[j] = e;
        sum += e;
    }
    sum = block_sum(sum, of_warps);

    // Threads have four columns of every so-manieth value.
    const uint32_t columns = head_dim / 4, column = threadIdx.x % columns, groups = blockDim.x / columns;
    float4 mine = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (uint32_t j = threadIdx.x / columns; j < n; j += groups) {
        const float4 value = *(const float4 *)(v + (size_t)j * stride + 4 * column);
        mine.x += s[j] * value.x, mine.y += s[j] * value.y, mine.z += s[j] * value.z, mine.w += s[j] * value.w;
    }
    sums[threadIdx.x] = mine;
    __syncthreads();
    const uint32_t d = threadIdx.x;
    float weighted = 0.0f;
    if (d < head_dim)
        for (uint32_t group = 0; group < groups; group++)
            weighted += ((const float *)(sums + group * columns))[d];
    if (parts == 1) {
        if (d < head_dim) a[h * head_dim + d] = weighted / sum;
        return;
    }

    volatile float *of_head = partial + (size_t)h * parts * (head_dim + 2);
    volatile float *own = of_head + part * (head_dim + 2);
    if (d < head_dim) own[2 + d] = weighted;
    if (d == 0) own[0] = max, own[1] = sum;
    __threadfence();
    __syncthreads();
    if (d == 0) before = atomicAdd(arrived + h, 1u);
    __syncthreads();
    if (before != parts - 1) return;
    __threadfence();
    float highest = -INFINITY, all = 0.0f;
    for (uint32_t i = 0; i < parts; i++) highest = fmaxf(highest, of_head[i * (head_dim + 2)]);
    weighted = 0.0f;
    for (uint32_t i = 0; i < parts; i++) {
        volatile float *other = of_head + i * (head_dim + 2);
        // A part without keys has a maximum of minus infinity, so counts as nothing.
        const float weight = expf(other[0] - highest);
        all += weight * other[1];
        if (d < head_dim) weighted += weight * other[2 + d];
    }
    if (d < head_dim) a[h * head_dim + d] = weighted / all;
    if (d == 0) arrived[h] = 0;
}
