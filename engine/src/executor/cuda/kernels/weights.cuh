// Weights in the formats of GGUF, eight at a time. Rows begin at 16-byte borders where their formats
// allow: the first does, since allocations do.
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

// A format has `row(w, r, cols)`, where row `r` of `w` begins, and `weights(out, row, at, cols)`, the
// eight from `at` on, a multiple of eight below `cols`; past the end they are zeros.

struct F32 {
    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * cols * 4;
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t cols) {
        load8_of(out, (const float *)row, at, cols);
    }
};

struct F16 {
    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * cols * 2;
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t cols) {
        const uint16_t *halves = (const uint16_t *)row + at;
        if (cols % 8 == 0) {
            const uint4 v = *(const uint4 *)halves;
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                out[2 * i] = half_to_float((uint16_t)(words[i] & 0xffff));
                out[2 * i + 1] = half_to_float((uint16_t)(words[i] >> 16));
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) out[i] = at + i < cols ? half_to_float(halves[i]) : 0.0f;
        }
    }
};

// 32 weights in 34 bytes: a half `d` and 32 signed bytes `q`; w = d * q. Only even bytes are aligned.
struct Q8_0 {
    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * (cols / 32) * 34;
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t cols) {
        const uint16_t *block = (const uint16_t *)(row + (at / 32) * 34);
        const uint16_t *pairs = block + 1 + at % 32 / 2;
        const float d = half_to_float(block[0]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint16_t pair = pairs[i];
            out[2 * i] = d * (float)(int8_t)(pair & 0xff);
            out[2 * i + 1] = d * (float)(int8_t)(pair >> 8);
        }
    }
};

// 256 weights in 144 bytes: halves `d` and `dmin`, 12 bytes of six-bit scales and minimums, 128 bytes of
// four bits. Byte 32c + l has weight 64c + l in its low half and 64c + 32 + l in its high half.
// w = d * scale * q - dmin * min, with a scale and a minimum for each 32. (ggml's block_q4_K.)
struct Q4_K {
    static __device__ __forceinline__ const uint8_t *row(const uint8_t *w, size_t r, uint32_t cols) {
        return w + r * (cols / 256) * 144;
    }

    // `d * scale` and `dmin * min` of the 32s number 2c (`.x`, `.y`) and 2c + 1 (`.z`, `.w`).
    static __device__ __forceinline__ float4 scales(const uint8_t *block, uint32_t c) {
        const uint32_t halves = *(const uint32_t *)block;
        const uint16_t *s = (const uint16_t *)(block + 4);
        uint32_t scale, min;
        if (c < 2) {
            scale = s[c] & 0x3f3f;
            min = s[c + 2] & 0x3f3f;
        } else {
            const uint32_t low = s[c + 2];
            scale = (low & 0x0f0f) | (s[c - 2] & 0xc0c0) >> 2;
            min = (low >> 4 & 0x0f0f) | (s[c] & 0xc0c0) >> 2;
        }
        const float d = half_to_float((uint16_t)(halves & 0xffff)), dmin = half_to_float((uint16_t)(halves >> 16));
        return make_float4(d * (float)(scale & 0xff), dmin * (float)(min & 0xff), d * (float)(scale >> 8),
                           dmin * (float)(min >> 8));
    }

    static __device__ __forceinline__ void weights(float out[8], const uint8_t *row, uint32_t at, uint32_t cols) {
        const uint8_t *block = row + at / 256 * 144;
        const uint32_t c = at % 256 / 64, high = at % 64 / 32;
        const float4 s = scales(block, c);
        const float scale = high ? s.z : s.x, min = high ? s.w : s.y;
        const uint2 q = *(const uint2 *)(block + 16 + 32 * c + at % 32);
        const uint32_t low4 = q.x >> 4 * high, high4 = q.y >> 4 * high;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            out[i] = scale * (float)(low4 >> 8 * i & 15) - min;
            out[4 + i] = scale * (float)(high4 >> 8 * i & 15) - min;
        }
    }
};

#endif
