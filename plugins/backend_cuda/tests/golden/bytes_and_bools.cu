#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

__global__ void __launch_bounds__(32) fused_less_logical_and_kernel(const int8_t *__restrict__ p0,
        const uint8_t *__restrict__ p1,
        uint8_t *__restrict__ logical_and)
{
    const int i0_0 = (int)blockIdx.x;
    const int i0_1 = (int)threadIdx.x;
    if (i0_1 < 19) {
        logical_and[i0_1] = p0[i0_1] < 3 && (p1[i0_1] != 0);
    }
}

#ifdef __cplusplus
}
#endif
