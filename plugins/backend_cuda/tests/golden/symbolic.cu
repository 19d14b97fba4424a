#ifdef __CUDACC_RTC__
typedef signed long long int64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct __align__(16) { float s0, s1, s2, s3; } floatx4;

static __device__ __forceinline__ floatx4 make_floatx4(float s0, float s1, float s2, float s3)
{
    const floatx4 vector = {s0, s1, s2, s3};
    return vector;
}

__global__ void __launch_bounds__(256) fused_mul_kernel(const float *__restrict__ p0,
        float *__restrict__ mul,
        int64_t n)
{
    const int64_t i0_0_0 = (int64_t)blockIdx.x;
    const int64_t i0_0_1 = (int64_t)threadIdx.x;
    if (i0_0_0 * 1024 + i0_0_1 * 4 < n - 3 && i0_0_0 * 256 + i0_0_1 < (n + 3) / 4) {
        const floatx4 p0_1 = *(const floatx4 *)(p0 + (i0_0_0 * 1024 + i0_0_1 * 4));
        *(floatx4 *)(mul + (i0_0_0 * 1024 + i0_0_1 * 4)) =
                make_floatx4(p0_1.s0 * p0_1.s0, p0_1.s1 * p0_1.s1, p0_1.s2 * p0_1.s2, p0_1.s3 * p0_1.s3);
    } else {
        for (int64_t i0_1 = 0; i0_1 < 4; ++i0_1) {
            if (i0_0_0 * 1024 + i0_0_1 * 4 + i0_1 < n && i0_0_0 * 256 + i0_0_1 < (n + 3) / 4) {
                const float p0_1 = p0[i0_0_0 * 1024 + i0_0_1 * 4 + i0_1];
                mul[i0_0_0 * 1024 + i0_0_1 * 4 + i0_1] = p0_1 * p0_1;
            }
        }
    }
}

#ifdef __cplusplus
}
#endif
