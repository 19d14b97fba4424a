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

static __device__ __forceinline__ void dlc_copy_16(void *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    DLC_COPY_ASYNC(to, from, 16);
#endif
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

__global__ void __launch_bounds__(64) fused_matmul_kernel(const uint16_t *__restrict__ p0,
        const uint16_t *__restrict__ p1,
        uint16_t *__restrict__ matmul_end)
{
    __shared__ __align__(16) uint16_t shared_p0_reindex_shared[1144];
    __shared__ __align__(16) uint16_t shared_p1_reindex_shared[1528];
    const int o0_o1_fused = (int)blockIdx.x;
    const int o2 = (int)threadIdx.y;
    const int o5_o6_fused = (int)threadIdx.x;
    __align__(16) float matmul[4];
    matmul[0] = 0.0f;
    matmul[1] = 0.0f;
    matmul[2] = 0.0f;
    matmul[3] = 0.0f;
    dlc_copy_16(shared_p0_reindex_shared + (o2 * 288 + o5_o6_fused / 8 * 72 + o5_o6_fused % 8 * 8), p0
            + (o0_o1_fused / 4 * 1024 + o2 * 256 + o5_o6_fused * 8));
    dlc_copy_16(shared_p0_reindex_shared + (o2 * 288 + o5_o6_fused / 8 * 72 + o5_o6_fused % 8 * 8 + 576), p0
            + (o0_o1_fused / 4 * 1024 + o2 * 256 + o5_o6_fused * 8 + 512));
    dlc_copy_16(shared_p1_reindex_shared + (o2 * 384 + o5_o6_fused / 2 * 24 + o5_o6_fused % 2 * 8), p1
            + (o2 * 1024 + o5_o6_fused / 2 * 64 + o0_o1_fused % 4 * 16 + o5_o6_fused % 2 * 8));
    dlc_copy_16(shared_p1_reindex_shared + (o2 * 384 + o5_o6_fused / 2 * 24 + o5_o6_fused % 2 * 8 + 768), p1
            + (o2 * 1024 + o5_o6_fused / 2 * 64 + o0_o1_fused % 4 * 16 + o5_o6_fused % 2 * 8 + 2048));
    dlc_wait_for_copies();
    __syncthreads();
    for (int o4 = 0; o4 < 4; ++o4) {
        uint32_t a0[4];
        dlc_blocks_x4(a0, shared_p0_reindex_shared
                + (o4 * 16 + (o5_o6_fused % 16 * 72 + o5_o6_fused / 16 % 2 * 8)));
        uint32_t b0[2];
        dlc_transposed_blocks_x2(b0, shared_p1_reindex_shared + (o4 * 384 + o2 * 8 + o5_o6_fused % 16 * 24));
        dlc_mma_f16_f16(matmul, a0, b0);
    }
    const floatx2 matmul_1 = *(const floatx2 *)(matmul);
    *(uint16_tx2 *)(matmul_end
            + (o0_o1_fused / 4 * 1024 + o5_o6_fused / 4 * 64 + o0_o1_fused % 4 * 16 + o2 * 8
            + o5_o6_fused % 4 * 2)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_1.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_1.s1)));
    const floatx2 matmul_2 = *(const floatx2 *)(matmul + 2);
    *(uint16_tx2 *)(matmul_end
            + (o0_o1_fused / 4 * 1024 + o5_o6_fused / 4 * 64 + o0_o1_fused % 4 * 16 + o2 * 8
            + o5_o6_fused % 4 * 2 + 512)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_2.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_2.s1)));
}

#ifdef __cplusplus
}
#endif
