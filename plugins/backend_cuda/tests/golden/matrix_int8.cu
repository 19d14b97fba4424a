#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(8) { int8_t s0, s1, s2, s3, s4, s5, s6, s7; } int8_tx8;

typedef struct __align__(8) { int32_t s0, s1; } int32_tx2;

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

static __device__ __forceinline__ void dlc_blocks_8_x4(uint32_t *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
#else
    static const int16_t block[] = {8, 16, 1, 2, 4, 4, 16, 8, 1, 1, 4};
    DLC_BLOCKS(to, from, 4, block);
#endif
}

static __device__ __forceinline__ void dlc_blocks_8_x2(uint32_t *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
        : "=r"(to[0]), "=r"(to[1]) : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
#else
    static const int16_t block[] = {8, 16, 1, 2, 4, 4, 16, 8, 1, 1, 4};
    DLC_BLOCKS(to, from, 2, block);
#endif
}

static __device__ __forceinline__ void dlc_mma_s8_s8(int32_t *sums, const uint32_t *a, const uint32_t *b)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    static const int16_t unit[] = {1, 4, 4, 16, 8, 32, 0, 2, 2, 4, 8, 8, 2, 1, 2, 64, 2, 2, 4, 4, 32, 8, 3, 1, 4, 256, 2, 16, 2, 2, 32, 4, 1, 8, 2, 8, 4, 128, 2};
    DLC_MATRIX(sums, a, b, unit);
#endif
}

__global__ void __launch_bounds__(32) fused_matmul_kernel(const int8_t *__restrict__ p0,
        const int8_t *__restrict__ p1,
        int32_t *__restrict__ matmul)
{
    __shared__ __align__(16) int8_t shared_p0_reindex_shared[1264];
    __shared__ __align__(16) int8_t shared_p1_reindex_shared[624];
    const int o0_o1_fused = (int)blockIdx.x;
    const int o4_o5_fused = (int)threadIdx.x;
    __align__(16) int32_t matmul_local[4];
    matmul_local[0] = 0;
    matmul_local[1] = 0;
    matmul_local[2] = 0;
    matmul_local[3] = 0;
    dlc_copy_16(shared_p0_reindex_shared + (o4_o5_fused / 4 * 80 + o4_o5_fused % 4 * 16), p0
            + (o0_o1_fused / 8 * 1024 + o4_o5_fused * 16));
    dlc_copy_16(shared_p0_reindex_shared + (o4_o5_fused / 4 * 80 + o4_o5_fused % 4 * 16 + 640), p0
            + (o0_o1_fused / 8 * 1024 + o4_o5_fused * 16 + 512));
    const int8_tx8 p1_1 = *(const int8_tx8 *)(p1 + (o4_o5_fused * 64 + o0_o1_fused % 8 * 8));
    shared_p1_reindex_shared[o4_o5_fused] = p1_1.s0;
    shared_p1_reindex_shared[o4_o5_fused + 80] = p1_1.s1;
    shared_p1_reindex_shared[o4_o5_fused + 160] = p1_1.s2;
    shared_p1_reindex_shared[o4_o5_fused + 240] = p1_1.s3;
    shared_p1_reindex_shared[o4_o5_fused + 320] = p1_1.s4;
    shared_p1_reindex_shared[o4_o5_fused + 400] = p1_1.s5;
    shared_p1_reindex_shared[o4_o5_fused + 480] = p1_1.s6;
    shared_p1_reindex_shared[o4_o5_fused + 560] = p1_1.s7;
    const int8_tx8 p1_2 = *(const int8_tx8 *)(p1 + (o4_o5_fused * 64 + o0_o1_fused % 8 * 8 + 2048));
    shared_p1_reindex_shared[o4_o5_fused + 32] = p1_2.s0;
    shared_p1_reindex_shared[o4_o5_fused + 112] = p1_2.s1;
    shared_p1_reindex_shared[o4_o5_fused + 192] = p1_2.s2;
    shared_p1_reindex_shared[o4_o5_fused + 272] = p1_2.s3;
    shared_p1_reindex_shared[o4_o5_fused + 352] = p1_2.s4;
    shared_p1_reindex_shared[o4_o5_fused + 432] = p1_2.s5;
    shared_p1_reindex_shared[o4_o5_fused + 512] = p1_2.s6;
    shared_p1_reindex_shared[o4_o5_fused + 592] = p1_2.s7;
    dlc_wait_for_copies();
    __syncthreads();
    for (int o3 = 0; o3 < 2; ++o3) {
        uint32_t a0[4];
        dlc_blocks_8_x4(a0, shared_p0_reindex_shared
                + (o3 * 32 + (o4_o5_fused % 16 * 80 + o4_o5_fused / 16 % 2 * 16)));
        uint32_t b0[2];
        dlc_blocks_8_x2(b0, shared_p1_reindex_shared
                + (o3 * 32 + (o4_o5_fused % 8 * 80 + o4_o5_fused / 8 % 2 * 16)));
        dlc_mma_s8_s8(matmul_local, a0, b0);
    }
    const int32_tx2 matmul_local_1 = *(const int32_tx2 *)(matmul_local);
    *(int32_tx2 *)(matmul
            + (o0_o1_fused / 8 * 1024 + o4_o5_fused / 4 * 64 + o0_o1_fused % 8 * 8 + o4_o5_fused % 4 * 2)) =
            matmul_local_1;
    const int32_tx2 matmul_local_2 = *(const int32_tx2 *)(matmul_local + 2);
    *(int32_tx2 *)(matmul
            + (o0_o1_fused / 8 * 1024 + o4_o5_fused / 4 * 64 + o0_o1_fused % 8 * 8 + o4_o5_fused % 4 * 2
            + 512)) = matmul_local_2;
}

#ifdef __cplusplus
}
#endif
