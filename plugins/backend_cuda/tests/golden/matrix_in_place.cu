#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define dlc_dynamic extern
#define dlc_static_size(bytes)
#else
#define dlc_dynamic
#define dlc_static_size(bytes) bytes
#endif

typedef struct __align__(8) { float s0, s1; } floatx2;

typedef struct __align__(4) { uint16_t s0, s1; } uint16_tx2;

static __device__ __forceinline__ uint16_tx2 make_uint16_tx2(uint16_t s0, uint16_t s1)
{
    const uint16_tx2 vector = {s0, s1};
    return vector;
}

#ifdef __CUDACC__
struct __align__(64) dlc_tensor { uint64_t words[16]; };
#endif

static __device__ __forceinline__ void dlc_init_tensor_barriers(uint64_t *barrier, int count)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0)
        for (int i = 0; i < count; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at + 8 * i) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
#else
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0)
    DLC_TENSOR_BARRIERS_INIT(barrier, count);
    __syncthreads();
#endif
}

static __device__ __forceinline__ void dlc_tensor_copy_2(uint64_t *barrier, int bytes, void *to, const dlc_tensor *tensor, int c3, int c4)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(bytes));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(tensor), "r"(at), "r"(c3), "r"(c4) : "memory");
#else
    DLC_TENSOR_BARRIER_EXPECT(barrier, bytes);
    DLC_TENSOR_COPY(to, tensor, barrier, c3, c4);
#endif
}

static __device__ __forceinline__ void dlc_commit_tensor_copies(uint64_t *barrier)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
#else
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0)
    DLC_TENSOR_BARRIER_ARRIVE(barrier);
#endif
}

static __device__ __forceinline__ void dlc_wait_for_tensor_copies(uint64_t *barrier, int parity)
{
#ifdef __CUDACC__
    const unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
    unsigned done;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at), "r"(parity) : "memory"); while (!done);
#else
    DLC_TENSOR_BARRIER_WAIT(barrier, parity);
#endif
}

static __device__ __forceinline__ void dlc_wait_for_float(float *sums, int count)
{
#ifdef __CUDACC__
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(sums[i]) :: "memory");
#else
    DLC_PRODUCTS_WAIT(0);
#endif
}

static __device__ __forceinline__ void dlc_wait_for_float_but_1(float *sums, int count)
{
#ifdef __CUDACC__
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    #pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(sums[i]) :: "memory");
#else
    DLC_PRODUCTS_WAIT(1);
#endif
}

static __device__ __forceinline__ void dlc_begin_float(float *sums, int count)
{
#ifdef __CUDACC__
    #pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(sums[i]) :: "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    DLC_PRODUCTS_BEGIN();
#endif
}

static __device__ __forceinline__ void dlc_commit_products(void)
{
#ifdef __CUDACC__
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
    DLC_PRODUCTS_COMMIT();
#endif
}

static __device__ __forceinline__ void dlc_wgmma_f16_f16_n64_nt(float *sums, const void *a, int a_stride, const void *b, int b_stride)
{
#ifdef __CUDACC__
    const unsigned long long of_a = 1ull << 62 | 64ull << 32
        | (unsigned long long)(a_stride >> 4) << 16 | (__cvta_generic_to_shared(a) >> 4 & 0x3fff);
    const unsigned long long of_b = 1ull << 62 | 64ull << 32
        | (unsigned long long)(b_stride >> 4) << 16 | (__cvta_generic_to_shared(b) >> 4 & 0x3fff);
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 1;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
        : "l"(of_a), "l"(of_b));
#else
    static const int16_t unit[] = {0, 2, 2, 64, 64, 16, 0, 3, 2, 4, 64, 8, 1024, 4, 3, 1, 2, 512, 2, 8, 8, 2, 1, 16, 128, 8, 1, 16, 8, 2, 1, 64, 512, 2, 1, 64, 8};
    DLC_PRODUCT_ASYNC(sums, a, a_stride, b, b_stride, "nt", unit);
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

__global__ void __launch_bounds__(256) fused_matmul_kernel(const __grid_constant__ dlc_tensor tensor,
        const __grid_constant__ dlc_tensor tensor_1,
        const uint16_t *__restrict__ p0,
        const uint16_t *__restrict__ p1,
        uint16_t *__restrict__ matmul_end)
{
    (void)p0;
    (void)p1;
    __shared__ __align__(8) uint64_t barriers[4];
    unsigned committed = 0, completed = 0;
    dlc_init_tensor_barriers(barriers, 4);
    dlc_dynamic __shared__ __align__(1024) uint8_t shared[dlc_static_size(98304)];
    uint16_t *const shared_p0_reindex_shared_swizzled = (uint16_t *)(shared + 0);
    uint16_t *const shared_p1_reindex_shared_swizzled = (uint16_t *)(shared + 65536);
    const int o0_o1_fused = (int)blockIdx.x;
    const int o2 = (int)threadIdx.y;
    const int o5_o6_o7_fused = (int)threadIdx.x;
    __align__(16) float matmul[32];
    matmul[0] = 0.0f;
    matmul[1] = 0.0f;
    matmul[2] = 0.0f;
    matmul[3] = 0.0f;
    matmul[4] = 0.0f;
    matmul[5] = 0.0f;
    matmul[6] = 0.0f;
    matmul[7] = 0.0f;
    matmul[8] = 0.0f;
    matmul[9] = 0.0f;
    matmul[10] = 0.0f;
    matmul[11] = 0.0f;
    matmul[12] = 0.0f;
    matmul[13] = 0.0f;
    matmul[14] = 0.0f;
    matmul[15] = 0.0f;
    matmul[16] = 0.0f;
    matmul[17] = 0.0f;
    matmul[18] = 0.0f;
    matmul[19] = 0.0f;
    matmul[20] = 0.0f;
    matmul[21] = 0.0f;
    matmul[22] = 0.0f;
    matmul[23] = 0.0f;
    matmul[24] = 0.0f;
    matmul[25] = 0.0f;
    matmul[26] = 0.0f;
    matmul[27] = 0.0f;
    matmul[28] = 0.0f;
    matmul[29] = 0.0f;
    matmul[30] = 0.0f;
    matmul[31] = 0.0f;
    if (o2 == 0 && (o5_o6_o7_fused == 0)) {
        dlc_tensor_copy_2(barriers + committed % 4, 16384, shared_p0_reindex_shared_swizzled + 0, &tensor, 0,
                0);
    }
    if (o2 == 0 && (o5_o6_o7_fused == 0)) {
        dlc_tensor_copy_2(barriers + committed % 4, 8192, shared_p1_reindex_shared_swizzled + 0, &tensor_1,
                0, 0);
    }
    dlc_commit_tensor_copies(barriers + committed % 4);
    ++committed;
    if (o2 == 0 && (o5_o6_o7_fused == 0)) {
        dlc_tensor_copy_2(barriers + committed % 4, 16384, shared_p0_reindex_shared_swizzled + 8192, &tensor,
                64, 0);
    }
    if (o2 == 0 && (o5_o6_o7_fused == 0)) {
        dlc_tensor_copy_2(barriers + committed % 4, 8192, shared_p1_reindex_shared_swizzled + 4096,
                &tensor_1, 0, 64);
    }
    dlc_commit_tensor_copies(barriers + committed % 4);
    ++committed;
    for (int o3 = 2; o3 < 4; ++o3) {
        dlc_wait_for_float_but_1(matmul, 32);
        for (; completed + 1 < committed; ++completed) {
            dlc_wait_for_tensor_copies(barriers + completed % 4, completed / 4 % 2);
        }
        __syncthreads();
        dlc_begin_float(matmul, 32);
        for (int o4 = 0; o4 < 4; ++o4) {
            dlc_wgmma_f16_f16_n64_nt(matmul, shared_p0_reindex_shared_swizzled
                    + (o3 * 8192 + o2 * 4096 + o4 * 16 - 16384), 0, shared_p1_reindex_shared_swizzled
                    + (o3 * 4096 + o4 * 1024 - 8192), 0);
        }
        dlc_commit_products();
        if (o2 == 0 && (o5_o6_o7_fused == 0)) {
            dlc_tensor_copy_2(barriers + committed % 4, 16384, shared_p0_reindex_shared_swizzled + o3 * 8192,
                    &tensor, o3 * 64, 0);
        }
        if (o2 == 0 && (o5_o6_o7_fused == 0)) {
            dlc_tensor_copy_2(barriers + committed % 4, 8192, shared_p1_reindex_shared_swizzled + o3 * 4096,
                    &tensor_1, 0, o3 * 64);
        }
        dlc_commit_tensor_copies(barriers + committed % 4);
        ++committed;
    }
    dlc_wait_for_float_but_1(matmul, 32);
    for (; completed + 1 < committed; ++completed) {
        dlc_wait_for_tensor_copies(barriers + completed % 4, completed / 4 % 2);
    }
    __syncthreads();
    dlc_begin_float(matmul, 32);
    for (int o4 = 0; o4 < 4; ++o4) {
        dlc_wgmma_f16_f16_n64_nt(matmul, shared_p0_reindex_shared_swizzled + (o2 * 4096 + o4 * 16 + 16384),
                0, shared_p1_reindex_shared_swizzled + (o4 * 1024 + 8192), 0);
    }
    dlc_commit_products();
    dlc_wait_for_float_but_1(matmul, 32);
    for (; completed < committed; ++completed) {
        dlc_wait_for_tensor_copies(barriers + completed % 4, completed / 4 % 2);
    }
    __syncthreads();
    dlc_begin_float(matmul, 32);
    for (int o4_1 = 0; o4_1 < 4; ++o4_1) {
        dlc_wgmma_f16_f16_n64_nt(matmul, shared_p0_reindex_shared_swizzled + (o2 * 4096 + o4_1 * 16 + 24576),
                0, shared_p1_reindex_shared_swizzled + (o4_1 * 1024 + 12288), 0);
    }
    dlc_commit_products();
    dlc_wait_for_float(matmul, 32);
    const floatx2 matmul_1 = *(const floatx2 *)(matmul);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64
            + o5_o6_o7_fused % 4 * 2)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_1.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_1.s1)));
    const floatx2 matmul_2 = *(const floatx2 *)(matmul + 2);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 512)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_2.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_2.s1)));
    const floatx2 matmul_3 = *(const floatx2 *)(matmul + 4);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 8)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_3.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_3.s1)));
    const floatx2 matmul_4 = *(const floatx2 *)(matmul + 6);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 520)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_4.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_4.s1)));
    const floatx2 matmul_5 = *(const floatx2 *)(matmul + 8);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 16)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_5.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_5.s1)));
    const floatx2 matmul_6 = *(const floatx2 *)(matmul + 10);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 528)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_6.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_6.s1)));
    const floatx2 matmul_7 = *(const floatx2 *)(matmul + 12);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 24)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_7.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_7.s1)));
    const floatx2 matmul_8 = *(const floatx2 *)(matmul + 14);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 536)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_8.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_8.s1)));
    const floatx2 matmul_9 = *(const floatx2 *)(matmul + 16);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 32)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_9.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_9.s1)));
    const floatx2 matmul_10 = *(const floatx2 *)(matmul + 18);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 544)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_10.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_10.s1)));
    const floatx2 matmul_11 = *(const floatx2 *)(matmul + 20);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 40)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_11.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_11.s1)));
    const floatx2 matmul_12 = *(const floatx2 *)(matmul + 22);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 552)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_12.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_12.s1)));
    const floatx2 matmul_13 = *(const floatx2 *)(matmul + 24);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 48)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_13.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_13.s1)));
    const floatx2 matmul_14 = *(const floatx2 *)(matmul + 26);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 560)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_14.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_14.s1)));
    const floatx2 matmul_15 = *(const floatx2 *)(matmul + 28);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 56)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_15.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_15.s1)));
    const floatx2 matmul_16 = *(const floatx2 *)(matmul + 30);
    *(uint16_tx2 *)(matmul_end
            + (o2 * 4096 + o5_o6_o7_fused / 32 * 1024 + o5_o6_o7_fused / 4 % 8 * 64 + o5_o6_o7_fused % 4 * 2
            + 568)) =
            make_uint16_tx2(dlc_f32_to_f16(dlc_round_f16(matmul_16.s0)),
            dlc_f32_to_f16(dlc_round_f16(matmul_16.s1)));
}

#ifdef __cplusplus
}
#endif
