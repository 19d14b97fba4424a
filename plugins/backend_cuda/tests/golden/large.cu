#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef signed long long int64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(16) { uint8_t s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf; } uint8_tx16;

static __device__ __forceinline__ uint8_tx16 make_uint8_tx16(uint8_t s0, uint8_t s1, uint8_t s2, uint8_t s3, uint8_t s4, uint8_t s5, uint8_t s6, uint8_t s7, uint8_t s8, uint8_t s9, uint8_t sa, uint8_t sb, uint8_t sc, uint8_t sd, uint8_t se, uint8_t sf)
{
    const uint8_tx16 vector = {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf};
    return vector;
}

__global__ void __launch_bounds__(256) fused_bitwise_not_kernel(const uint8_t *__restrict__ p0,
        uint8_t *__restrict__ bitwise_not)
{
    const int64_t i0_i1_fused_0_1 = (int64_t)blockIdx.x;
    const int64_t i0_i1_fused_0_2 = (int64_t)threadIdx.x;
    for (int64_t i0_i1_fused_0_0 = 0; i0_i1_fused_0_0 < 2; ++i0_i1_fused_0_0) {
        if (i0_i1_fused_0_0 * 442368 + i0_i1_fused_0_1 < 524288) {
            const uint8_tx16 p0_1 =
                    *(const uint8_tx16 *)(p0
                    + (i0_i1_fused_0_0 * 1811939328 + i0_i1_fused_0_1 * 4096 + i0_i1_fused_0_2 * 16));
            *(uint8_tx16 *)(bitwise_not
                    + (i0_i1_fused_0_0 * 1811939328 + i0_i1_fused_0_1 * 4096 + i0_i1_fused_0_2 * 16)) =
                    make_uint8_tx16((uint8_t)~p0_1.s0, (uint8_t)~p0_1.s1, (uint8_t)~p0_1.s2,
                    (uint8_t)~p0_1.s3, (uint8_t)~p0_1.s4, (uint8_t)~p0_1.s5, (uint8_t)~p0_1.s6,
                    (uint8_t)~p0_1.s7, (uint8_t)~p0_1.s8, (uint8_t)~p0_1.s9, (uint8_t)~p0_1.sa,
                    (uint8_t)~p0_1.sb, (uint8_t)~p0_1.sc, (uint8_t)~p0_1.sd, (uint8_t)~p0_1.se,
                    (uint8_t)~p0_1.sf);
        }
    }
}

#ifdef __cplusplus
}
#endif
