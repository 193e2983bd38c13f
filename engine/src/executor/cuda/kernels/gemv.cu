// Matrix times vector, out = W·x: what a single token goes through. It is as fast as weights arrive.
//
// Any grid, block 256. A warp has two rows, or two warps have; so a block has 16 rows at a time, or eight. Shared
// memory of the launch: 20 bytes for each of `cols`, rounded up to 16, of PIECE at most. The first weights are asked
// for before x, and the next ones before those at hand are used: a device's memory is only busy while many bytes are on
// their way.
#include "weights.cuh"

#define THREADS 256u
#define WARPS (THREADS / WARP)
// Columns of x that lie in shared memory at once.
#define PIECE 8192u

// Where column `i` of x lies: with a gap after each 16, lanes that have 16 columns each read from all banks.
static __device__ __forceinline__ uint32_t place(uint32_t i) { return i + i / 16 * 4; }

// `n` columns from `at` on, which is a multiple of `n`: 8 or 16.
template <uint32_t N>
static __device__ __forceinline__ void load_x(float out[N], const float *shared, uint32_t at) {
#pragma unroll
    for (uint32_t i = 0; i < N; i += 4) {
        const float4 v = *(const float4 *)(shared + place(at) + i);
        out[i] = v.x, out[i + 1] = v.y, out[i + 2] = v.z, out[i + 3] = v.w;
    }
}

// What a lane has of a row in a step: `COLS` columns. `load` asks for weights of which `at` is the first; `x` is what
// they are multiplied with, and `dot` does it. The weights of `AHEAD` steps are on their way at once.
template <class Format>
struct Lane;

template <>
struct Lane<F32> {
    static constexpr uint32_t COLS = 8, AHEAD = 2;
    struct Raw {
        float4 low, high;
    };

    static __device__ __forceinline__ void load(Raw &raw, const uint8_t *row, uint32_t at, uint32_t) {
        const float4 *weights = (const float4 *)((const float *)row + at);
        raw.low = weights[0], raw.high = weights[1];
    }

    static __device__ __forceinline__ void x(float out[COLS], const float *shared, uint32_t at) {
        load_x<8>(out, shared, at);
    }

    static __device__ __forceinline__ float dot(const Raw &raw, const float x[COLS], uint32_t) {
        const float4 a = raw.low, b = raw.high;
        return a.x * x[0] + a.y * x[1] + (a.z * x[2] + a.w * x[3]) +
               (b.x * x[4] + b.y * x[5] + (b.z * x[6] + b.w * x[7]));
    }
};

template <>
struct Lane<F16> {
    static constexpr uint32_t COLS = 8, AHEAD = 4;
    struct Raw {
        uint4 pairs;
    };

    static __device__ __forceinline__ void load(Raw &raw, const uint8_t *row, uint32_t at, uint32_t) {
        raw.pairs = *(const uint4 *)((const uint16_t *)row + at);
    }

    static __device__ __forceinline__ void x(float out[COLS], const float *shared, uint32_t at) {
        load_x<8>(out, shared, at);
    }

    static __device__ __forceinline__ float dot(const Raw &raw, const float x[COLS], uint32_t) {
        const uint32_t words[4] = {raw.pairs.x, raw.pairs.y, raw.pairs.z, raw.pairs.w};
        float dot = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            dot += half_to_float((uint16_t)(words[i] & 0xffff)) * x[2 * i];
            dot += half_to_float((uint16_t)(words[i] >> 16)) * x[2 * i + 1];
        }
        return dot;
    }
};

// With the scale applied to the sum.
template <>
struct Lane<Q8_0> {
    static constexpr uint32_t COLS = 16, AHEAD = 4;
    struct Raw {
        uint4 quants;
        uint16_t scale;
    };

    static __device__ __forceinline__ void load(Raw &raw, const uint8_t *row, uint32_t at, uint32_t cols) {
        raw.quants = *(const uint4 *)(row + at);
        raw.scale = ((const uint16_t *)(row + cols))[at / 32];
    }

    static __device__ __forceinline__ void x(float out[COLS], const float *shared, uint32_t at) {
        load_x<16>(out, shared, at);
    }

    static __device__ __forceinline__ float dot(const Raw &raw, const float x[COLS], uint32_t) {
        const uint32_t words[4] = {raw.quants.x, raw.quants.y, raw.quants.z, raw.quants.w};
        float dot = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float quants[4];
            Q8_0::quants(quants, words[i]);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) dot += quants[j] * x[4 * i + j];
        }
        return half_to_float(raw.scale) * dot;
    }
};

// Both halves of 16 bytes: 16 columns and those 32 further on, so that no byte is read twice. Eight lanes have a block
// of 256. The scales are applied to sums of products, the minimums to sums of x.
template <>
struct Lane<Q4_K> {
    static constexpr uint32_t COLS = 32, AHEAD = 2;
    struct Raw {
        uint4 head, quants;
    };

    static __device__ __forceinline__ void load(Raw &raw, const uint8_t *row, uint32_t at, uint32_t) {
        const uint8_t *block = row + at / 256 * 144;
        raw.head = *(const uint4 *)block;
        raw.quants = *(const uint4 *)(block + 16 + at % 256 / 2);
    }

    static __device__ __forceinline__ void x(float out[COLS], const float *shared, uint32_t at) {
        const uint32_t low = at / 64 * 64 + at % 64 / 2;
        load_x<16>(out, shared, low);
        load_x<16>(out + 16, shared, low + 32);
    }

    static __device__ __forceinline__ float dot(const Raw &raw, const float x[COLS], uint32_t at) {
        const float4 s = Q4_K::scales(raw.head, at % 256 / 64);
        const uint32_t words[4] = {raw.quants.x, raw.quants.y, raw.quants.z, raw.quants.w};
        float low_dot = 0.0f, high_dot = 0.0f, low_sum = 0.0f, high_sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            low_dot += byte_to_float(words[i / 4] & 0x0f0f0f0f, i % 4) * x[i];
            high_dot += byte_to_float(words[i / 4] >> 4 & 0x0f0f0f0f, i % 4) * x[16 + i];
            low_sum += x[i], high_sum += x[16 + i];
        }
        return s.x * low_dot - s.y * low_sum + (s.z * high_dot - s.w * high_sum);
    }
};

// Columns `first` to `end` of x to shared memory, each times its weight of `norm` unless that is null, with zeros up to
// a multiple of 16. Returns the sum of the squares of this thread's.
static __device__ __forceinline__ float fill_x(float *shared, const float *x, const float *norm, uint32_t first,
                                               uint32_t end) {
    float squares = 0.0f;
    for (uint32_t i = first + threadIdx.x * 4; i < end; i += THREADS * 4) {
        float v[4], w[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        if (i + 4 <= end) {
            const float4 four = *(const float4 *)(x + i);
            v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
            if (norm) {
                const float4 weights = *(const float4 *)(norm + i);
                w[0] = weights.x, w[1] = weights.y, w[2] = weights.z, w[3] = weights.w;
            }
        } else {
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                v[j] = i + j < end ? x[i + j] : 0.0f;
                if (norm && i + j < end) w[j] = norm[i + j];
            }
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) squares += v[j] * v[j], v[j] *= w[j];
        *(float4 *)(shared + place(i - first)) = make_float4(v[0], v[1], v[2], v[3]);
    }
    const uint32_t from = (end - first + 3) / 4 * 4 + threadIdx.x;
    if (from < (end - first + 15) / 16 * 16) shared[place(from)] = 0.0f;
    return squares;
}

// Two sums over a warp: lanes 0 to 15 get that of `v[0]`, the others that of `v[1]`.
static __device__ __forceinline__ float warp_sum_of_two(const float v[2]) {
    const bool later = threadIdx.x & 16;
    float sum = (later ? v[1] : v[0]) + __shfl_xor_sync(ALL_LANES, later ? v[0] : v[1], 16);
#pragma unroll
    for (uint32_t lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lanes);
    return sum;
}

// Multiplies pairs of rows with x, or with x normalised by its root mean square and `norm` unless that is null. SPLIT
// warps have a pair together, and blocks take turns at the pairs. `row_of(pair, 0)` and `row_of(pair, 1)` say where the
// rows of a pair begin, and `write(pair, lane, sum, other)` is called where `sum` is that of the first row (lane 0) and
// of the second (lane 16), and `other` that of the other row. `partial` has room for three floats a warp.
template <class Format, uint32_t SPLIT, class RowOf, class Write>
static __device__ __forceinline__ void multiply(uint32_t pairs, RowOf row_of, Write write, const float *x,
                                                const float *norm, float eps, uint32_t cols, float *shared,
                                                float *partial) {
    typedef Lane<Format> L;
    constexpr uint32_t STEP = SPLIT * WARP * L::COLS, AHEAD = L::AHEAD, PAIRS = WARPS / SPLIT;
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, part = warp % SPLIT;
    float *const of_splits = partial + WARPS;
    float scale = 1.0f, squares = 0.0f;
    bool filled = false;
    // All warps of a block go round equally often. Past the last pair it is the last one again, which nobody writes.
    for (uint32_t base = blockIdx.x * PAIRS; base < pairs; base += gridDim.x * PAIRS) {
        const uint32_t own = base + warp / SPLIT, pair = min(own, pairs - 1);
        const uint8_t *const first_row = row_of(pair, 0), *const second_row = row_of(pair, 1);
        float sums[2] = {};
        for (uint32_t first = 0; first < cols; first += PIECE) {
            const uint32_t end = min(first + PIECE, cols);
            uint32_t at = first + (part * WARP + lane) * L::COLS;
            typename L::Raw next[AHEAD][2];
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++) {
                if (at + i * STEP >= end) continue;
                L::load(next[i][0], first_row, at + i * STEP, cols);
                L::load(next[i][1], second_row, at + i * STEP, cols);
            }
            if (!filled) {
                if (first > 0 || base != blockIdx.x * PAIRS) __syncthreads(); // the piece before may still be read
                const float of_piece = fill_x(shared, x, norm, first, end);
                if (base == blockIdx.x * PAIRS) squares += of_piece;
                if (norm && end == cols && base == blockIdx.x * PAIRS) {
                    const float of_warp = warp_sum(squares);
                    if (lane == 0) partial[warp] = of_warp;
                }
                __syncthreads();
                filled = cols <= PIECE;
            }
            for (; at < end; at += AHEAD * STEP) {
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; i++) {
                    const uint32_t here = at + i * STEP, later = here + AHEAD * STEP;
                    if (here >= end) continue;
                    const typename L::Raw a = next[i][0], b = next[i][1];
                    if (later < end) {
                        L::load(next[i][0], first_row, later, cols);
                        L::load(next[i][1], second_row, later, cols);
                    }
                    float v[L::COLS];
                    L::x(v, shared, here - first);
                    sums[0] += L::dot(a, v, here);
                    sums[1] += L::dot(b, v, here);
                }
            }
        }
        if (norm && base == blockIdx.x * PAIRS) {
            float all = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < WARPS; i++) all += partial[i];
            scale = 1.0f / sqrtf(all / (float)cols + eps);
        }
        float sum = warp_sum_of_two(sums);
        if (SPLIT > 1) {
            if (base != blockIdx.x * PAIRS) __syncthreads(); // those before may still be read
            if (lane % 16 == 0) of_splits[2 * warp + lane / 16] = sum;
            __syncthreads();
            sum = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < SPLIT; i++) sum += of_splits[2 * (warp - part + i) + lane / 16];
        }
        sum *= scale;
        const float other = __shfl_xor_sync(ALL_LANES, sum, 16);
        if (own < pairs && part == 0 && lane % 16 == 0) write(pair, lane, sum, other);
    }
}

// Two rows of a head of q (`kind` 0), k (1) or v (2), which is pair `number` of that head.
struct Pair {
    uint32_t kind, head, number, a, b;
};

// How many heads of q, and of k and v, with how many pairs, of which `n_pairs` are rotated.
struct Heads {
    uint32_t heads, kv_heads, pairs, n_pairs, neox;

    __device__ __forceinline__ Pair pair(uint32_t index) const {
        Pair pair;
        pair.head = index / pairs, pair.number = index % pairs;
        pair.kind = pair.head < heads ? 0 : pair.head < heads + kv_heads ? 1 : 2;
        if (pair.kind > 0) pair.head -= heads + (pair.kind - 1) * kv_heads;
        const bool apart = neox && pair.kind < 2 && pair.number < n_pairs;
        pair.a = apart ? pair.number : 2 * pair.number;
        pair.b = apart ? pair.number + n_pairs : 2 * pair.number + 1;
        return pair;
    }
};

// AT_ONCE blocks run on a multiprocessor at once.
#define GEMV(F, Format, AT_ONCE)                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)                                          \
        gemv_##F(float *__restrict__ out, const uint8_t *__restrict__ w, const float *__restrict__ x,       \
                 const Params *__restrict__ p, uint32_t rows, uint32_t cols, uint32_t out_pos_stride,       \
                 uint64_t *__restrict__ began) {                                                            \
        note_begin(began);                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                           \
        __shared__ float partial[3 * WARPS];                                                                \
        out += (size_t)p->position * out_pos_stride;                                                        \
        multiply<Format, 2>(                                                                                \
            (rows + 1) / 2,                                                                                 \
            [=](uint32_t pair, uint32_t i) { return Format::row(w, min(2 * pair + i, rows - 1), cols); },   \
            [=](uint32_t pair, uint32_t lane, float sum, float) {                                           \
                const uint32_t row = 2 * pair + lane / 16;                                                  \
                if (row < rows) out[row] = sum;                                                             \
            },                                                                                              \
            x, nullptr, 0.0f, cols, (float *)shared, partial);                                              \
    }                                                                                                       \
                                                                                                            \
    /* out += W·x. */                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)                                          \
        gemv_add_##F(float *__restrict__ out, const uint8_t *__restrict__ w, const float *__restrict__ x,   \
                     uint32_t rows, uint32_t cols, uint64_t *__restrict__ began) {                          \
        note_begin(began);                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                           \
        __shared__ float partial[3 * WARPS];                                                                \
        multiply<Format, 2>(                                                                                \
            (rows + 1) / 2,                                                                                 \
            [=](uint32_t pair, uint32_t i) { return Format::row(w, min(2 * pair + i, rows - 1), cols); },   \
            [=](uint32_t pair, uint32_t lane, float sum, float) {                                           \
                const uint32_t row = 2 * pair + lane / 16;                                                  \
                if (row < rows) out[row] += sum;                                                            \
            },                                                                                              \
            x, nullptr, 0.0f, cols, (float *)shared, partial);                                              \
    }                                                                                                       \
                                                                                                            \
    /* out = W·rms_norm(x). */                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)                                          \
        norm_gemv_##F(float *__restrict__ out, const uint8_t *__restrict__ w, const float *__restrict__ x,  \
                      const float *__restrict__ norm, uint32_t rows, uint32_t cols, float eps,              \
                      uint64_t *__restrict__ began) {                                                       \
        note_begin(began);                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                           \
        __shared__ float partial[3 * WARPS];                                                                \
        multiply<Format, 1>(                                                                                \
            (rows + 1) / 2,                                                                                 \
            [=](uint32_t pair, uint32_t i) { return Format::row(w, min(2 * pair + i, rows - 1), cols); },   \
            [=](uint32_t pair, uint32_t lane, float sum, float) {                                           \
                const uint32_t row = 2 * pair + lane / 16;                                                  \
                if (row < rows) out[row] = sum;                                                             \
            },                                                                                              \
            x, norm, eps, cols, (float *)shared, partial);                                                  \
    }                                                                                                       \
                                                                                                            \
    /* out = f(G·h) * (U·h) of h = rms_norm(x), where f is SiLU, or max(·, 0)² if `squared`. A pair is a    \
       row of both. */                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)                                          \
        norm_gate_up_##F(float *__restrict__ out, const uint8_t *__restrict__ gate,                         \
                         const uint8_t *__restrict__ up, const float *__restrict__ x,                       \
                         const float *__restrict__ norm, uint32_t rows, uint32_t cols, float eps,           \
                         uint32_t squared, uint64_t *__restrict__ began) {                                  \
        note_begin(began);                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                           \
        __shared__ float partial[3 * WARPS];                                                                \
        multiply<Format, 1>(                                                                                \
            rows, [=](uint32_t row, uint32_t i) { return Format::row(i == 0 ? gate : up, row, cols); },     \
            [=](uint32_t row, uint32_t lane, float sum, float other) {                                      \
                if (lane == 0) out[row] = (squared ? relu_squared(sum) : silu(sum)) * other;                \
            },                                                                                              \
            x, norm, eps, cols, (float *)shared, partial);                                                  \
    }                                                                                                       \
                                                                                                            \
    /* q, k and v of h = rms_norm(x), with q and k rotated as by `rope`. A pair of rows are two that are    \
       rotated together. `head_dim` is even. */                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE)                                          \
        norm_qkv_rope_##F(float *__restrict__ q, float *__restrict__ k, float *__restrict__ v,              \
                          const uint8_t *__restrict__ wq, const uint8_t *__restrict__ wk,                   \
                          const uint8_t *__restrict__ wv, const float *__restrict__ x,                      \
                          const float *__restrict__ norm, const float *__restrict__ cos,                    \
                          const float *__restrict__ sin, const Params *__restrict__ p, uint32_t heads,      \
                          uint32_t kv_heads, uint32_t head_dim, uint32_t n_pairs, uint32_t neox,            \
                          uint32_t cols, float eps, uint64_t *__restrict__ began) {                         \
        note_begin(began);                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                           \
        __shared__ float partial[3 * WARPS];                                                                \
        const Heads shape = {heads, kv_heads, head_dim / 2, n_pairs, neox};                                 \
        multiply<Format, 1>(                                                                                \
            (heads + 2 * kv_heads) * (head_dim / 2),                                                        \
            [=](uint32_t index, uint32_t i) {                                                               \
                const Pair pair = shape.pair(index);                                                        \
                const uint8_t *w = pair.kind == 0 ? wq : pair.kind == 1 ? wk : wv;                          \
                return Format::row(w, (size_t)pair.head * head_dim + (i == 0 ? pair.a : pair.b), cols);     \
            },                                                                                              \
            [=](uint32_t index, uint32_t lane, float sum, float other) {                                    \
                if (lane != 0) return;                                                                      \
                const Pair pair = shape.pair(index);                                                        \
                const uint32_t position = p->position;                                                      \
                float *out = pair.kind == 0 ? q : pair.kind == 1 ? k : v;                                   \
                if (pair.kind > 0) out += (size_t)position * kv_heads * head_dim;                           \
                out += (size_t)pair.head * head_dim;                                                        \
                float a = sum, b = other;                                                                   \
                if (pair.kind < 2 && pair.number < n_pairs) {                                               \
                    const size_t angle = (size_t)position * n_pairs + pair.number;                          \
                    const float c = cos[angle], s = sin[angle];                                             \
                    a = sum * c - other * s, b = sum * s + other * c;                                       \
                }                                                                                           \
                out[pair.a] = a, out[pair.b] = b;                                                           \
            },                                                                                              \
            x, norm, eps, cols, (float *)shared, partial);                                                  \
    }

GEMV(f32, F32, 2)
GEMV(f16, F16, 2)
GEMV(q8_0, Q8_0, 2)
GEMV(q4_k, Q4_K, 2)

#undef THREADS
#undef WARPS
#undef PIECE
