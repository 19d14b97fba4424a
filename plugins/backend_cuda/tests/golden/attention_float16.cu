#ifdef __CUDACC_RTC__
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef struct __align__(8) { float s0, s1; } floatx2;

typedef struct __align__(4) { uint16_t s0, s1; } uint16_tx2;

static __device__ __forceinline__ uint16_tx2 make_uint16_tx2(uint16_t s0, uint16_t s1)
{
    const uint16_tx2 vector = {s0, s1};
    return vector;
}

static __device__ __forceinline__ void dlc_wait_for_copies(void)
{
#ifdef __CUDACC__
    asm volatile("cp.async.wait_all;" ::: "memory");
#else
    DLC_COPIES_WAIT_ALL();
#endif
}

static __device__ __forceinline__ void dlc_copy_16_if(void *to, const void *from, int all)
{
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(all ? 16 : 0) : "memory");
#else
    DLC_COPY_ASYNC(to, all ? from : 0, 16);
#endif
}

static __device__ __forceinline__ uint32_t dlc_pack_16(uint16_t v0, uint16_t v1)
{
    return v0 | (uint32_t)v1 << 16;
}

static __device__ __forceinline__ void dlc_blocks_x4(uint32_t *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
#else
    static const int16_t block[] = {8, 8, 2, 2, 2, 4, 8, 8, 1, 1, 2};
    DLC_BLOCKS(to, from, 4, block);
#endif
}

static __device__ __forceinline__ void dlc_blocks_x2(uint32_t *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
        : "=r"(to[0]), "=r"(to[1]) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
#else
    static const int16_t block[] = {8, 8, 2, 2, 2, 4, 8, 8, 1, 1, 2};
    DLC_BLOCKS(to, from, 2, block);
#endif
}

static __device__ __forceinline__ void dlc_transposed_blocks_x2(uint32_t *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
        : "=r"(to[0]), "=r"(to[1]) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
#else
    static const int16_t block[] = {8, 8, 2, 2, 16, 4, 1, 8, 1, 8, 2};
    DLC_BLOCKS(to, from, 2, block);
#endif
}

static __device__ __forceinline__ void dlc_mma_f16_f16(float *sums, const uint32_t *a, const uint32_t *b)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    static const int16_t unit[] = {0, 2, 2, 16, 8, 16, 0, 2, 2, 4, 8, 8, 2, 1, 2, 64, 2, 2, 2, 4, 16, 8, 3, 1, 2, 128, 2, 8, 2, 2, 16, 4, 1, 8, 2, 8, 2, 64, 2};
    DLC_MATRIX(sums, a, b, unit);
#endif
}

static __device__ __forceinline__ float dlc_max_f32(float a, float b)
{
    /* a NaN on either side is the result */
    return a > b || a != a ? a : b;
}

static __device__ __forceinline__ uint16_t dlc_f32_to_f16(float value)
{
#ifdef __CUDACC__
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    uint32_t bits, sign, rest;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u) {
        /* below the normal numbers: adding 0.5 leaves a multiple of 2^-24, rounded to even */
        float small;
        memcpy(&small, &bits, sizeof small);
        small += 0.5f;
        memcpy(&rest, &small, sizeof rest);
        return (uint16_t)(sign | (rest - 0x3f000000u));
    }
    rest = bits - 0x38000000u;
    return (uint16_t)(sign | (rest + 0x0fffu + (rest >> 13 & 1u)) >> 13);
#endif
}

static __device__ __forceinline__ float dlc_f16_to_f32(uint16_t half)
{
#ifdef __CUDACC__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    uint32_t bits = (rest << 13) + 0x38000000u;
    float value;
    if (rest >= 0x7c00u)
        bits += 0x38000000u;
    if (rest < 0x0400u) {
        /* below the normal numbers: a multiple of 2^-24 */
        value = (float)rest * 5.9604644775390625e-08f;
        memcpy(&bits, &value, sizeof bits);
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

static __device__ __forceinline__ float dlc_round_f16(float value)
{
    return dlc_f16_to_f32(dlc_f32_to_f16(value));
}

__global__ void __launch_bounds__(64) fused_attention_kernel(const uint16_t *__restrict__ p0,
        const uint16_t *__restrict__ p1,
        const uint16_t *__restrict__ p2,
        uint16_t *__restrict__ attention_result)
{
    __shared__ __align__(16) uint16_t shared_attention_queries[760];
    __shared__ __align__(16) uint16_t shared_attention_keys[3064];
    __shared__ __align__(16) uint16_t shared_attention_values[3064];
    const int h0_h1_t_fused = (int)blockIdx.x;
    const int i_0 = (int)threadIdx.y;
    const int i_2_r_fused = (int)threadIdx.x;
    __align__(16) float attention_weighted[8];
    __align__(16) uint16_t attention_rounded[32];
    __align__(16) float attention_product[32];
    __align__(16) float attention_online[8];
    float attention_row_max_0 = (-INFINITY);
    float attention_row_max_1 = (-INFINITY);
    float attention_denominator_0 = 0.0f;
    float attention_denominator_1 = 0.0f;
    attention_weighted[0] = 0.0f;
    attention_weighted[1] = 0.0f;
    attention_weighted[2] = 0.0f;
    attention_weighted[3] = 0.0f;
    attention_weighted[4] = 0.0f;
    attention_weighted[5] = 0.0f;
    attention_weighted[6] = 0.0f;
    attention_weighted[7] = 0.0f;
    dlc_copy_16_if(shared_attention_queries + (i_0 * 384 + i_2_r_fused / 2 * 24 + i_2_r_fused % 2 * 8), p0
            + (h0_h1_t_fused * 320 + i_0 * 256 + i_2_r_fused * 8), i_0 * 16 + i_2_r_fused / 2 < 20);
    dlc_copy_16_if(shared_attention_keys + (i_0 * 384 + i_2_r_fused / 2 * 24 + i_2_r_fused % 2 * 8), p1
            + (i_0 * 256 + i_2_r_fused * 8), i_0 * 16 + i_2_r_fused / 2 < 40);
    dlc_copy_16_if(shared_attention_keys + (i_0 * 384 + i_2_r_fused / 2 * 24 + i_2_r_fused % 2 * 8 + 768), p1
            + (i_0 * 256 + i_2_r_fused * 8 + 512), 32 + i_0 * 16 + i_2_r_fused / 2 < 40);
    dlc_copy_16_if(shared_attention_values + (i_0 * 384 + i_2_r_fused / 2 * 24 + i_2_r_fused % 2 * 8), p2
            + (i_0 * 256 + i_2_r_fused * 8), i_0 * 16 + i_2_r_fused / 2 < 40);
    dlc_copy_16_if(shared_attention_values + (i_0 * 384 + i_2_r_fused / 2 * 24 + i_2_r_fused % 2 * 8 + 768),
            p2 + (i_0 * 256 + i_2_r_fused * 8 + 512), 32 + i_0 * 16 + i_2_r_fused / 2 < 40);
    attention_product[0] = 0.0f;
    attention_product[1] = 0.0f;
    attention_product[2] = 0.0f;
    attention_product[3] = 0.0f;
    attention_product[4] = 0.0f;
    attention_product[5] = 0.0f;
    attention_product[6] = 0.0f;
    attention_product[7] = 0.0f;
    attention_product[8] = 0.0f;
    attention_product[9] = 0.0f;
    attention_product[10] = 0.0f;
    attention_product[11] = 0.0f;
    attention_product[12] = 0.0f;
    attention_product[13] = 0.0f;
    attention_product[14] = 0.0f;
    attention_product[15] = 0.0f;
    attention_product[16] = 0.0f;
    attention_product[17] = 0.0f;
    attention_product[18] = 0.0f;
    attention_product[19] = 0.0f;
    attention_product[20] = 0.0f;
    attention_product[21] = 0.0f;
    attention_product[22] = 0.0f;
    attention_product[23] = 0.0f;
    attention_product[24] = 0.0f;
    attention_product[25] = 0.0f;
    attention_product[26] = 0.0f;
    attention_product[27] = 0.0f;
    attention_product[28] = 0.0f;
    attention_product[29] = 0.0f;
    attention_product[30] = 0.0f;
    attention_product[31] = 0.0f;
    dlc_wait_for_copies();
    __syncthreads();
    uint32_t a0[4];
    dlc_blocks_x4(a0, shared_attention_queries
            + (i_0 * 384 + (i_2_r_fused % 16 * 24 + i_2_r_fused / 16 % 2 * 8)));
    uint32_t b0[2];
    dlc_blocks_x2(b0, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8));
    uint32_t b1[2];
    dlc_blocks_x2(b1, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 192));
    uint32_t b2[2];
    dlc_blocks_x2(b2, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 384));
    uint32_t b3[2];
    dlc_blocks_x2(b3, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 576));
    uint32_t b4[2];
    dlc_blocks_x2(b4, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 768));
    uint32_t b5[2];
    dlc_blocks_x2(b5, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 960));
    uint32_t b6[2];
    dlc_blocks_x2(b6, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 1152));
    uint32_t b7[2];
    dlc_blocks_x2(b7, shared_attention_keys + (i_2_r_fused % 8 * 24 + i_2_r_fused / 8 % 2 * 8 + 1344));
    dlc_mma_f16_f16(attention_product, a0, b0);
    dlc_mma_f16_f16(attention_product + 4, a0, b1);
    dlc_mma_f16_f16(attention_product + 8, a0, b2);
    dlc_mma_f16_f16(attention_product + 12, a0, b3);
    dlc_mma_f16_f16(attention_product + 16, a0, b4);
    dlc_mma_f16_f16(attention_product + 20, a0, b5);
    dlc_mma_f16_f16(attention_product + 24, a0, b6);
    dlc_mma_f16_f16(attention_product + 28, a0, b7);
    float attention_score_0 = i_2_r_fused % 4 * 2 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[0] * 0.36067376f : (-INFINITY);
    float attention_score_1 = i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[1] * 0.36067376f : (-INFINITY);
    float attention_score_2 = i_2_r_fused % 4 * 2 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[2] * 0.36067376f : (-INFINITY);
    float attention_score_3 = i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[3] * 0.36067376f : (-INFINITY);
    float attention_score_4 = 8 + i_2_r_fused % 4 * 2 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[4] * 0.36067376f : (-INFINITY);
    float attention_score_5 = 8 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[5] * 0.36067376f : (-INFINITY);
    float attention_score_6 = 8 + i_2_r_fused % 4 * 2 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[6] * 0.36067376f : (-INFINITY);
    float attention_score_7 = 8 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[7] * 0.36067376f : (-INFINITY);
    float attention_score_8 = 16 + i_2_r_fused % 4 * 2 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[8] * 0.36067376f : (-INFINITY);
    float attention_score_9 = 16 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[9] * 0.36067376f : (-INFINITY);
    float attention_score_10 = 16 + i_2_r_fused % 4 * 2 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[10] * 0.36067376f : (-INFINITY);
    float attention_score_11 = 16 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[11] * 0.36067376f : (-INFINITY);
    float attention_score_12 = 24 + i_2_r_fused % 4 * 2 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[12] * 0.36067376f : (-INFINITY);
    float attention_score_13 = 24 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[13] * 0.36067376f : (-INFINITY);
    float attention_score_14 = 24 + i_2_r_fused % 4 * 2 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[14] * 0.36067376f : (-INFINITY);
    float attention_score_15 = 24 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[15] * 0.36067376f : (-INFINITY);
    float attention_score_16 = 32 + i_2_r_fused % 4 * 2 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[16] * 0.36067376f : (-INFINITY);
    float attention_score_17 = 32 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + i_2_r_fused / 4 + 21
            ? attention_product[17] * 0.36067376f : (-INFINITY);
    float attention_score_18 = 32 + i_2_r_fused % 4 * 2 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[18] * 0.36067376f : (-INFINITY);
    float attention_score_19 = 32 + i_2_r_fused % 4 * 2 + 1 < i_0 * 16 + 8 + i_2_r_fused / 4 + 21
            ? attention_product[19] * 0.36067376f : (-INFINITY);
    float attention_score_20 = (-INFINITY);
    float attention_score_21 = (-INFINITY);
    float attention_score_22 = (-INFINITY);
    float attention_score_23 = (-INFINITY);
    float attention_score_24 = (-INFINITY);
    float attention_score_25 = (-INFINITY);
    float attention_score_26 = (-INFINITY);
    float attention_score_27 = (-INFINITY);
    float attention_score_28 = (-INFINITY);
    float attention_score_29 = (-INFINITY);
    float attention_score_30 = (-INFINITY);
    float attention_score_31 = (-INFINITY);
    float attention_factor_0 = 0;
    float attention_factor_1 = 0;
    float attention_panel_sums_0 = 0;
    float attention_panel_sums_1 = 0;
    float attention_weight_0 = 0;
    float attention_weight_1 = 0;
    float attention_weight_2 = 0;
    float attention_weight_3 = 0;
    float attention_weight_4 = 0;
    float attention_weight_5 = 0;
    float attention_weight_6 = 0;
    float attention_weight_7 = 0;
    float attention_weight_8 = 0;
    float attention_weight_9 = 0;
    float attention_weight_10 = 0;
    float attention_weight_11 = 0;
    float attention_weight_12 = 0;
    float attention_weight_13 = 0;
    float attention_weight_14 = 0;
    float attention_weight_15 = 0;
    float attention_weight_16 = 0;
    float attention_weight_17 = 0;
    float attention_weight_18 = 0;
    float attention_weight_19 = 0;
    float attention_weight_20 = 0;
    float attention_weight_21 = 0;
    float attention_weight_22 = 0;
    float attention_weight_23 = 0;
    float attention_weight_24 = 0;
    float attention_weight_25 = 0;
    float attention_weight_26 = 0;
    float attention_weight_27 = 0;
    float attention_weight_28 = 0;
    float attention_weight_29 = 0;
    float attention_weight_30 = 0;
    float attention_weight_31 = 0;
    float attention_new_max_0 = 0;
    float attention_new_max_1 = 0;
    float attention_panel_max_0 = 0;
    float attention_panel_max_1 = 0;
    float attention_lane_max_0 = 0;
    float attention_lane_max_1 = 0;
    float attention_row_sum_0 = 0;
    float attention_row_sum_1 = 0;
    if (true) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_0);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_1);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_4);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_5);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_8);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_9);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_12);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_13);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_16);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_17);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_20);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_21);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_24);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_25);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_28);
    if (false) {
        attention_lane_max_0 = (-INFINITY);
    }
    attention_lane_max_0 = dlc_max_f32(attention_lane_max_0, attention_score_29);
    if (true) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_2);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_3);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_6);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_7);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_10);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_11);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_14);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_15);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_18);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_19);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_22);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_23);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_26);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_27);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_30);
    if (false) {
        attention_lane_max_1 = (-INFINITY);
    }
    attention_lane_max_1 = dlc_max_f32(attention_lane_max_1, attention_score_31);
    const float known = attention_lane_max_0;
    const float known_1 = dlc_max_f32(known, __shfl_xor_sync(0xffffffffu, known, (int)(1), 4));
    attention_panel_max_0 = dlc_max_f32(known_1, __shfl_xor_sync(0xffffffffu, known_1, (int)(2), 4));
    const float known_2 = attention_lane_max_1;
    const float known_3 = dlc_max_f32(known_2, __shfl_xor_sync(0xffffffffu, known_2, (int)(1), 4));
    attention_panel_max_1 = dlc_max_f32(known_3, __shfl_xor_sync(0xffffffffu, known_3, (int)(2), 4));
    attention_new_max_0 = dlc_max_f32(attention_row_max_0, attention_panel_max_0);
    attention_new_max_1 = dlc_max_f32(attention_row_max_1, attention_panel_max_1);
    attention_factor_0 =
            exp2f(attention_row_max_0 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_factor_1 =
            exp2f(attention_row_max_1 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_row_max_0 = attention_new_max_0;
    attention_row_max_1 = attention_new_max_1;
    attention_weight_0 =
            exp2f(attention_score_0 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_1 =
            exp2f(attention_score_1 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_2 =
            exp2f(attention_score_2 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_3 =
            exp2f(attention_score_3 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_4 =
            exp2f(attention_score_4 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_5 =
            exp2f(attention_score_5 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_6 =
            exp2f(attention_score_6 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_7 =
            exp2f(attention_score_7 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_8 =
            exp2f(attention_score_8 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_9 =
            exp2f(attention_score_9 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_10 =
            exp2f(attention_score_10 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_11 =
            exp2f(attention_score_11 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_12 =
            exp2f(attention_score_12 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_13 =
            exp2f(attention_score_13 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_14 =
            exp2f(attention_score_14 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_15 =
            exp2f(attention_score_15 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_16 =
            exp2f(attention_score_16 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_17 =
            exp2f(attention_score_17 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_18 =
            exp2f(attention_score_18 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_19 =
            exp2f(attention_score_19 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_20 =
            exp2f(attention_score_20 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_21 =
            exp2f(attention_score_21 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_22 =
            exp2f(attention_score_22 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_23 =
            exp2f(attention_score_23 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_24 =
            exp2f(attention_score_24 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_25 =
            exp2f(attention_score_25 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_26 =
            exp2f(attention_score_26 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_27 =
            exp2f(attention_score_27 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_28 =
            exp2f(attention_score_28 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_29 =
            exp2f(attention_score_29 - (attention_new_max_0 > (-INFINITY) ? attention_new_max_0 : 0.0f));
    attention_weight_30 =
            exp2f(attention_score_30 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_weight_31 =
            exp2f(attention_score_31 - (attention_new_max_1 > (-INFINITY) ? attention_new_max_1 : 0.0f));
    attention_rounded[0] = dlc_f32_to_f16(attention_weight_0);
    attention_rounded[1] = dlc_f32_to_f16(attention_weight_1);
    attention_rounded[2] = dlc_f32_to_f16(attention_weight_2);
    attention_rounded[3] = dlc_f32_to_f16(attention_weight_3);
    attention_rounded[4] = dlc_f32_to_f16(attention_weight_4);
    attention_rounded[5] = dlc_f32_to_f16(attention_weight_5);
    attention_rounded[6] = dlc_f32_to_f16(attention_weight_6);
    attention_rounded[7] = dlc_f32_to_f16(attention_weight_7);
    attention_rounded[8] = dlc_f32_to_f16(attention_weight_8);
    attention_rounded[9] = dlc_f32_to_f16(attention_weight_9);
    attention_rounded[10] = dlc_f32_to_f16(attention_weight_10);
    attention_rounded[11] = dlc_f32_to_f16(attention_weight_11);
    attention_rounded[12] = dlc_f32_to_f16(attention_weight_12);
    attention_rounded[13] = dlc_f32_to_f16(attention_weight_13);
    attention_rounded[14] = dlc_f32_to_f16(attention_weight_14);
    attention_rounded[15] = dlc_f32_to_f16(attention_weight_15);
    attention_rounded[16] = dlc_f32_to_f16(attention_weight_16);
    attention_rounded[17] = dlc_f32_to_f16(attention_weight_17);
    attention_rounded[18] = dlc_f32_to_f16(attention_weight_18);
    attention_rounded[19] = dlc_f32_to_f16(attention_weight_19);
    attention_rounded[20] = dlc_f32_to_f16(attention_weight_20);
    attention_rounded[21] = dlc_f32_to_f16(attention_weight_21);
    attention_rounded[22] = dlc_f32_to_f16(attention_weight_22);
    attention_rounded[23] = dlc_f32_to_f16(attention_weight_23);
    attention_rounded[24] = dlc_f32_to_f16(attention_weight_24);
    attention_rounded[25] = dlc_f32_to_f16(attention_weight_25);
    attention_rounded[26] = dlc_f32_to_f16(attention_weight_26);
    attention_rounded[27] = dlc_f32_to_f16(attention_weight_27);
    attention_rounded[28] = dlc_f32_to_f16(attention_weight_28);
    attention_rounded[29] = dlc_f32_to_f16(attention_weight_29);
    attention_rounded[30] = dlc_f32_to_f16(attention_weight_30);
    attention_rounded[31] = dlc_f32_to_f16(attention_weight_31);
    if (true) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_0;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_1;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_4;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_5;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_8;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_9;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_12;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_13;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_16;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_17;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_20;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_21;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_24;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_25;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_28;
    if (false) {
        attention_panel_sums_0 = 0.0f;
    }
    attention_panel_sums_0 += attention_weight_29;
    if (true) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_2;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_3;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_6;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_7;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_10;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_11;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_14;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_15;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_18;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_19;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_22;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_23;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_26;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_27;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_30;
    if (false) {
        attention_panel_sums_1 = 0.0f;
    }
    attention_panel_sums_1 += attention_weight_31;
    attention_denominator_0 = attention_denominator_0 * attention_factor_0 + attention_panel_sums_0;
    attention_denominator_1 = attention_denominator_1 * attention_factor_1 + attention_panel_sums_1;
    attention_weighted[0] = attention_weighted[0] * attention_factor_0;
    attention_weighted[1] = attention_weighted[1] * attention_factor_0;
    attention_weighted[2] = attention_weighted[2] * attention_factor_1;
    attention_weighted[3] = attention_weighted[3] * attention_factor_1;
    attention_weighted[4] = attention_weighted[4] * attention_factor_0;
    attention_weighted[5] = attention_weighted[5] * attention_factor_0;
    attention_weighted[6] = attention_weighted[6] * attention_factor_1;
    attention_weighted[7] = attention_weighted[7] * attention_factor_1;
    const uint32_t a0_1[4] =
            {dlc_pack_16(attention_rounded[0], attention_rounded[1]),
            dlc_pack_16(attention_rounded[2], attention_rounded[3]),
            dlc_pack_16(attention_rounded[4], attention_rounded[5]),
            dlc_pack_16(attention_rounded[6], attention_rounded[7])};
    uint32_t b0_1[2];
    dlc_transposed_blocks_x2(b0_1, shared_attention_values + i_2_r_fused % 16 * 24);
    uint32_t b1_1[2];
    dlc_transposed_blocks_x2(b1_1, shared_attention_values + (i_2_r_fused % 16 * 24 + 8));
    dlc_mma_f16_f16(attention_weighted, a0_1, b0_1);
    dlc_mma_f16_f16(attention_weighted + 4, a0_1, b1_1);
    const uint32_t a0_2[4] =
            {dlc_pack_16(attention_rounded[8], attention_rounded[9]),
            dlc_pack_16(attention_rounded[10], attention_rounded[11]),
            dlc_pack_16(attention_rounded[12], attention_rounded[13]),
            dlc_pack_16(attention_rounded[14], attention_rounded[15])};
    uint32_t b0_2[2];
    dlc_transposed_blocks_x2(b0_2, shared_attention_values + (i_2_r_fused % 16 * 24 + 384));
    uint32_t b1_2[2];
    dlc_transposed_blocks_x2(b1_2, shared_attention_values + (i_2_r_fused % 16 * 24 + 392));
    dlc_mma_f16_f16(attention_weighted, a0_2, b0_2);
    dlc_mma_f16_f16(attention_weighted + 4, a0_2, b1_2);
    const uint32_t a0_3[4] =
            {dlc_pack_16(attention_rounded[16], attention_rounded[17]),
            dlc_pack_16(attention_rounded[18], attention_rounded[19]),
            dlc_pack_16(attention_rounded[20], attention_rounded[21]),
            dlc_pack_16(attention_rounded[22], attention_rounded[23])};
    uint32_t b0_3[2];
    dlc_transposed_blocks_x2(b0_3, shared_attention_values + (i_2_r_fused % 16 * 24 + 768));
    uint32_t b1_3[2];
    dlc_transposed_blocks_x2(b1_3, shared_attention_values + (i_2_r_fused % 16 * 24 + 776));
    dlc_mma_f16_f16(attention_weighted, a0_3, b0_3);
    dlc_mma_f16_f16(attention_weighted + 4, a0_3, b1_3);
    const uint32_t a0_4[4] =
            {dlc_pack_16(attention_rounded[24], attention_rounded[25]),
            dlc_pack_16(attention_rounded[26], attention_rounded[27]),
            dlc_pack_16(attention_rounded[28], attention_rounded[29]),
            dlc_pack_16(attention_rounded[30], attention_rounded[31])};
    uint32_t b0_4[2];
    dlc_transposed_blocks_x2(b0_4, shared_attention_values + (i_2_r_fused % 16 * 24 + 1152));
    uint32_t b1_4[2];
    dlc_transposed_blocks_x2(b1_4, shared_attention_values + (i_2_r_fused % 16 * 24 + 1160));
    dlc_mma_f16_f16(attention_weighted, a0_4, b0_4);
    dlc_mma_f16_f16(attention_weighted + 4, a0_4, b1_4);
    const float known_4 = attention_denominator_0;
    const float known_5 = known_4 + __shfl_xor_sync(0xffffffffu, known_4, (int)(1), 4);
    attention_row_sum_0 = known_5 + __shfl_xor_sync(0xffffffffu, known_5, (int)(2), 4);
    const float known_6 = attention_denominator_1;
    const float known_7 = known_6 + __shfl_xor_sync(0xffffffffu, known_6, (int)(1), 4);
    attention_row_sum_1 = known_7 + __shfl_xor_sync(0xffffffffu, known_7, (int)(2), 4);
    attention_online[0] = attention_weighted[0] / attention_row_sum_0;
    attention_online[1] = attention_weighted[1] / attention_row_sum_0;
    attention_online[2] = attention_weighted[2] / attention_row_sum_1;
    attention_online[3] = attention_weighted[3] / attention_row_sum_1;
    attention_online[4] = attention_weighted[4] / attention_row_sum_0;
    attention_online[5] = attention_weighted[5] / attention_row_sum_0;
    attention_online[6] = attention_weighted[6] / attention_row_sum_1;
    attention_online[7] = attention_weighted[7] / attention_row_sum_1;
    if (i_0 * 16 + i_2_r_fused / 4 < 20) {
        const floatx2 attention_online_1 = *(const floatx2 *)(attention_online);
        *(uint16_tx2 *)(attention_result
                + (h0_h1_t_fused * 320 + i_0 * 256 + i_2_r_fused / 4 * 16 + i_2_r_fused % 4 * 2)) =
                make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(attention_online_1.s0)),
                dlc_f32_to_f16(dlc_round_f16(attention_online_1.s1)));
    }
    if (i_0 * 16 + 8 + i_2_r_fused / 4 < 20) {
        const floatx2 attention_online_1 = *(const floatx2 *)(attention_online + 2);
        *(uint16_tx2 *)(attention_result
                + (h0_h1_t_fused * 320 + i_0 * 256 + i_2_r_fused / 4 * 16 + i_2_r_fused % 4 * 2 + 128)) =
                make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(attention_online_1.s0)),
                dlc_f32_to_f16(dlc_round_f16(attention_online_1.s1)));
    }
    if (i_0 * 16 + i_2_r_fused / 4 < 20) {
        const floatx2 attention_online_1 = *(const floatx2 *)(attention_online + 4);
        *(uint16_tx2 *)(attention_result
                + (h0_h1_t_fused * 320 + i_0 * 256 + i_2_r_fused / 4 * 16 + i_2_r_fused % 4 * 2 + 8)) =
                make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(attention_online_1.s0)),
                dlc_f32_to_f16(dlc_round_f16(attention_online_1.s1)));
    }
    if (i_0 * 16 + 8 + i_2_r_fused / 4 < 20) {
        const floatx2 attention_online_1 = *(const floatx2 *)(attention_online + 6);
        *(uint16_tx2 *)(attention_result
                + (h0_h1_t_fused * 320 + i_0 * 256 + i_2_r_fused / 4 * 16 + i_2_r_fused % 4 * 2 + 136)) =
                make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(attention_online_1.s0)),
                dlc_f32_to_f16(dlc_round_f16(attention_online_1.s1)));
    }
}

#ifdef __cplusplus
}
#endif
