// Weights in the formats of GGUF, eight at a time.
#ifndef BRICKSCOPE_WEIGHTS_CUH
#define BRICKSCOPE_WEIGHTS_CUH

#include "common.cuh"

// Eight floats from a place that is 16-byte aligned.
static __device__ __forceinline__ void load8(float out[8], const float *x) {
    const float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// The floats from `at` on of a row of `len`, with zeros past its end. Rows of a multiple of eight are
// aligned.
static __device__ __forceinline__ void load8_of(float out[8], const float *row, uint32_t at, uint32_t len) {
    if (len % 8 == 0) {
        load8(out, row + at);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) out[i] = at + i < len ? row[at + i] : 0.0f;
    }
}

// Byte `i` of a word, as a float. With the upper byte of 2^23 above it, it is 2^23 more. Devices have
// fewer units that convert integers than weights come in.
static __device__ __forceinline__ float byte_to_float(uint32_t word, uint32_t i) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0f;
}

// The same for a signed byte of a word whose bytes have their upper bits flipped: they are 128 more.
static __device__ __forceinline__ float flipped_byte_to_float(uint32_t word, uint32_t i) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388736.0f;
}

// Rows begin at multiples of 16 bytes, and have zeros after their columns up to a multiple of eight. A format has
// `row(w, r, cols)`, where row `r` of `w` begins; `weights(out, row, at, cols)`, the eight from `at` on, a multiple of
// eight below `cols`; and `WHOLE`, whether `cols` is always a multiple of eight.

// Eight floats of x, which go with those weights.
template <class Format>
static __device__ __forceinline__ void load8_for(float out[8], const float *row, uint32_t at, uint32_t cols) {
    if (Format::WHOLE) {
        load8(out, row + at);
    } else {
        load8_of(out, row, at, cols);
    }
}

struct F32 {
    static constexpr bool WHOLE = false;

    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * ((cols + 7) / 8 * 32);
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t) {
        load8(out, (const float *)row + at);
    }
};

struct F16 {
    static constexpr bool WHOLE = false;

    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * ((cols + 7) / 8 * 16);
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t) {
        const uint4 v = *(const uint4 *)((const uint16_t *)row + at);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            out[2 * i] = half_to_float((uint16_t)(words[i] & 0xffff));
            out[2 * i + 1] = half_to_float((uint16_t)(words[i] >> 16));
        }
    }
};

// A row has its signed bytes `q` first and then a half `d` for each 32 of them; w = d * q. GGUF has the half before its
// 32 bytes, so that only even bytes are aligned.
struct Q8_0 {
    static constexpr bool WHOLE = true;

    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * ((cols + cols / 16 + 15) / 16 * 16);
    }

    static __device__ __forceinline__ float scale(const uint8_t *row, uint32_t at, uint32_t cols) {
        return half_to_float(((const uint16_t *)(row + cols))[at / 32]);
    }

    // Four `q`.
    static __device__ __forceinline__ void quants(float out[4], uint32_t word) {
        word ^= 0x80808080u;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) out[i] = flipped_byte_to_float(word, i);
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t cols) {
        const uint2 words = *(const uint2 *)(row + at);
        quants(out, words.x), quants(out + 4, words.y);
        const float d = scale(row, at, cols);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) out[i] *= d;
    }
};

// 256 weights in 144 bytes: halves `d` and `dmin`, 12 bytes of six-bit scales and minimums, 128 bytes of
// four bits. Byte 32c + l has weight 64c + l in its low half and 64c + 32 + l in its high half.
// w = d * scale * q - dmin * min, with a scale and a minimum for each 32. (ggml's block_q4_K.)
struct Q4_K {
    static constexpr bool WHOLE = true;

    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * (cols / 256) * 144;
    }

    // `d * scale` and `dmin * min` of the 32s number 2c (`.x`, `.y`) and 2c + 1 (`.z`, `.w`). Neighbours have
    // another c, so there are no branches. Of the first four 32s they are the low six bits of a byte; of the
    // others four bits of a byte and the upper two of another.
    // `head` is a block's first 16 bytes.
    static __device__ __forceinline__ float4 scales(const uint4 &head, uint32_t c) {
        const uint32_t shift = c % 2 * 16;
        const uint32_t scales = head.y >> shift, mins = head.z >> shift, rest = head.w >> shift;
        const uint32_t scale = c < 2 ? scales & 0x3f3f : (rest & 0x0f0f) | (scales >> 2 & 0x3030);
        const uint32_t min = c < 2 ? mins & 0x3f3f : (rest >> 4 & 0x0f0f) | (mins >> 2 & 0x3030);
        const float d = half_to_float((uint16_t)(head.x & 0xffff)), dmin = half_to_float((uint16_t)(head.x >> 16));
        return make_float4(d * byte_to_float(scale, 0), dmin * byte_to_float(min, 0), d * byte_to_float(scale, 1),
                           dmin * byte_to_float(min, 1));
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t) {
        const uint8_t *block = row + at / 256 * 144;
        const uint32_t c = at % 256 / 64, high = at % 64 / 32;
        const float4 s = scales(*(const uint4 *)block, c);
        const float scale = high ? s.z : s.x, min = high ? s.w : s.y;
        const uint2 q = *(const uint2 *)(block + 16 + 32 * c + at % 32);
        const uint32_t first = q.x >> 4 * high & 0x0f0f0f0f, second = q.y >> 4 * high & 0x0f0f0f0f;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            out[i] = scale * byte_to_float(first, i) - min;
            out[4 + i] = scale * byte_to_float(second, i) - min;
        }
    }
};

#endif
